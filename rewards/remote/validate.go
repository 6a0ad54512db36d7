package remote

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Bounds of options that have no natural one.
const (
	maxBatch    = 1024
	maxAttempts = 20
	maxURLs     = 256
	maxExtras   = 64
	maxSource   = 64
)

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

// oneOf checks a word.
func (f *faults) oneOf(name, got string, want ...string) {
	f.add(!slices.Contains(want, got), name, "%q is unknown, want one of %s", got, strings.Join(want, ", "))
}

func (f *faults) err() error { return errors.Join(f.list...) }

// validate names everything that is wrong with options over their defaults.
// Options that the protocol does not take have their defaults, which are right.
func (o *Options) validate() error {
	var f faults
	f.oneOf("protocol", o.Protocol, protocols()...)
	o.Addresses.validate(&f)
	f.add(len(o.all()) > 1 && o.Protocol == cosmos, "urls", "cosmos keeps a result at the server that was asked; give one url")
	f.add(!finite(o.Scale) || o.Scale == 0, "score_scale", "is %v, want a finite number but 0", o.Scale)
	f.add(!finite(o.Bias), "score_bias", "is %v, want a finite number", o.Bias)
	f.add(o.Batch < 1 || o.Batch > maxBatch, "batch", "is %d, want 1 to %d", o.Batch, maxBatch)
	f.add(o.BatchWait < 0 || time.Duration(o.BatchWait) > time.Minute, "batch_wait", "is %v, want 0 to 1m", time.Duration(o.BatchWait))
	f.add(o.BatchWait > 0 && o.Protocol == deepgen && o.Metadata != "", "metadata", "one request has one object, so that it cannot go with batch_wait; leave one of them out")
	o.validateExtras(&f)
	o.validateInput(&f)
	o.validateProtocol(&f)
	return f.err()
}

func (o *Options) validateInput(f *faults) {
	_, err := parseSource(o.Prompt)
	f.check("prompt", err)
	if o.Metadata != "" {
		_, err := parseSource(o.Metadata)
		f.check("metadata", err)
	}
	f.oneOf("image_format", o.ImageFormat, "jpeg", "png")
	f.add(o.Protocol == deqa && o.ImageFormat == "png", "image_format", "DeQA's server refuses PNG")
	f.add(o.Quality < 1 || o.Quality > 100, "quality", "is %d, want 1 to 100", o.Quality)
	words := []string{"refuse", "first_frame"}
	if o.Protocol == flowFactory {
		words = append(words, "frames")
	}
	f.oneOf("video", o.Video, words...)
	f.add(o.SourceImage < 0 || o.SourceImage > maxSource, "source_image", "is %d, want 1 to %d; 0 is the result itself", o.SourceImage, maxSource)
}

func (o *Options) validateProtocol(f *faults) {
	f.oneOf("geneval_value", o.GenEvalValue, genEvalLists()...)
	f.add(o.OnlyStrict && o.GenEvalValue == "rewards", "geneval_value", "with only_strict the server does not work rewards out; want scores or strict_rewards")
	f.add(!(o.NoiseLevel >= 0 && o.NoiseLevel <= 1), "noise_level", "is %v, want 0 to 1", o.NoiseLevel)
	f.oneOf("sub_metric_reduce", o.Reduce, "first", "mean", "max")
	f.add(o.Reward == "" && (o.Protocol == uniRL || o.Protocol == cosmos), "reward", "is missing: give the service's name of the reward")
	if o.Protocol == generic {
		f.add(len(o.Request) == 0, "request", "is missing: give the request as an object")
		if len(o.Request) > 0 {
			_, err := parseTemplate(o.Request)
			f.check("request", err)
		}
		_, err := parsePath(o.ScorePath)
		f.check("score_path", err)
	}
}

func (o *Options) validateExtras(f *faults) {
	f.add(len(o.Extras) > maxExtras, "extras", "are %d, at most %d", len(o.Extras), maxExtras)
	seen := map[string]bool{}
	for _, field := range o.fixedFields() {
		seen[field.Name] = true
	}
	for i, e := range o.Extras {
		name := fmt.Sprintf("extras[%d]", i)
		f.add(e.Name == "", name, "has no name")
		f.add(seen[e.Name] && e.Name != "", name, "%q is there already", e.Name)
		f.add(!slices.Contains([]rewards.FieldKind{"", rewards.Number, rewards.Bool, rewards.String}, e.Kind), name, "kind %q is unknown, want number, bool or string", e.Kind)
		_, err := parsePath(e.Path)
		f.check(name+".path", err)
		seen[e.Name] = true
	}
}

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
	seen := map[string]bool{}
	for i, u := range a.all() {
		name := fmt.Sprintf("urls[%d]", i-min(len(a.URL), 1))
		if a.URL != "" && i == 0 {
			name = "url"
		}
		f.check(name, checkURL(u))
		f.add(seen[u], name, "is there twice")
		seen[u] = true
	}
	for name, value := range a.Headers {
		f.check("headers", checkHeader(name, value))
	}
	for i, u := range a.all() {
		parsed, err := url.Parse(u)
		f.add(err == nil && parsed.User != nil && a.KeyFile != "", "key_file", "stands beside the user in address %d; only one can be sent", i+1)
	}
	f.add(a.Attempts < 0 || a.Attempts > maxAttempts, "attempts", "is %d, want 1 to %d", a.Attempts, maxAttempts)
	f.add(a.AttemptTimeout < 0 || time.Duration(a.AttemptTimeout) > maxWait, "attempt_timeout", "is %v, want up to %v", time.Duration(a.AttemptTimeout), maxWait)
	f.add(a.Concurrency < 0 || a.Concurrency > 1<<16, "concurrency", "is %d, want 1 to %d", a.Concurrency, 1<<16)
	f.add(!finite(a.RPM) || a.RPM < 0, "rpm", "is %v, want a positive number", a.RPM)
}

// checkURL says what is wrong with an address. It does not repeat it: it may hold
// a secret.
func checkURL(text string) error {
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
	}
	return nil
}

// checkHeader says what is wrong with a header, without its value.
func checkHeader(name, value string) error {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	switch canonical := http.CanonicalHeaderKey(name); {
	case name == "" || strings.Trim(name, token) != "":
		return fmt.Errorf("%q is no name of a header", name)
	case canonical == "Authorization":
		return errors.New("Authorization is made from key_file") //nolint:staticcheck // the header's own name
	case slices.Contains([]string{"Content-Type", "Content-Length", "Content-Encoding", "Host", "Connection", "Transfer-Encoding"}, canonical):
		return fmt.Errorf("%s is the protocol's own", canonical)
	case strings.ContainsAny(value, "\r\n\x00"):
		return fmt.Errorf("the value of %s holds a line break", canonical)
	}
	return nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// header is what every request of the addresses carries.
func (a *Addresses) header(contentType string) http.Header {
	h := http.Header{}
	for name, value := range a.Headers {
		h.Set(name, value)
	}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	return h
}
