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

// Fill gives every field that is zero the default of its key. Keys without a field are left out, as
// in Validate.
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

// Validate returns what no program may set either: a number out of its bounds, but a size or a
// duration only where it is negative, or 0 where its minimum is more, because a program's have
// their unit; a word that is not among those of a choice; and what the checks of several keys
// find. Each error begins with prefix, if it is not empty, and the key.
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

// All are the parts as one section, and the sections below it with their paths,
// "dispatch.".
func All(parts ...Described) iter.Seq2[string, *Section] {
	var top Section
	for _, p := range parts {
		p.Keys(&top.Set)
	}
	return top.All
}

// All yields the section and those below it, each with its path relative to this one.
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

// Value is what the field holds.
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

// Exceeds reports whether the values of an order of the set are the wrong way round. An order
// of which a part is not in the set holds.
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

// Range says in words which values a file may give; "": any.
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

// Public reports whether other machines may reach an address at which a process listens. A
// name that is not localhost counts as public: what it means is another machine's choice.
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
