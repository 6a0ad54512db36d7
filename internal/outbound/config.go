package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
)

// UpstreamConfig configures an Upstream. A field with the zero value gets its default.
type UpstreamConfig struct {
	// Name is the name of the upstream in errors and metrics. The default is the host of the first
	// URL.
	Name string
	// URLs are the URLs of equivalent endpoints. A URL may contain a user and a password, which are
	// sent as basic authentication, and a query.
	URLs []string

	// Keys documents these fields. RPM is a token bucket of size RPM that refills continuously, so
	// that a burst of RPM requests may come first; the same applies to TPM. Timeout leaves room for
	// another attempt only if the caller waits longer.
	KeyFile     string
	Concurrency int
	RPM, TPM    float64
	Timeout     time.Duration
	Attempts    int

	// MaxWaiting is the maximum number of calls that wait for one of the Concurrency requests. The
	// default is 64 for each of them, at least 16,384.
	MaxWaiting int
	// IdleTimeout is the time after which an unused connection is closed. The default is 4 s. It
	// must be shorter than the timeout of the endpoints (uvicorn: 5 s); otherwise a request may
	// meet a connection that the endpoint is closing, which is a failed attempt. If the endpoints
	// keep connections longer, a longer IdleTimeout saves opening many connections for a burst of
	// calls once a step. An idle connection costs about 15 KB.
	IdleTimeout time.Duration
	// BackoffMin and BackoffMax limit the pause before a retry: a random time of up to BackoffMin,
	// then of up to twice as much, and so on up to BackoffMax. The defaults are 0.5 s and 30 s.
	BackoffMin, BackoffMax time.Duration
	// RetryAfterMax is the maximum wait that an endpoint can request with Retry-After. The default
	// is 30 s.
	RetryAfterMax time.Duration
	// BreakAfter is the number of consecutive failures after which an endpoint is out of service.
	// The default is 5. Repeated answers 500 to the same body count as one failure.
	BreakAfter int
	// BreakMin and BreakMax limit the pause before an endpoint that is out of service is probed.
	// The pause doubles with each failed probe. Both default to 1 s: a probe is one request of all
	// processes together, and the calls that wait for the endpoint wait for the probe.
	BreakMin, BreakMax time.Duration
	// HealthPath is a path, appended to an endpoint's URL, at which the endpoint answers GET with
	// 2xx at once if it is in service. The probe of an endpoint that refused connections requests
	// this path first. Empty: there is no such path, and a probe is a call.
	HealthPath string
	// TrustFor is the time for which an endpoint gets no requests because of the report of one
	// other process. The default is 60 s, or twice BreakMax if BreakMax is set.
	TrustFor time.Duration
}

// Keys implements keys.Described for the settings of requests to the servers of an engine.
func (c *UpstreamConfig) Keys(k *keys.Set) {
	k.Text(&c.KeyFile, "key_file", "", "File with the key that is sent as Authorization: Bearer. The file is read again when a server answers 401.")
	k.Int(&c.Concurrency, "concurrency", 256, "Maximum number of requests in flight, over all servers of the engine and all processes together.").Between(1, 65536)
	k.Float(&c.RPM, "requests_per_minute", 0, "Maximum number of requests per minute, retries included. 0: no limit.")
	k.Float(&c.TPM, "tokens_per_minute", 0, "Maximum number of prompt and completion tokens per minute. A request in flight counts with its estimated prompt tokens plus max_tokens. 0: no limit.")
	k.Duration(&c.Timeout, "timeout", 2*time.Minute, "Time limit for one request. The component's timeout limits all requests of a sample together.").Between(time.Millisecond, 24*time.Hour)
	k.Int(&c.Attempts, "attempts", 3, "Maximum number of attempts for a request that fails with a transient error, the first attempt included.").Between(1, 20)
}

