// Package keys declares the keys of a configuration next to the fields that they set.
//
// A package with settings has a struct for them, Config by custom, and a method Keys that says
// of each field which key of the configuration file sets it, in one line: the field, the key,
// the default, the prose and the bounds.
//
//	func (c *Config) Keys(k *keys.Set) {
//		k.Duration(&c.Grace, "grace", time.Minute, "Time for which samples wait for their client.").Min(time.Second)
//	}
//
// Everything else follows from that line. Fill gives a Config its defaults and Validate checks
// it, for programs; package config reads the key from a file or an override, with the line in
// every error, and prints it, lists it in docs/configuration.md and in the JSON Schema. What the
// program alone sets may have its default and bounds in the same way, in another method (Func).
//
// The package knows nothing of YAML, so that those who describe their settings do not either.
package keys

import (
	"math"
	"strings"
	"time"
)

// Described is a struct with settings. Keys adds each of its keys to a section.
type Described interface{ Keys(k *Set) }

// Func makes a function Described, for keys that stand in another section than the rest of
// their struct.
type Func func(k *Set)

// Keys implements Described.
func (f Func) Keys(k *Set) { f(k) }

// Set holds the keys of a section, the sections below it, and what is checked of several keys
// together.
type Set struct {
	Keys     []*Key
	Sections []*Section
	Orders   []Order
	Checks   []func(r Report)
}

// Section is a mapping of the file with a name, and a sentence for people.
type Section struct {
	Name, Doc string
	// Unset is that of Key.
	Unset bool
	Set
}

// Key is one setting.
type Key struct {
	// Name is the last word of the key; Doc is at least one sentence that stands alone.
	Name, Doc string
	// Field points to the field that the key sets: a *int64 is a size in bytes. Default, Low
	// and High have the type of the field; Low and High are nil of a field that is no number.
	Field, Default, Low, High any
	// Form says in words what a key may be whose Field is nil, which package config reads by
	// itself.
	Form string
	// Unset says that the key has no value where it is not written, so that an override must
	// add it.
	Unset bool
	// Words are the values of a choice; nil: any text.
	Words []string
	// Retired says what to write instead of a word that was a value in the past.
	Retired map[string]string
}

// Order says that the value of the key Small must not exceed that of Large. Both are numbers
// of one section, named relative to it.
type Order struct{ Small, Large string }

// Report takes what checks find. Keys are named relative to the section: "dispatch.policy".
type Report interface {
	// Fault says what is wrong with a key and what to write instead.
	Fault(key, format string, args ...any)
	// Note says what may be other than people expect, and is no fault.
	Note(key, format string, args ...any)
	// Path is the whole name of a key, for texts.
	Path(key string) string
}

// Section adds a section below, with the keys of all parts.
func (s *Set) Section(name, doc string, parts ...Described) *Section {
	below := &Section{Name: name, Doc: doc}
	for _, p := range parts {
		p.Keys(&below.Set)
	}
	s.Sections = append(s.Sections, below)
	return below
}

// Other adds a key without a field, whose values have a form of their own that package config
// reads: a number or a word, say. def is what holds where it is not written, form what may be.
func (s *Set) Other(name, def, form, doc string) {
	k := s.add(nil, name, def, doc)
	k.Form = form
}

// Unset says of all keys and sections that they have no value where they are not written.
func (s *Set) Unset() {
	for _, k := range s.Keys {
		k.Unset = true
	}
	for _, b := range s.Sections {
		b.Unset = true
	}
}

// AtMost adds a check that one number does not exceed another.
func (s *Set) AtMost(small, large string) { s.Orders = append(s.Orders, Order{small, large}) }

// Check adds a check of several keys, which runs once all of them have their values.
func (s *Set) Check(f func(r Report)) { s.Checks = append(s.Checks, f) }

// Find returns the key of that name relative to the section; nil: there is none.
func (s *Set) Find(name string) *Key {
	first, rest, below := strings.Cut(name, ".")
	if !below {
		for _, k := range s.Keys {
			if k.Name == name {
				return k
			}
		}
		return nil
	}
	for _, b := range s.Sections {
		if b.Name == first {
			return b.Find(rest)
		}
	}
	return nil
}

// Names are the keys and sections that may stand in the section.
func (s *Set) Names() (names []string) {
	for _, k := range s.Keys {
		names = append(names, k.Name)
	}
	for _, b := range s.Sections {
		names = append(names, b.Name)
	}
	return names
}

func (s *Set) add(field any, name string, def any, doc string) *Key {
	k := &Key{Name: name, Doc: doc, Field: field, Default: def}
	s.Keys = append(s.Keys, k)
	return k
}

// Number is a key whose field is a number. Without a bound it is 0 or more.
type Number[T int | int64 | float64 | time.Duration] struct{ key *Key }

// Min is the least value that a file may give. Of a size or a duration it catches a number
// without its unit, and may be far above what works (Validate).
func (n Number[T]) Min(low T) Number[T] {
	n.key.Low = low
	return n
}

// Max is the greatest value.
func (n Number[T]) Max(high T) Number[T] {
	n.key.High = high
	return n
}

// Between is Min and Max.
func (n Number[T]) Between(low, high T) Number[T] { return n.Min(low).Max(high) }

func number[T int | int64 | float64 | time.Duration](s *Set, field *T, name string, def, high T, doc string) Number[T] {
	k := s.add(field, name, def, doc)
	k.Low, k.High = T(0), high
	return Number[T]{k}
}

// Int adds a whole number.
func (s *Set) Int(field *int, name string, def int, doc string) Number[int] {
	return number(s, field, name, def, math.MaxInt32, doc)
}

// Float adds a number.
func (s *Set) Float(field *float64, name string, def float64, doc string) Number[float64] {
	return number(s, field, name, def, math.MaxFloat64, doc)
}

// Bounds of what no key bounds more narrowly.
const (
	Largest = 1 << 50            // size in bytes
	Longest = 7 * 24 * time.Hour // duration
)

// Size adds a number of bytes, up to Largest.
func (s *Set) Size(field *int64, name string, def int64, doc string) Number[int64] {
	return number(s, field, name, def, Largest, doc)
}

// Duration adds a time, up to Longest.
func (s *Set) Duration(field *time.Duration, name string, def time.Duration, doc string) Number[time.Duration] {
	return number(s, field, name, def, Longest, doc)
}

// Bool adds a switch, which is off by default.
func (s *Set) Bool(field *bool, name, doc string) { s.add(field, name, false, doc) }

// Text adds a text; null in the file is the empty text.
func (s *Set) Text(field *string, name, def, doc string) { s.add(field, name, def, doc) }

// Texts adds a list of texts, which is empty by default.
func (s *Set) Texts(field *[]string, name, doc string) { s.add(field, name, []string(nil), doc) }

// Weights adds positive numbers under names that the user chooses, none by default.
func (s *Set) Weights(field *map[string]float64, name, doc string) {
	s.add(field, name, map[string]float64(nil), doc)
}

// Choice adds a text that is one of words, the first of them by default.
func (s *Set) Choice(field *string, name string, words []string, doc string) Words {
	k := s.add(field, name, words[0], doc)
	k.Words = words
	return Words{k}
}

// Words is a key with a choice of words.
type Words struct{ key *Key }

// Retired answers a word that was a value in the past.
func (w Words) Retired(word, advice string) { w.key.Retired = map[string]string{word: advice} }
