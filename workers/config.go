package workers

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Config bounds a worker. The zero value of a field takes its default.
type Config struct {
	// ID names the worker; it must be unique among all that live.
	ID string
	// Slots is how many samples it scores at once. Defaults to 1.
	Slots int
	// MaxAbandoned is how many scorers may overrun their deadline and still run
	// before the worker reports itself sick and takes nothing more. Defaults to
	// half its slots, at least 1.
	MaxAbandoned int
	// Heartbeat is how old a lease is when it is extended, and how often from then on, to the
	// next whole second. Defaults to 5 s; it must be well below the engine's lease.
	Heartbeat time.Duration
	// Version is announced; so are the machine, and what the worker scores with there.
	Version, Host   string
	Devices, Models []string
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Slots = cmp.Or(c.Slots, 1)
	c.MaxAbandoned = cmp.Or(c.MaxAbandoned, max(1, c.Slots/2))
	c.Heartbeat = cmp.Or(c.Heartbeat, 5*time.Second)
	return c
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.ID == "" {
		errs = append(errs, errors.New("workers: a worker needs an id"))
	}
	positive := func(name string, v int64) {
		if v <= 0 {
			errs = append(errs, fmt.Errorf("workers: %s must be positive, not %d", name, v))
		}
	}
	positive("slots", int64(c.Slots))
	positive("max_abandoned", int64(c.MaxAbandoned))
	positive("heartbeat", int64(c.Heartbeat))
	return errors.Join(errs...)
}
