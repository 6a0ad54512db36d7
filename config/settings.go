package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/redact"
)

// This file reads, shows and checks what packages say of their keys (config/keys).

// decodeSections reads one level of sections from the mapping that holds it.
func (r *reader) decodeSections(o *object, sections []*keys.Section) {
	for _, s := range sections {
		v, ok := o.take(s.Name)
		if !ok || v.null() {
			continue
		}
		inner := r.mapping(v)
		for _, k := range s.Keys {
			if v, ok := inner.take(k.Name); ok {
				r.decode(v, k)
			}
		}
		r.decodeSections(inner, s.Sections)
		inner.refuseRest(s.Names())
	}
}

// decode reads the value of a key into its field, or leaves the field as it is and records what
// is wrong.
func (r *reader) decode(v value, k *keys.Key) {
	switch to := k.Field.(type) {
	case *int:
		put(to)(r.integer(v, k.Low.(int), k.High.(int)))
	case *int64:
		put(to)(r.size(v, k.Low.(int64), k.High.(int64)))
	case *float64:
		put(to)(r.between(v, k.Low.(float64), k.High.(float64)))
	case *time.Duration:
		put(to)(r.duration(v, k.Low.(time.Duration), k.High.(time.Duration)))
	case *bool:
		put(to)(r.boolean(v))
	case *string:
		switch advice := r.retired(v, k); {
		case advice != "":
			r.fault(v, "%s", advice)
		case k.Words != nil:
			put(to)(r.choice(v, k.Words))
		case v.null():
			*to = ""
		default:
			put(to)(r.text(v))
		}
	case *[]string:
		*to = nil
		for _, item := range r.list(v) {
			if s, ok := r.text(item); ok {
				*to = append(*to, s)
			}
		}
	case *map[string]float64:
		*to = r.weights(v)
	}
}

// decodeKeys reads those keys of a set that have a field; null leaves it as it is.
func (r *reader) decodeKeys(o *object, s *keys.Set) {
	for _, k := range s.Keys {
		if k.Field == nil {
			continue
		}
		if v, ok := o.take(k.Name); ok && !v.null() {
			r.decode(v, k)
		}
	}
}

// put returns what sets a field to a value that could be read.
func put[T any](to *T) func(v T, ok bool) {
	return func(v T, ok bool) {
		if ok {
			*to = v
		}
	}
}

// retired is what to write instead of a word that was a value in the past; "" for any other.
func (r *reader) retired(v value, k *keys.Key) string {
	if v.null() {
		return ""
	}
	return k.Retired[v.node.Value]
}

func (r *reader) between(v value, low, high float64) (float64, bool) {
	f, ok := r.number(v)
	switch {
	case !ok || f >= low && f <= high:
		return f, ok
	case high == math.MaxFloat64:
		r.fault(v, "want %v or more, got %v", low, f)
	default:
		r.fault(v, "must be between %v and %v, got %v", low, high, f)
	}
	return 0, false
}

func (r *reader) weights(v value) map[string]float64 {
	var m map[string]float64
	for _, e := range r.mapping(v).rest() {
		if w, ok := r.number(e.value); ok {
			if w <= 0 || w > math.MaxInt32 {
				r.fault(e.value, "a weight must be positive, got %v", w)
				continue
			}
			if m == nil {
				m = map[string]float64{}
			}
			m[e.name] = w
		}
	}
	return m
}

// show is a key's value as a file may have it, without secrets.
func show(value any) string {
	switch v := value.(type) {
	case string:
		if v == "" {
			return "null"
		}
		return quote(redact.URL(v))
	case []string:
		shown := make([]string, len(v))
		for i, s := range v {
			shown[i] = redact.URL(s)
		}
		return printable(encode(shown))
	case map[string]float64:
		parts := make([]string, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, fmt.Sprintf("%s: %v", quote(k), v[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return keys.Format(value)
}

// checkSections runs what is checked of several keys together.
func (r *reader) checkSections(sections []*keys.Section) {
	for _, top := range sections {
		for path, s := range top.All {
			at := report{r, top.Name + "." + path}
			for _, o := range s.Orders {
				if s.Exceeds(o) {
					at.exceeds(&s.Set, o)
				}
			}
			for _, check := range s.Checks {
				check(at)
			}
		}
	}
}

// report is what checks of a section tell a reader.
type report struct {
	r    *reader
	path string
}

// Fault implements keys.Report.
func (t report) Fault(key, format string, args ...any) {
	t.r.faultAt(t.path+key, "%s", fmt.Errorf(format, args...)) // they may wrap errors
}

// Note implements keys.Report.
func (t report) Note(key, format string, args ...any) {
	t.r.noteAt(t.r.places[t.path+key], t.path+key, fmt.Sprintf(format, args...))
}

// Path implements keys.Report.
func (t report) Path(key string) string { return t.path + key }

// exceeds is a fault of the smaller setting, or of the larger if only that was written.
func (t report) exceeds(s *keys.Set, o keys.Order) {
	at, word, other := o.Small, "most", o.Large
	if _, written := t.r.places[t.path+at]; !written {
		at, word, other = o.Large, "least", o.Small
	}
	t.Fault(at, "want at %s %s, which is %s", word, keys.Format(s.Find(other).Value()), t.Path(other))
}
