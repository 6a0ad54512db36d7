package dispatch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/internal/sim"
)

// Names of policies; the simulation has the same, and others to compare them with.
const (
	// Random gives every sample to one of the free places, uniformly.
	Random = sim.PolicyRandom
	// SpeedWeighted is Random, but workers that are clearly slower than the others do not
	// get the last samples of a step.
	SpeedWeighted = sim.PolicySpeedWeighted
)

// Policies are the values of Config.Policy, the default first.
func Policies() []string { return []string{Random, SpeedWeighted} }

// Config says which worker gets a sample, and when a second one does. The zero value of a
// field takes its default.
type Config struct {
	// Policy is one of Policies. Defaults to Random.
	Policy string
	// BackupAfter is how many times the run's usual service time a sample may run, once
	// its step has arrived whole and nothing is queued, before a worker that is idle gets
	// it, too: the first result wins and the other attempt is taken back. 0: never, for a
	// second request costs money where judges are paid, and not every scorer may be asked
	// twice. At least 1; 2.5 is a good start. Groups that are scored as a whole get none.
	BackupAfter float64
	// BackupShare bounds the samples of a step that get a second request, as a part of
	// all, but at least one may. Defaults to 0.05.
	BackupShare float64
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Policy = cmp.Or(c.Policy, Random)
	c.BackupShare = cmp.Or(c.BackupShare, 0.05)
	return c
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if !slices.Contains(Policies(), c.Policy) {
		errs = append(errs, fmt.Errorf("loop: dispatch.policy is %q, want one of %q", c.Policy, Policies()))
	}
	if c.BackupAfter != 0 && !(c.BackupAfter >= 1 && c.BackupAfter <= 1e6) {
		errs = append(errs, fmt.Errorf("loop: dispatch.backup_after is %v, want 0 (never) or 1 and more times the usual service time", c.BackupAfter))
	}
	if !(c.BackupShare > 0 && c.BackupShare <= 1) {
		errs = append(errs, fmt.Errorf("loop: dispatch.backup_share is %v, want more than 0 and at most 1", c.BackupShare))
	}
	return errors.Join(errs...)
}
