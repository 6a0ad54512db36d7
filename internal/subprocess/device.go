package subprocess

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Device describes the device, such as a GPU, that the only child of a pool uses exclusively. The
// device may be faulty although no child is. A field with the zero value gets its default.
type Device struct {
	// Name is the name of the device in errors.
	Name string
	// Suspect reports whether an error of this class from the handler may be caused by the device.
	// A child that continues after such an error must answer the canary before its next request; a
	// child that ends with such an error counts as a failure.
	Suspect func(class string) bool
	// Failures is the number of failures within the time Within that put the device into
	// quarantine. In quarantine no child is started and requests are refused. The defaults are 5
	// failures and 10 min. A failure is a child that crashed, did not start, sent a wrong answer, or
	// was killed because it hung, but not a child that was killed from outside. Failures caused by
	// an input do not count once another request has been answered.
	Failures int
	Within   time.Duration
	// Rest is the length of a quarantine, by default 30 s. If the first failure after a quarantine
	// starts the next one, its length doubles, up to RestMax, by default 5 min.
	Rest, RestMax time.Duration
}

func (d Device) withDefaults() Device {
	d.Failures = cmp.Or(d.Failures, 5)
	d.Within = cmp.Or(d.Within, 10*time.Minute)
	d.Rest = cmp.Or(d.Rest, 30*time.Second)
	d.RestMax = cmp.Or(d.RestMax, 5*time.Minute)
	return d
}

// Quarantine describes why a device is not used.
type Quarantine struct {
	// Until is the time at which a child is started again and gets the canary.
	Until time.Time `json:"until"`
	// Why describes how often and how children failed.
	Why string `json:"why"`
}

// record is how the children of a device failed lately.
type record struct {
	device   Device
	failures []failure // the oldest first
	again    int       // quarantines without Within free of failures between them
	now      *Quarantine
}

type failure struct {
	at     time.Time
	blamed bool // put down to an input
}

// failed takes a failure in and returns how long the device is to rest.
func (r *record) failed(why error, now time.Time) time.Duration {
	r.failures = slices.DeleteFunc(r.failures, func(f failure) bool { return now.Sub(f.at) > r.device.Within })
	if len(r.failures) == 0 {
		r.again = 0
	}
	r.failures = append(r.failures, failure{at: now})
	if len(r.failures) < r.device.Failures {
		return 0
	}
	rest := r.device.Rest
	for n := 0; n < r.again && rest < r.device.RestMax; n++ {
		rest *= 2
	}
	rest = min(rest, r.device.RestMax)
	r.again++
	r.now = &Quarantine{
		Until: now.Add(rest),
		Why:   fmt.Sprintf("child processes failed %d times within %v, the last time: %v", len(r.failures), r.device.Within, why),
	}
	// One more failure while it is tried again, and it rests again.
	r.failures = r.failures[1:]
	for i := range r.failures {
		r.failures[i] = failure{at: r.now.Until}
	}
	return rest
}

// excuse puts the last failures down to an input.
func (r *record) excuse(last int) {
	for i := max(0, len(r.failures)-last); i < len(r.failures); i++ {
		r.failures[i].blamed = true
	}
}

// worked notes that a request was answered: what inputs are to blame for is forgotten.
func (r *record) worked() {
	r.failures = slices.DeleteFunc(r.failures, func(f failure) bool { return f.blamed })
}

// err refuses a request during a quarantine.
func (r *record) err() error {
	return fmt.Errorf("%s is in quarantine until %s: %s", r.device.Name, r.now.Until.UTC().Format(time.TimeOnly+" MST"), r.now.Why)
}

// suspects reports whether the pool's device may be what an answer with an error is about.
func (p *Pool) suspects(err error) bool {
	said := (*Error)(nil)
	return p.cfg.Device != nil && errors.As(err, &said) && p.cfg.Device.Suspect(said.Class)
}

// fault is the failure that the death of a child at work is; nil: it is none, because the child was
// killed from outside, or ended by an error that is not the device's.
func (p *Pool) fault(death error, outside bool) error {
	said := (*Error)(nil)
	if outside || errors.As(death, &said) && !p.suspects(death) {
		return nil
	}
	return death
}

// failed notes how a child ended, nil if that is nobody's fault. It returns how long no other is
// to be started, and why.
func (p *Pool) failed(fault error) (rest time.Duration, why error) {
	if p.cfg.Device == nil || fault == nil {
		return 0, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if rest = p.record.failed(fault, time.Now()); rest == 0 {
		return 0, nil
	}
	why = p.record.err()
	p.refuse(why)
	return rest, why
}
