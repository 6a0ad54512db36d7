package dispatch

import (
	"fmt"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/sim"
)

// Names of policies. The simulation has the same policies, and others for comparison.
const (
	// Random gives every sample to one of the free places, chosen uniformly at random.
	Random = sim.PolicyRandom
	// SpeedWeighted is like Random, except that clearly slower workers do not get the last samples
	// of a step.
	SpeedWeighted = sim.PolicySpeedWeighted
)

// Config selects the worker for a sample, and controls backup requests. The method Keys documents
// the fields. A field with the zero value gets its default.
type Config struct {
	Policy      string
	BackupAfter float64
	BackupShare float64
}

// Keys implements keys.Described for the section loop.dispatch.
func (c *Config) Keys(k *keys.Set) {
	k.Choice(&c.Policy, "policy", policies(), policyDoc()).
		Retired("random_blind", fmt.Sprintf("random_blind has been removed: write %s or %s; `rewardloop plan --policy random_blind,random` still compares it, in a simulation", Random, SpeedWeighted))
	k.Float(&c.BackupAfter, "backup_after", 0, "Multiple of the mean service time after which an idle worker gets a backup request for a sample, if the whole step has arrived and nothing is queued. The first result counts. 0: never. Try 2.5.").Max(1e6)
	k.Float(&c.BackupShare, "backup_share", 0.05, "Maximum share of the samples of a step that get a backup request. One sample of each step may always get a backup request.").Between(1e-6, 1)
	k.Check(func(r keys.Report) {
		if c.BackupAfter > 0 && c.BackupAfter < 1 {
			r.Fault("backup_after", "want 0 (never), or 1 and more times the usual service time, got %v", c.BackupAfter)
		}
	})
}

// WithDefaults returns a copy of c in which the defaults are set.
func (c Config) WithDefaults() Config {
	keys.Fill(&c)
	return c
}
