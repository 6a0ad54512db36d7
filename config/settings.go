package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/redact"
)

// A section is a mapping of the file with settings and further sections in it.
type section struct {
	name, doc string
	settings  []setting
	sections  []section
}

// A setting binds a key to a field of a Config: how the file's value gets in and
// how it is shown.
type setting struct {
	key, doc string
	decode   func(r *reader, v value)
	show     func() string
}

// sections is the table of all settings of c outside of rewards. It reads, it
// prints, and it says which keys an override may name.
func (c *Config) sections() []section {
	return []section{c.Loop.section(), c.Pool.section(), c.Outbound.section(), c.Server.section(), c.Fabric.section()}
}

// decodeSections reads one level of the table from the mapping that holds it.
func (r *reader) decodeSections(o *object, sections []section) {
	for _, s := range sections {
		v, ok := o.take(s.name)
		if !ok || v.null() {
			continue
		}
		inner := r.mapping(v)
		for _, set := range s.settings {
			if v, ok := inner.take(set.key); ok {
				set.decode(r, v)
			}
		}
		r.decodeSections(inner, s.sections)
		inner.refuseRest(s.names())
	}
}

// names are the keys that may stand in a section.
func (s section) names() []string {
	var out []string
	for _, set := range s.settings {
		out = append(out, set.key)
	}
	for _, sub := range s.sections {
		out = append(out, sub.name)
	}
	return out
}

func integer(key string, p *int, low, high int, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if n, ok := r.integer(v, low, high); ok {
				*p = n
			}
		},
		func() string { return strconv.Itoa(*p) },
	}
}

func factor(key string, p *float64, low, high float64, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if f, ok := r.number(v); ok {
				if !(f >= low && f <= high) {
					r.fault(v, "must be between %v and %v, got %v", low, high, f)
					return
				}
				*p = f
			}
		},
		func() string { return strconv.FormatFloat(*p, 'g', -1, 64) },
	}
}

func toggle(key string, p *bool, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if b, ok := r.boolean(v); ok {
				*p = b
			}
		},
		func() string { return strconv.FormatBool(*p) },
	}
}

func size(key string, p *int64, low int64, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if n, ok := r.size(v, low); ok {
				*p = n
			}
		},
		func() string { return formatSize(*p) },
	}
}

func period(key string, p *time.Duration, low time.Duration, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if d, ok := r.duration(v, low); ok {
				*p = d
			}
		},
		func() string { return formatDuration(*p) },
	}
}

func text(key string, p *string, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if v.null() {
				*p = ""
			} else if s, ok := r.text(v); ok {
				*p = s
			}
		},
		func() string {
			if *p == "" {
				return "null"
			}
			return quote(redact.URL(*p))
		},
	}
}

func texts(key string, p *[]string, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			var out []string
			for _, item := range r.list(v) {
				if s, ok := r.text(item); ok {
					out = append(out, s)
				}
			}
			*p = out
		},
		func() string {
			if len(*p) == 0 {
				return "[]"
			}
			shown := make([]string, len(*p))
			for i, s := range *p {
				shown[i] = redact.URL(s)
			}
			return printable(encode(shown))
		},
	}
}

func choice(key string, p *string, words []string, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if s, ok := r.choice(v, words); ok {
				*p = s
			}
		},
		func() string { return *p },
	}
}

func weights(key string, p *map[string]float64, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			m := map[string]float64{}
			for _, e := range r.mapping(v).rest() {
				if w, ok := r.number(e.value); ok {
					if w <= 0 || w > math.MaxInt32 {
						r.fault(e.value, "a weight must be positive, got %v", w)
						continue
					}
					m[e.name] = w
				}
			}
			*p = m
		},
		func() string {
			parts := make([]string, 0, len(*p))
			for _, k := range slices.Sorted(maps.Keys(*p)) {
				parts = append(parts, fmt.Sprintf("%s: %v", quote(k), (*p)[k]))
			}
			return "{" + strings.Join(parts, ", ") + "}"
		},
	}
}
