package subprocess

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Request is one piece of work.
type Request struct {
	// Name stands for the request in errors: a sample's id, a picture's size.
	Name string
	// Meta is small: numbers and options, at most 16 MiB.
	Meta []byte
	// Pixels are written one after the other into memory shared with the child.
	// They are read only until Do returns.
	Pixels [][]byte
	// Began, if set, is called by Do when a child begins with the request, each time one
	// does.
	Began func()
	// Once says that the request may cost one child, and not two: it can be made smaller.
	Once bool
	// Check, if set, returns what is wrong with an answer; nil: nothing. A child whose answer is
	// wrong is replaced, as if it had died of the request.
	Check func(body []byte) error
}

func (r Request) began() {
	if r.Began != nil {
		r.Began()
	}
}

// Response is the answer to a Request.
type Response struct {
	Body []byte
	// Waited is the time until a child was free, Ran the time it took to answer
	// (of the attempt that answered).
	Waited, Ran time.Duration
}

// Canary is a request with a known answer. A child gives it before it is handed out.
type Canary struct {
	Request Request
	// Check returns what is wrong with an answer; nil: nothing.
	Check func(body []byte) error
}

// Config is what a Pool is made from. The zero value of a field means its default.
type Config struct {
	// Kind is the name of the children's Kind.
	Kind string
	// Command starts a child; default: this program with "child <kind>".
	Command []string
	// Env is the complete environment of a child. It matters before exec:
	// OMP_THREAD_LIMIT set later has no effect. Default: empty.
	Env []string
	// Slots is the number of children; default: the number of CPUs.
	Slots int
	// Init is handed to Kind.New in the child.
	Init []byte
	// Canary, if set, is asked of every new child.
	Canary *Canary
	// MaxPixels bounds the bytes of pixels in one request; default 256 MiB.
	MaxPixels int
	// StartTimeout bounds the start of a child up to its canary; default 30 s.
	StartTimeout time.Duration
	// RequestTimeout bounds one attempt besides the caller's context, which may
	// only be shorter; default 60 s.
	RequestTimeout time.Duration
	// PingEvery is how often an idle child is asked for a sign of life; default 10 s.
	PingEvery time.Duration
	// Recycle replaces a child after so many requests; default 20,000. gosseract
	// leaks about 1 KB a call, so this bounds a child's growth at some 20 MB.
	Recycle int
	// BackoffMin and BackoffMax bound the pause before a child is replaced that
	// died before it answered anything; default 50 ms doubling up to 5 s.
	BackoffMin, BackoffMax time.Duration
	// Device, if set, is what the one child runs on. Its canary is asked in place of pings.
	Device *Device

	// Keeper says that what Command starts forks the child, and ends what the child leaves behind:
	// it is ended with SIGTERM, and with its process group by SIGKILL where it has not ended
	// keeperGrace later.
	Keeper bool
	// Started, if set, is handed what each new child answered to Init.
	Started func(body []byte)
	// Final, if set, reports whether a child that does not start with an error of this class will
	// never start: no further start is tried before Start fails.
	Final func(class string) bool
	// Memory bounds what Resident says of a child and all that it has started, in bytes: a child
	// beyond is killed. Resident is asked every 250 ms, with the process id and the bound; it may
	// stop counting below the bound. 0: no bound.
	Memory   int64
	Resident func(pid int, limit int64) int64
}

// startTries is how many starts of a slot must fail in a row before Start gives
// up, or before a running pool whose slots all fail refuses requests.
const startTries = 3

// attempts is how many children a request may cost that is not for Once.
const attempts = 2

func (r Request) attempts() int {
	if r.Once {
		return 1
	}
	return attempts
}

