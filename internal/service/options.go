package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Duration is an option: "30s", or a number of seconds.
type Duration time.Duration

// UnmarshalJSON reads a duration.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil // the default stays
	}
	text := strings.Trim(string(raw), `"`)
	parsed, err := time.ParseDuration(text)
	if err != nil {
		seconds, numErr := strconv.ParseFloat(text, 64)
		if numErr != nil || math.IsNaN(seconds) || math.Abs(seconds) > rewards.MaxComponentTimeout.Seconds() {
			return fmt.Errorf("want a duration such as 30s or a number of seconds, got %s", Clip(string(raw), 40))
		}
		parsed = time.Duration(seconds * float64(time.Second))
	}
	*d = Duration(parsed)
	return nil
}

// Decode reads the options one by one, so that every wrong one is named:
// those that refuses says something against, as that they are unknown, and those of a
// wrong type. The others are there all the same.
func Decode(raw json.RawMessage, into any, refuses func(name string) error) error {
	var given map[string]json.RawMessage
	if err := rewards.DecodeOptions(raw, &given); err != nil {
		return err
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if err := refuses(name); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
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

// Faults collects what is wrong, each under the name of its option.
type Faults struct{ list []error }

// Add notes a fault of an option where wrong holds.
func (f *Faults) Add(wrong bool, name, format string, args ...any) {
	if wrong {
		f.list = append(f.list, fmt.Errorf(name+": "+format, args...))
	}
}

// Check notes err, if it is one.
func (f *Faults) Check(name string, err error) {
	if err != nil {
		f.list = append(f.list, fmt.Errorf("%s: %w", name, err))
	}
}

// OneOf checks a word.
func (f *Faults) OneOf(name, got string, want ...string) {
	f.Add(!slices.Contains(want, got), name, "%q is unknown, want one of %s", got, strings.Join(want, ", "))
}

// Between checks a whole number.
func (f *Faults) Between(name string, n, least, most int) {
	f.Add(n < least || n > most, name, "is %d, want %d to %d", n, least, most)
}

// Time checks a span of time, which must be one and no longer than a component's.
func (f *Faults) Time(name string, d Duration) {
	f.Add(d <= 0 || time.Duration(d) > rewards.MaxComponentTimeout, name, "is %v, want more than 0 and up to %v", time.Duration(d), rewards.MaxComponentTimeout)
}

// Err is all faults, nil without any.
func (f *Faults) Err() error { return errors.Join(f.list...) }

// Finite reports whether a number is one.
func Finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
