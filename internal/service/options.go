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

// Duration is a duration in an option: "30s", or a number of seconds.
type Duration time.Duration

// UnmarshalJSON parses a duration. null leaves the default unchanged.
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

// Decode decodes the options one by one into the value into points to, so that the error lists all
// wrong options: those for which refuses returns an error, such as unknown options, and those of a
// wrong type. The other options are set even if there is an error.
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

// Faults collects errors of options, each with the name of its option.
type Faults struct{ list []error }

// Add adds an error for an option if wrong is true.
func (f *Faults) Add(wrong bool, name, format string, args ...any) {
	if wrong {
		f.list = append(f.list, fmt.Errorf(name+": "+format, args...))
	}
}

// Check adds err, if it is not nil.
func (f *Faults) Check(name string, err error) {
	if err != nil {
		f.list = append(f.list, fmt.Errorf("%s: %w", name, err))
	}
}

// OneOf adds an error if got is not one of want.
func (f *Faults) OneOf(name, got string, want ...string) {
	f.Add(!slices.Contains(want, got), name, "%q is unknown, want one of %s", got, strings.Join(want, ", "))
}

// Between adds an error if n is not in least to most.
func (f *Faults) Between(name string, n, least, most int) {
	f.Add(n < least || n > most, name, "is %d, want %d to %d", n, least, most)
}

// Time adds an error if d is not positive or is longer than the maximum timeout of a component.
func (f *Faults) Time(name string, d Duration) {
	f.Add(d <= 0 || time.Duration(d) > rewards.MaxComponentTimeout, name, "is %v, want more than 0 and up to %v", time.Duration(d), rewards.MaxComponentTimeout)
}

// Err returns all errors, or nil if there are none.
func (f *Faults) Err() error { return errors.Join(f.list...) }

// Finite reports whether f is neither NaN nor an infinity.
func Finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