// WithDefaults returns a copy of c in which the defaults are set.
func (c UpstreamConfig) WithDefaults() UpstreamConfig {
	if c.Name == "" && len(c.URLs) > 0 {
		c.Name = "(unnamed)"
		if u, err := url.Parse(c.URLs[0]); err == nil && u.Host != "" {
			c.Name = u.Host
		}
	}
	keys.Fill(&c)
	def(&c.MaxWaiting, min(max(16_384, 64*c.Concurrency), 1<<20))
	def(&c.IdleTimeout, 4*time.Second)
	def(&c.BackoffMin, 500*time.Millisecond)
	def(&c.BackoffMax, max(30*time.Second, c.BackoffMin))
	def(&c.RetryAfterMax, 30*time.Second)
	def(&c.BreakAfter, 5)
	def(&c.BreakMin, time.Second)
	if c.BreakMax == 0 {
		def(&c.TrustFor, max(time.Minute, trusted*c.BreakMin))
	}
	def(&c.BreakMax, c.BreakMin)
	def(&c.TrustFor, trusted*c.BreakMax)
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns an error that lists all invalid fields of a configuration whose defaults are
// set. The error quotes no URL, because a URL may contain a password.
func (c UpstreamConfig) Validate() error {
	errs := []error{keys.Validate("outbound: upstream "+c.Name, &c)}
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("outbound: upstream %s: "+format, append([]any{c.Name}, args...)...))
		}
	}
	bad(len(c.URLs) == 0, "no URL")
	bad(len(c.URLs) > 256, "%d URLs, at most 256", len(c.URLs))
	seen := map[string]int{}
	user := false
	for i, raw := range c.URLs {
		u, err := parseURL(raw)
		bad(err != nil, "URL %d: %w", i+1, err)
		if err != nil {
			continue
		}
		user = user || u.User != nil
		first, twice := seen[sameURL(u)]
		bad(twice, "URL %d is URL %d again", i+1, first)
		seen[sameURL(u)] = i + 1
	}
	bad(c.KeyFile != "" && user, "a key file and a user in a URL; only one can be sent")
	bad(c.MaxWaiting < 1 || c.MaxWaiting > 1<<20, "max waiting of %d, want 1 to 1048576", c.MaxWaiting)
	bad(c.IdleTimeout < 0 || c.IdleTimeout > time.Hour, "idle timeout of %v, want up to 1h", c.IdleTimeout)
	// Longer pauses would only overflow the sums that are made of them.
	bad(c.BackoffMin < 0 || c.BackoffMax < c.BackoffMin || c.BackoffMax > 24*time.Hour, "backoff from %v to %v, want 0 to 24h, the shorter first", c.BackoffMin, c.BackoffMax)
	bad(c.RetryAfterMax < 0 || c.RetryAfterMax > 24*time.Hour, "retry-after of at most %v, want up to 24h", c.RetryAfterMax)
	bad(c.BreakAfter < 1, "break after %d failures, want 1 or more", c.BreakAfter)
	bad(c.BreakMin < 0 || c.BreakMax < c.BreakMin || c.BreakMax > 24*time.Hour, "break from %v to %v, want 0 to 24h, the shorter first", c.BreakMin, c.BreakMax)
	return errors.Join(errs...)
}

// rates says the rate limits there are.
func (c UpstreamConfig) rates() string {
	var all []string
	if c.RPM > 0 {
		all = append(all, strconv.FormatFloat(c.RPM, 'f', -1, 64)+" requests a minute")
	}
	if c.TPM > 0 {
		all = append(all, strconv.FormatFloat(c.TPM, 'f', -1, 64)+" tokens a minute")
	}
	return strings.Join(all, ", ")
}

// identity is equal for upstreams that share their limits.
func (c UpstreamConfig) identity() string {
	all := make([]string, 0, len(c.URLs)+1)
	for _, raw := range c.URLs {
		if u, err := url.Parse(raw); err == nil {
			all = append(all, sameURL(u))
		}
	}
	slices.Sort(all)
	if c.KeyFile != "" {
		all = append(all, filepath.Clean(c.KeyFile))
	}
	return strings.Join(all, "\n")
}

// sameURL is a text that is equal for URLs that mean the same. It holds secrets.
func sameURL(u *url.URL) string {
	c := *u
	c.Host = strings.ToLower(c.Host)
	c.Path = strings.TrimSuffix(c.Path, "/")
	c.RawPath = strings.TrimSuffix(c.RawPath, "/")
	return c.String()
}

// differs says what keeps two configurations from being one upstream. The name and the
// health path may differ: the first one's are used.
func (c UpstreamConfig) differs(other UpstreamConfig) error {
	keyOf := map[string]string{"Concurrency": "concurrency", "RPM": "requests_per_minute", "TPM": "tokens_per_minute", "Timeout": "timeout", "Attempts": "attempts"}
	a, b := reflect.ValueOf(c), reflect.ValueOf(other)
	var what []string
	for i := range a.NumField() {
		switch name := a.Type().Field(i).Name; name {
		case "Name", "URLs", "KeyFile", "HealthPath":
		default:
			if x, y := a.Field(i).Interface(), b.Field(i).Interface(); x != y {
				what = append(what, fmt.Sprintf("%s (%v there, %v here)", cmp.Or(keyOf[name], name), x, y))
			}
		}
	}
	if len(what) == 0 {
		return nil
	}
	return fmt.Errorf("outbound: upstream %s has the endpoints and key file of upstream %s and must share its limits: make %s equal",
		other.Name, c.Name, strings.Join(what, ", "))
}
