package rewards

import "time"

// Outcome is how a sample ended. It is also the label of the metric.
type Outcome string

// The outcomes of a sample.
const (
	Scored            Outcome = "scored"    // a finite reward
	Failed            Outcome = "failed"    // its scorers failed for good
	Rejected          Outcome = "rejected"  // never queued: malformed, too large, over credit, draining
	OutcomeExpired    Outcome = "expired"   // its deadline passed
	OutcomeCancelled  Outcome = "cancelled" // the client took it back
	OutcomeWorkerLost Outcome = "lost"      // workers kept vanishing until the attempts were spent
)

// Status is how one component ended.
type Status string

// The statuses of a component.
const (
	StatusOK      Status = "ok"
	StatusFailed  Status = "failed"
	StatusSkipped Status = "skipped"
	StatusImputed Status = "imputed"
	// StatusWaiting is that of a component that looks at whole groups, until RunGroup.
	StatusWaiting Status = "waiting"
)

// ComponentError is a failure on the way to a result.
type ComponentError struct {
	// Component is the key of the component; empty for a failure of the sample as a whole.
	Component string `json:"component,omitempty"`
	// Class is what kind of failure it is.
	Class Class `json:"class"`
	// Message says for people what went wrong, in at most 4,096 bytes.
	Message string `json:"message"`
	// Blame says whose failure it is, and Permanent that the same will happen to every
	// sample.
	Blame     Blame `json:"blame,omitempty"`
	Permanent bool  `json:"permanent,omitempty"`
	// Attempts is how many times the component was tried.
	Attempts int `json:"attempts,omitempty"`
}

// ComponentResult is the answer of one component.
type ComponentResult struct {
	// Key names the component within its profile.
	Key     string
	Status  Status
	Value   float64 // of status ok, or imputed by a fixed value
	Score   Score   // of status ok
	Reason  string  // of status skipped
	Class   Class   // of status failed or imputed
	Message string  // of status failed or imputed
	// Blame and Permanent are those of the failure, of status failed or imputed.
	Blame     Blame
	Permanent bool
	// Waits is the dependency that is down, of status failed for that reason.
	Waits string
	// Attempts is how many times the component was tried, Took the time of all of them with the
	// pauses between, from Began on; zero where another worker has tried it.
	Attempts int
	Began    time.Time
	Took     time.Duration
}

// Result is what a Manager says of one sample.
type Result struct {
	Outcome Outcome
	// Score is the reward; it means something only if Outcome is Scored and Pending is nil.
	Score float64
	// Steps are the step scores, whose sum is Score; nil: no component has steps. They mean
	// something where Score does.
	Steps []float64
	// Extra and Details are what reward_extra_info and details become.
	Extra   map[string]any
	Details map[string]any
	// Errors are the failures on the way, Components the answers of all components, in the
	// order of the profile.
	Errors     []ComponentError
	Components []ComponentResult
	// Partial is set, and nothing is decided, while a component waits for the sample's
	// prompt group: it is what RunGroup takes. Where Waits is set it is what Kept takes.
	Partial []ComponentResult
	// Waits is set, with the outcome cancelled, where the sample is returned because a
	// dependency of that name is down; Errors says what it said last. Only with Return.
	Waits string
	// Pending is set when a failed component waits for the mean of its prompt group.
	Pending *Pending
	// OnFailure is the profile's policy for a sample that failed.
	OnFailure SamplePolicy
}

// Class returns the class of the first error, or "".
func (r *Result) Class() Class {
	if len(r.Errors) == 0 {
		return ""
	}
	return r.Errors[0].Class
}
