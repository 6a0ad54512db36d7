package workers

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
)

// Config bounds a worker. The zero value of a field takes its default.
type Config struct {
	// ID names the worker; it must be unique among all that live.
	ID string
	// Index is which of the Of workers of its process it is, from 0: what the process can
	// execute at a time is divided among them. Of defaults to 1.
	Index, Of int
	// MaxAbandoned is how many scorers of a profile may overrun their deadline and still run
	// before the worker takes no more samples of that profile. Defaults to half its capacity
	// for the profile, at least 1.
	MaxAbandoned int
	// MaxBytes is explained in Keys; a process divides its memory among its workers, and that
	// of a worker by itself defaults to 256 MiB.
	MaxBytes int64
	// Heartbeat is how old a lease is when it is extended, and how often from then on, to the
	// next whole second. Defaults to 5 s; it must be well below the queue's lease.
	Heartbeat time.Duration
	// Version is announced; so are the machine, and what the worker scores with there.
	Version, Host   string
	Devices, Models []string
}

// Keys implements keys.Described: keys of the section loop.workers.
func (c *Config) Keys(k *keys.Set) {
	k.Size(&c.MaxBytes, "max_bytes", 0, "Most bytes of samples that a worker has at a time; a larger sample is taken alone, and no profile has more than half of it while another wants some. "+
		"0: its part of a quarter of the memory that the process may have, at least loop.message_bytes.")
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Of = cmp.Or(c.Of, 1)
	c.MaxBytes = cmp.Or(c.MaxBytes, 256<<20)
	c.Heartbeat = cmp.Or(c.Heartbeat, 5*time.Second)
	return c
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.ID == "" {
		errs = append(errs, errors.New("workers: a worker needs an id"))
	}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("workers: "+format, args...))
		}
	}
	check(c.Index >= 0 && c.Index < c.Of, "worker %d of %d: the first one is 0", c.Index, c.Of)
	check(c.MaxAbandoned >= 0, "max_abandoned must not be negative, not %d", c.MaxAbandoned)
	check(c.Heartbeat > 0, "heartbeat must be positive, not %v", c.Heartbeat)
	return errors.Join(append(errs, keys.Validate("workers", &c))...)
}