// WithDefaults fills what is not set.
func (c Config) WithDefaults() Config {
	c.Slots = cmp.Or(c.Slots, runtime.NumCPU())
	c.MaxPixels = cmp.Or(c.MaxPixels, 256<<20)
	c.Recycle = cmp.Or(c.Recycle, 20_000)
	c.StartTimeout = cmp.Or(c.StartTimeout, 30*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, time.Minute)
	c.PingEvery = cmp.Or(c.PingEvery, 10*time.Second)
	c.BackoffMin = cmp.Or(c.BackoffMin, 50*time.Millisecond)
	c.BackoffMax = cmp.Or(c.BackoffMax, 5*time.Second)
	if c.Device != nil {
		device := c.Device.withDefaults()
		c.Device = &device
	}
	return c
}

// Validate names everything that is wrong with a configuration whose defaults
// are filled.
func (c Config) Validate() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("child process: "+format, args...))
		}
	}
	bad(c.Kind == "", "no kind")
	bad(c.Slots < 1 || c.Slots > 1024, "%d slots, want 1 to 1024", c.Slots)
	bad(c.MaxPixels < 0, "max pixels of %d bytes is negative", c.MaxPixels)
	bad(c.Recycle < 1, "recycle after %d requests, want 1 or more", c.Recycle)
	bad(len(c.Init) > maxBody, "init of %d bytes, the limit is %d", len(c.Init), maxBody)
	bad(c.StartTimeout < 0 || c.RequestTimeout < 0 || c.PingEvery < 0, "a timeout is negative")
	bad(c.BackoffMin < 0 || c.BackoffMax < c.BackoffMin, "backoff from %v to %v", c.BackoffMin, c.BackoffMax)
	bad(c.Canary != nil && c.Canary.Check == nil, "a canary without a check")
	bad(c.Memory < 0 || c.Memory > 0 && c.Resident == nil, "a bound of %d bytes for the memory of a child, but no function that measures it", c.Memory)
	if d := c.Device; d != nil {
		bad(c.Slots != 1 || c.Canary == nil || d.Suspect == nil, "device %q with %d slots, want one, a canary and its suspects", d.Name, c.Slots)
		bad(d.Failures <= startTries, "quarantine after %d failures, want more than %d", d.Failures, startTries)
		bad(d.Within < 0 || d.Rest < 0 || d.RestMax < d.Rest, "quarantine from %v to %v after failures within %v", d.Rest, d.RestMax, d.Within)
	}
	return errors.Join(errs...)
}

// backoff is the pause after the nth failure in a row.
func (c Config) backoff(n int) time.Duration {
	d := c.BackoffMin
	for ; n > 1 && d < c.BackoffMax; n-- {
		d *= 2
	}
	return min(d, c.BackoffMax)
}

// admit refuses what is beyond a bound before it costs anything.
func (c Config) admit(req Request) error {
	n := 0
	for _, p := range req.Pixels {
		n += len(p)
	}
	if n > c.MaxPixels || len(req.Meta) > maxBody {
		return fmt.Errorf("%w: %q has %d bytes of pixels and %d of meta, the limits are %d and %d", ErrTooLarge, req.Name, n, len(req.Meta), c.MaxPixels, maxBody)
	}
	return nil
}

// Stats is a snapshot of a Pool. The counters only grow.
type Stats struct {
	Slots int `json:"slots"`
	// Alive counts the children that can work, Busy those that do.
	Alive int `json:"alive"`
	Busy  int `json:"busy"`
	// PIDs are the processes of the children that can work.
	PIDs     []int  `json:"pids,omitempty"`
	Requests uint64 `json:"requests"`
	// Restarts counts children started in place of another, for whatever reason;
	// Recycled those of them that were due.
	Restarts uint64 `json:"restarts"`
	Recycled uint64 `json:"recycled"`
	// Crashes counts children that died or answered garbage, Timeouts those killed
	// at a deadline.
	Crashes  uint64 `json:"crashes"`
	Timeouts uint64 `json:"timeouts"`
	// Quarantined counts the inputs remembered for having killed two children.
	Quarantined int `json:"quarantined"`
	// Quarantine is set while the pool's device is not used.
	Quarantine *Quarantine `json:"quarantine,omitempty"`
	// LastError is how the last child died or failed to start.
	LastError string `json:"last_error,omitempty"`
}

// sleep waits and reports whether it did so to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
