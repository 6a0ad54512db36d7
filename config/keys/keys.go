// Package keys declares the keys of a configuration next to the fields that they set.
//
// A package with settings has a struct for them, usually named Config, with a method Keys. Keys
// contains one line for each field that a key of the configuration file sets: the field, the key,
// the default, the description and the bounds.
//
//	func (c *Config) Keys(k *keys.Set) {
//		k.Duration(&c.Grace, "grace", time.Minute, "Time for which samples wait for their client.").Min(time.Second)
//	}
//
// All other functions use that line. In programs, Fill sets the defaults of a Config and Validate
// checks it. Package config reads the key from a file or an override, with the line in every error,
// prints it, and lists it in docs/configuration.md and in the JSON Schema. Another method (Func)
// can declare the defaults and bounds of fields that only the program sets.
//
// The package does not depend on YAML, so the packages with settings do not either.
package keys

import (
	"math"
	"strings"
	"time"
)

// Described is implemented by structs with settings. Keys adds the keys of the struct to a section.
type Described interface{ Keys(k *Set) }

// Func adapts a function to Described, for keys that belong to another section than the rest of
// their struct.
type Func func(k *Set)

// Keys implements Described.
func (f Func) Keys(k *Set) { f(k) }

// Set holds the keys of a section, the sections below it, and the checks of several keys.
type Set struct {
	Keys     []*Key
	Sections []*Section
	Orders   []Order
	Checks   []func(r Report)
}

// Section is a named mapping in the file, with a description.
type Section struct {
	Name, Doc string
	// Unset has the meaning of Key.Unset.
	Unset bool
	Set
}

// Key is one setting.
type Key struct {
	// Name is the last part of the key. Doc is at least one complete sentence.
	Name, Doc string
	// Field points to the field that the key sets; a *int64 is a size in bytes. Default, Low and
	// High have the type of the field. Low and High are nil if the field is not a number.
	Field, Default, Low, High any
	// Form describes the values of a key without a Field, which package config reads itself.
	Form string
	// Unset reports that the key has no value if the file does not contain it, so that an override
	// must add it.
	Unset bool
	// Words are the values of a choice. If nil, any text is allowed.
	Words []string
	// Retired contains advice for values that were valid in the past.
	Retired map[string]string
}

// Order is the condition that the value of the key Small must not exceed that of Large. Both are
// numeric keys of one section, with names relative to the section.
type Order struct{ Small, Large string }

// Report receives the findings of checks. Keys are relative to the section, such as
// "dispatch.policy".
type Report interface {
	// Fault reports an error in a key; the message includes the remedy.
	Fault(key, format string, args ...any)
	// Note reports something unexpected that is not an error.
	Note(key, format string, args ...any)
	// Path returns the full name of a key, for messages.
	Path(key string) string
}

// Section adds a section below s, with the keys of all parts.
func (s *Set) Section(name, doc string, parts ...Described) *Section {
	below := &Section{Name: name, Doc: doc}
	for _, p := range parts {
		p.Keys(&below.Set)
	}
	s.Sections = append(s.Sections, below)
	return below
}

// Other adds a key without a field, whose values have a special form that package config reads, for
// example a number or a word. def is the default, and form describes the values.
func (s *Set) Other(name, def, form, doc string) {
	k := s.add(nil, name, def, doc)
	k.Form = form
}

// Unset marks all keys and sections of s as unset; see Key.Unset.
func (s *Set) Unset() {
	for _, k := range s.Keys {
		k.Unset = true
	}
	for _, b := range s.Sections {
		b.Unset = true
	}
}

// AtMost adds the check that the number small does not exceed the number large.
func (s *Set) AtMost(small, large string) { s.Orders = append(s.Orders, Order{small, large}) }

// Check adds a check of several keys, which runs after all of them have their values.
func (s *Set) Check(f func(r Report)) { s.Checks = append(s.Checks, f) }

// Find returns the key with the given name relative to the section, or nil.
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

// Names returns the names of all keys and sections in s.
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

// Number is a key with a numeric field. By default the minimum is 0.
type Number[T int | int64 | float64 | time.Duration] struct{ key *Key }

// Min sets the minimum for a file. For a size or a duration, the minimum detects a number without a
// unit, and may be far above the smallest useful value; see Validate.
func (n Number[T]) Min(low T) Number[T] {
	n.key.Low = low
	return n
}

// Max sets the maximum.
func (n Number[T]) Max(high T) Number[T] {
	n.key.High = high
	return n
}

// Between sets the minimum and the maximum.
func (n Number[T]) Between(low, high T) Number[T] { return n.Min(low).Max(high) }

func number[T int | int64 | float64 | time.Duration](s *Set, field *T, name string, def, high T, doc string) Number[T] {
	k := s.add(field, name, def, doc)
	k.Low, k.High = T(0), high
	return Number[T]{k}
}

// Int adds an integer key.
func (s *Set) Int(field *int, name string, def int, doc string) Number[int] {
	return number(s, field, name, def, math.MaxInt32, doc)
}

// Float adds a key for a floating-point number.
func (s *Set) Float(field *float64, name string, def float64, doc string) Number[float64] {
	return number(s, field, name, def, math.MaxFloat64, doc)
}

// Default maximums.
const (
	Largest = 1 << 50            // maximum size in bytes
	Longest = 7 * 24 * time.Hour // maximum duration
)

// Size adds a key for a number of bytes, at most Largest.
func (s *Set) Size(field *int64, name string, def int64, doc string) Number[int64] {
	return number(s, field, name, def, Largest, doc)
}

// Duration adds a key for a duration, at most Longest.
func (s *Set) Duration(field *time.Duration, name string, def time.Duration, doc string) Number[time.Duration] {
	return number(s, field, name, def, Longest, doc)
}

// Bool adds a boolean key, which is false by default.
func (s *Set) Bool(field *bool, name, doc string) { s.add(field, name, false, doc) }

// Text adds a text key; null in the file means the empty text.
func (s *Set) Text(field *string, name, def, doc string) { s.add(field, name, def, doc) }

// Texts adds a key for a list of texts, which is empty by default.
func (s *Set) Texts(field *[]string, name, doc string) { s.add(field, name, []string(nil), doc) }

// Weights adds a key for positive numbers with names that the user chooses. There are none by
// default.
func (s *Set) Weights(field *map[string]float64, name, doc string) {
	s.add(field, name, map[string]float64(nil), doc)
}

// Choice adds a text key whose value is one of words. The first word is the default.
func (s *Set) Choice(field *string, name string, words []string, doc string) Words {
	k := s.add(field, name, words[0], doc)
	k.Words = words
	return Words{k}
}

// Words is a key whose value is one of several words.
type Words struct{ key *Key }

// Retired sets the advice for a word that was valid in the past.
func (w Words) Retired(word, advice string) { w.key.Retired = map[string]string{word: advice} }
