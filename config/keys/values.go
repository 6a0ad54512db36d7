package keys

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fill sets every field that is zero to the default of its key. Keys without a field are ignored,
// as in Validate.
func Fill(parts ...Described) {
	for _, s := range All(parts...) {
		for _, k := range s.Keys {
			if k.Field == nil {
				continue
			}
			if f := reflect.ValueOf(k.Field).Elem(); f.IsZero() {
				f.Set(reflect.ValueOf(k.Default))
			}
		}
	}
}

// Validate checks the values of a program. It returns an error for a number out of its bounds, for
// a word that is not a value of its choice, and for every finding of the checks of several keys.
// The minimum of a size or a duration is relaxed, because the value of a program always has its
// unit: negative values are errors, and 0 only if the minimum is above 0. Each error begins with
// the prefix, if it is not empty, and the key.
func Validate(prefix string, parts ...Described) error {
	var all []error
	if prefix != "" {
		prefix += ": "
	}
	for path, s := range All(parts...) {
		r := problems{prefix + path, &all}
		for _, k := range s.Keys {
			if k.Field == nil {
				continue
			}
			if why := k.problem(); why != "" {
				r.Fault(k.Name, "%s", why)
			}
		}
		for _, o := range s.Orders {
			if s.Exceeds(o) {
				r.Fault(o.Small, "want at most %s, which is %s, got %s", Format(s.Find(o.Large).Value()), o.Large, Format(s.Find(o.Small).Value()))
			}
		}
		for _, check := range s.Checks {
			check(r)
		}
	}
	return errors.Join(all...)
}

// All returns an iterator over the parts combined into one section, and the sections below it, with
// their paths, such as "dispatch.".
func All(parts ...Described) iter.Seq2[string, *Section] {
	var top Section
	for _, p := range parts {
		p.Keys(&top.Set)
	}
	return top.All
}

// All yields the section and all sections below it, each with its path relative to s.
func (s *Section) All(yield func(path string, s *Section) bool) { s.walk("", yield) }

func (s *Section) walk(path string, yield func(string, *Section) bool) bool {
	return yield(path, s) && !slices.ContainsFunc(s.Sections, func(b *Section) bool { return !b.walk(path+b.Name+".", yield) })
}

// problems is a Report of errors.
type problems struct {
	prefix string
	all    *[]error
}

// Fault implements Report.
func (p problems) Fault(key, format string, args ...any) {
	*p.all = append(*p.all, fmt.Errorf(p.prefix+key+": "+format, args...))
}

// Note implements Report.
func (problems) Note(string, string, ...any) {}

// Path implements Report.
func (problems) Path(key string) string { return key }

// Value returns the value of the field.
func (k *Key) Value() any { return reflect.ValueOf(k.Field).Elem().Interface() }

// problem says what is wrong with the value for a program, or "".
func (k *Key) problem() string {
	v := k.Value()
	if s, ok := v.(string); ok && k.Words != nil && !slices.Contains(k.Words, s) {
		return fmt.Sprintf("want one of %s, got %q", strings.Join(k.Words, ", "), s)
	}
	if m, ok := v.(map[string]float64); ok {
		for name, w := range m {
			if !(w > 0 && w <= math.MaxInt32) {
				return fmt.Sprintf("the weight of %q must be positive, got %v", name, w)
			}
		}
	}
	if k.Low == nil {
		return ""
	}
	low := amount(k.Low)
	switch v.(type) {
	case int64, time.Duration:
		low = min(low, 1)
	}
	if n := amount(v); !(n >= low && n <= amount(k.High)) {
		return "want " + k.Range() + ", got " + Format(v)
	}
	return ""
}

// Exceeds reports whether the values of o violate the order. It returns false if one of the keys is
// not in the set.
func (s *Set) Exceeds(o Order) bool {
	small, large := s.Find(o.Small), s.Find(o.Large)
	return small != nil && large != nil && amount(small.Value()) > amount(large.Value())
}

// amount makes numbers comparable.
func amount(v any) float64 {
	switch n := v.(type) {
	case int:
		return float64(n)
	case int64:
		return float64(n)
	case time.Duration:
		return float64(n)
	case float64:
		return n
	}
	return 0
}

// Range describes the values that a file may contain, or returns "" for any value.
func (k *Key) Range() string {
	switch {
	case k.Words != nil:
		return strings.Join(k.Words, ", ")
	case k.Default == false:
		return "true or false"
	case k.Low == nil:
		return ""
	}
	switch k.High {
	case int64(Largest), Longest, math.MaxInt32, math.MaxFloat64:
		return Format(k.Low) + " or more"
	}
	return Format(k.Low) + "…" + Format(k.High)
}

// Public reports whether other machines may reach a listening address. Every name except localhost
// counts as public, because its address is decided elsewhere.
func Public(address string) (bool, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("want an address and a port such as 127.0.0.1:8080, got %q", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false, fmt.Errorf("want a port of 0…65535, got %q", port)
	}
	if strings.EqualFold(host, "localhost") {
		return false, nil
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || !ip.Unmap().IsLoopback(), nil //nolint:nilerr // what is no address is a name
}
