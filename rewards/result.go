package rewards

import "time"

// Outcome is how a sample ended. It is also the label of the metric.
type Outcome string

// The outcomes of a sample.
const (
	Scored            Outcome = "scored"    // the sample has a finite reward
	Failed            Outcome = "failed"    // the scorers failed for good
	Rejected          Outcome = "rejected"  // the sample was refused: malformed, too large, over credit, draining
	OutcomeExpired    Outcome = "expired"   // the sample's deadline passed
	OutcomeCancelled  Outcome = "cancelled" // the client withdrew the sample
	OutcomeWorkerLost Outcome = "lost"      // workers were lost until no attempts were left
)

// Status is how one component ended.
type Status string

// The statuses of a component.
const (
	StatusOK      Status = "ok"
	StatusFailed  Status = "failed"
	StatusSkipped Status = "skipped"
	StatusImputed Status = "imputed"
	// StatusWaiting is the status of a component that scores whole groups, until RunGroup.
	StatusWaiting Status = "waiting"
)

// ComponentError is a failure that occurred while a result was computed.
type ComponentError struct {
	// Component is the key of the component. It is empty for a failure of the sample as a whole.
	Component string `json:"component,omitempty"`
	// Class is the kind of the failure.
	Class Class `json:"class"`
	// Message describes the failure for people, in at most 4,096 bytes.
	Message string `json:"message"`
	// Blame is the party that is responsible for the failure. Permanent reports that every sample
	// will fail in the same way.
	Blame     Blame `json:"blame,omitempty"`
	Permanent bool  `json:"permanent,omitempty"`
	// Attempts is how many times the component was tried.
	Attempts int `json:"attempts,omitempty"`
}

// ComponentResult is the result of one component.
type ComponentResult struct {
	// Key is the key of the component in its profile.
	Key     string
	Status  Status
	Value   float64 // for StatusOK, and for StatusImputed with a fixed value
	Score   Score   // for StatusOK
	Reason  string  // for StatusSkipped
	Class   Class   // for StatusFailed and StatusImputed
	Message string  // for StatusFailed and StatusImputed
	// Blame and Permanent describe the failure, for StatusFailed and StatusImputed.
	Blame     Blame
	Permanent bool
	// Waits is the name of the dependency that is down, if the component failed for that reason.
	Waits string
	// Attempts is how many times the component was tried. Took is the duration of all attempts and
	// the pauses between them, from the time Began. All three are zero if another worker ran the
	// component.
	Attempts int
	Began    time.Time
	Took     time.Duration
}

// Result is the result of a Manager for one sample.
type Result struct {
	Outcome Outcome
	// Score is the reward. It is valid only if Outcome is Scored and Pending is nil.
	Score float64
	// Steps are the step scores, whose sum is Score. Steps is nil if no component has steps, and
	// valid whenever Score is.
	Steps []float64
	// Extra becomes reward_extra_info, and Details becomes details.
	Extra   map[string]any
	Details map[string]any
	// Errors are the failures that occurred. Components are the results of all components, in the
	// order of the profile.
	Errors     []ComponentError
	Components []ComponentResult
	// Partial is set, and the result is undecided, while a component waits for the sample's prompt
	// group; Partial is then an input of RunGroup. If Waits is set, Partial is the input of Kept.
	Partial []ComponentResult
	// Waits is set, with the outcome cancelled, if the sample is returned because the dependency of
	// that name is down; Errors contains the last failure. Waits is set only with the option
	// Return.
	Waits string
	// Pending is set if a failed component waits for the mean of its prompt group.
	Pending *Pending
	// OnFailure is the profile's policy for a failed sample.
	OnFailure SamplePolicy
}

// Class returns the class of the first error, or "" if there is none.
func (r *Result) Class() Class {
	if len(r.Errors) == 0 {
		return ""
	}
	return r.Errors[0].Class
}
