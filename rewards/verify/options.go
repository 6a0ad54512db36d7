package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// duration is "30s", or a number of seconds.
type duration time.Duration

// UnmarshalJSON reads a duration.
func (d *duration) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil // the default stays
	}
	text := strings.Trim(string(raw), `"`)
	parsed, err := time.ParseDuration(text)
	if err != nil {
		seconds, numErr := strconv.ParseFloat(text, 64)
		if numErr != nil || math.IsNaN(seconds) || math.Abs(seconds) > rewards.MaxTermTimeout.Seconds() {
			return fmt.Errorf("want a duration such as 30s or a number of seconds, got %s", clip(string(raw), 40))
		}
		parsed = time.Duration(seconds * float64(time.Second))
	}
	*d = duration(parsed)
	return nil
}

// decodeOptions reads the options one by one, so that every unknown one and every one
// of a wrong type is named.
func decodeOptions(raw json.RawMessage, into any, known []rewards.Option) error {
	var given map[string]json.RawMessage
	if err := rewards.DecodeOptions(raw, &given); err != nil {
		return err //nolint:wrapcheck // says that it is about the options
	}
	var all []string
	for _, k := range known {
		all = append(all, k.Name)
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(all, name) {
			faults = append(faults, fmt.Errorf("%s: there is no such option; want one of %s", name, strings.Join(all, ", ")))
			continue
		}
		one, err := json.Marshal(map[string]json.RawMessage{name: given[name]})
		if err == nil {
			err = json.Unmarshal(one, into)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(faults...)
}

// faults collects what is wrong, each under the name of its option.
type faults struct{ list []error }

func (f *faults) add(wrong bool, name, format string, args ...any) {
	if wrong {
		f.list = append(f.list, fmt.Errorf(name+": "+format, args...))
	}
}

func (f *faults) check(name string, err error) {
	if err != nil {
		f.list = append(f.list, fmt.Errorf("%s: %w", name, err))
	}
}

func (f *faults) between(name string, n, least, most int) {
	f.add(n < least || n > most, name, "is %d, want %d to %d", n, least, most)
}

func (f *faults) time(name string, d duration) {
	f.add(d <= 0 || time.Duration(d) > rewards.MaxTermTimeout, name, "is %v, want more than 0 and up to %v", time.Duration(d), rewards.MaxTermTimeout)
}

func (f *faults) err() error { return errors.Join(f.list...) }

// Addresses are where a verifier's endpoints are and how they are asked.
type Addresses struct {
	URL            string            `json:"url"`
	URLs           []string          `json:"urls"`
	KeyFile        string            `json:"key_file"`
	Headers        map[string]string `json:"headers"`
	Attempts       int               `json:"attempts"`
	AttemptTimeout duration          `json:"attempt_timeout"`
	Concurrency    int               `json:"concurrency"`
	RPM            float64           `json:"rpm"`
}

func addressOptions() []rewards.Option {
	return []rewards.Option{
		{Name: "url", Type: "string", Default: "required", Doc: "the service's address"},
		{Name: "urls", Type: "list", Default: "none", Doc: "further addresses that do equal work; each request goes to one"},
		{Name: "key_file", Type: "string", Default: "none", Doc: "file with the bearer token"},
		{Name: "headers", Type: "map", Default: "none", Doc: "further request headers; secrets belong into key_file"},
		{Name: "attempts", Type: "int", Default: "the group's", Doc: "requests of one call, the first included"},
		{Name: "attempt_timeout", Type: "duration", Default: "the group's", Doc: "the longest one request may take"},
		{Name: "concurrency", Type: "int", Default: "the group's", Doc: "requests at a time over all that use these addresses"},
		{Name: "rpm", Type: "number", Default: "no limit", Doc: "requests per minute, likewise"},
	}
}

// Bounds of addresses that have no natural one.
const (
	maxAttempts    = 20
	maxURLs        = 256
	maxConcurrency = 1 << 16
)

// all are the addresses, url and urls together.
func (a *Addresses) all() []string {
	if a.URL == "" {
		return a.URLs
	}
	return append([]string{a.URL}, a.URLs...)
}

func (a *Addresses) validate(f *faults) {
	f.add(a.URL == "" && len(a.URLs) == 0, "url", "is missing")
	f.add(len(a.URLs) > maxURLs, "urls", "are %d, at most %d", len(a.URLs), maxURLs)
	if a.URL != "" {
		f.check("url", a.checkURL(a.URL))
	}
	for i, u := range a.URLs {
		name := fmt.Sprintf("urls[%d]", i)
		f.check(name, a.checkURL(u))
		f.add(u == a.URL || slices.Contains(a.URLs[:i], u), name, "is there twice")
	}
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		f.check("headers", checkHeader(name, a.Headers[name]))
	}
	f.between("attempts", a.Attempts, 0, maxAttempts)
	f.add(a.AttemptTimeout < 0 || time.Duration(a.AttemptTimeout) > rewards.MaxTermTimeout,
		"attempt_timeout", "is %v, want up to %v", time.Duration(a.AttemptTimeout), rewards.MaxTermTimeout)
	f.between("concurrency", a.Concurrency, 0, maxConcurrency)
	f.add(math.IsNaN(a.RPM) || math.IsInf(a.RPM, 0) || a.RPM < 0, "rpm", "is %v, want a positive number", a.RPM)
}

// checkURL says what is wrong with an address. It does not repeat it: it may hold
// a secret.
func (a *Addresses) checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is no URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("names no host")
	case u.Fragment != "":
		return errors.New("has a part after #, which no server sees")
	case u.User != nil && a.KeyFile != "":
		return errors.New("names a user beside key_file; only one can be sent")
	}
	return nil
}

// checkHeader says what is wrong with a header, without its value.
func checkHeader(name, value string) error {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	switch canonical := http.CanonicalHeaderKey(name); {
	case name == "" || strings.Trim(name, token) != "":
		return fmt.Errorf("%q is no name of a header", clip(name, 40))
	case canonical == "Authorization":
		return errors.New("Authorization is made from key_file") //nolint:staticcheck // the header's own name
	case slices.Contains([]string{"Content-Type", "Content-Length", "Content-Encoding", "Host", "Connection", "Transfer-Encoding"}, canonical):
		return fmt.Errorf("%s is the request's own", canonical)
	case strings.ContainsAny(value, "\r\n\x00"):
		return fmt.Errorf("the value of %s holds a line break", canonical)
	}
	return nil
}

// header is what every request of the addresses carries.
func (a *Addresses) header() http.Header {
	h := http.Header{}
	for name, value := range a.Headers {
		h.Set(name, value)
	}
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json")
	return h
}
