package subprocess

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Request is one request to a child process.
type Request struct {
	// Name identifies the request in errors, such as a sample's id or a picture's size. Names
	// longer than 256 bytes are shortened.
	Name string
	// Meta contains small data such as numbers and options, at most 16 MiB.
	Meta []byte
	// Pixels are copied one after another into memory that is shared with the child. They are read
	// only until Do returns.
	Pixels [][]byte
	// Began, if set, is called by Do when a child begins with the request, once for each attempt.
	Began func()
	// Once limits the request to one attempt instead of two, because the caller can make the
	// request smaller.
	Once bool
	// Check, if set, returns an error for a wrong answer. A child with a wrong answer is replaced,
	// as if the request had crashed it.
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
	// Waited is the time until a child was free. Ran is the time that the successful attempt took.
	Waited, Ran time.Duration
}

// Canary is a request with a known answer. A new child must answer it before it gets other
// requests.
type Canary struct {
	Request Request
	// Check returns an error for a wrong answer.
	Check func(body []byte) error
}

// Config configures a Pool. A field with the zero value gets its default.
type Config struct {
	// Kind is the Name of the Kind of the children.
	Kind string
	// Command is the command that starts a child. The default is this program with "child <kind>".
	Command []string
	// Env is the complete environment of a child. It must be set before exec, because for example
	// OMP_THREAD_LIMIT has no effect later. The default is an empty environment.
	Env []string
	// Slots is the number of children. The default is the number of CPUs.
	Slots int
	// Init is the argument of Kind.New in the child.
	Init []byte
	// Canary, if set, is sent to every new child.
	Canary *Canary
	// MaxPixels is the maximum number of bytes of pixels in one request. The default is 256 MiB.
	MaxPixels int
	// StartTimeout is the time limit for the start of a child including its canary. The default is
	// 30 s.
	StartTimeout time.Duration
	// RequestTimeout is the time limit for one attempt; the caller's context may only shorten it.
	// The default is 60 s.
	RequestTimeout time.Duration
	// PingEvery is the interval at which an idle child is pinged. The default is 10 s.
	PingEvery time.Duration
	// Recycle is the number of requests after which a child is replaced. The default is 20,000.
	// gosseract leaks about 1 KB per call, so that a child grows by about 20 MB at most.
	Recycle int
	// BackoffMin and BackoffMax limit the pause before the replacement of a child that crashed before
	// it answered a request. The pause doubles from 50 ms to 5 s by default.
	BackoffMin, BackoffMax time.Duration
	// Device, if set, is the device that the only child uses. The child then answers the canary
	// instead of pings.
	Device *Device

	// Keeper means that Command starts a process that forks the child and ends what the child
	// leaves behind. That process is ended with SIGTERM, and its process group with SIGKILL if the
	// process is still running keeperGrace later.
	Keeper bool
	// Started, if set, is called with each new child's answer to Init.
	Started func(body []byte)
	// Final, if set, reports whether a child whose start fails with an error of this class can
	// never start. Start then fails without further attempts.
	Final func(class string) bool
	// Memory is the maximum number of bytes that Resident may return for a child and its
	// descendants; a child with more is killed. Resident is called every 250 ms with the process id
	// and the limit, and may stop counting at the limit. 0: no limit.
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

// WithDefaults returns a copy of c in which the defaults are set.
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

// Validate returns an error that lists all invalid fields of a configuration whose defaults are
// set.
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

// Stats is a snapshot of the statistics of a Pool. The counters only increase.
type Stats struct {
	Slots int `json:"slots"`
	// Alive is the number of children that are ready, Busy the number of children that have a
	// request.
	Alive int `json:"alive"`
	Busy  int `json:"busy"`
	// PIDs are the process ids of the children that are ready.
	PIDs     []int  `json:"pids,omitempty"`
	Requests uint64 `json:"requests"`
	// Restarts is the number of children that replaced another child for any reason. Recycled is
	// the number of children replaced after Config.Recycle requests.
	Restarts uint64 `json:"restarts"`
	Recycled uint64 `json:"recycled"`
	// Crashes is the number of children that crashed or sent an invalid answer. Timeouts is the number
	// of children that were killed at a deadline.
	Crashes  uint64 `json:"crashes"`
	Timeouts uint64 `json:"timeouts"`
	// Quarantined is the number of remembered inputs that crashed two children.
	Quarantined int `json:"quarantined"`
	// Quarantine is set while the pool's device is not used.
	Quarantine *Quarantine `json:"quarantine,omitempty"`
	// LastError is the error of the last child that crashed or failed to start.
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
