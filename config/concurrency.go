package config

import (
	"encoding/json"
	"strconv"

	"github.com/rewardloop/rewardloop/rewards"
)

// mostConcurrency is the largest concurrency that may be written, at a time.
const mostConcurrency = 65536

// auto stands for a concurrency that follows from what executes the calls.
const auto = "auto"

// concurrencyDoc is the comment beside a profile's concurrency.
const concurrencyDoc = "Capacity: maximum number of samples of the reward that this process scores at a time; the concurrency of each component applies as well. auto: the largest concurrency of the components."

// concurrency reads one; 0 is auto.
func (r *reader) concurrency(o *object) int {
	v, ok := o.take("concurrency")
	if !ok || v.null() {
		return 0
	}
	want := concurrencyForm()
	s, ok := r.scalar(v, want)
	if !ok || s == auto {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > mostConcurrency {
		r.fault(v, "want %s, got %q", want, shorten(s))
		return 0
	}
	return n
}

// showConcurrency is how one is written.
func showConcurrency(n int) string {
	if n == 0 {
		return auto
	}
	return strconv.Itoa(n)
}

// concurrent gives a component its concurrency. A scorer that has an option of that name, as
// one in Python and one on another server have, gets it, and follows it; of any other
// the component's is taken for what the scorer says itself.
func (t *ComponentConfig) concurrent(takes bool) (component int) {
	if t.Concurrency == 0 || t.Scorer == PythonScorer {
		return 0 // scorerOptions hands it to Python
	}
	if !takes {
		return t.Concurrency
	}
	t.Options = withDefaults(t.Options, map[string]json.RawMessage{"concurrency": encode(t.Concurrency)})
	return 0
}

// takesOption reports whether the registry's scorer has an option.
func takesOption(spec rewards.Spec, name string) bool {
	for _, o := range spec.Options {
		if o.Name == name {
			return true
		}
	}
	return false
}
