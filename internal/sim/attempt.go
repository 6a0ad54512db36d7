package sim

// Bounds of what is simulated and recorded.
const (
	// MaxServers is how many samples can be scored at once, at most.
	MaxServers = 1 << 20
	// MaxAttempts is how often a sample is tried, at most.
	MaxAttempts = 64
)

// Attempt is one try of one worker to score a sample.
type Attempt struct {
	Worker  string  `json:"worker,omitempty"`
	Started float64 `json:"started_s"`
	Ended   float64 `json:"ended_s"`
	// Backup: sent beside an attempt that was still running, not after one that
	// had failed.
	Backup bool `json:"backup,omitempty"`
	// Outcome is how it ended: AttemptWon for the one whose result counted; else
	// any word, such as late (another was first), failed or lost.
	Outcome string `json:"outcome,omitempty"`
}

// AttemptWon is the outcome of the attempt that counted.
const AttemptWon = "scored"
