package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Place is the position of a part of the configuration, in a file or in an override.
type Place struct {
	File         string
	Line, Column int
	// Override is the override that set the part, with its prefix. Values that may be secrets are
	// left out.
	Override string

	order int // of overrides among each other
}

// String returns "file:line:column" or "override "key=value"".
func (p Place) String() string {
	switch {
	case p.Override != "" || p.order > 0:
		return fmt.Sprintf("override %q", p.Override)
	case p.Line == 0:
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

func (p Place) compare(q Place) int {
	return cmp.Or(
		cmp.Compare(p.order, q.order), // the file has 0 and comes first
		cmp.Compare(p.Line, q.Line),
		cmp.Compare(p.Column, q.Column),
	)
}

// Fault is one error in a configuration.
type Fault struct {
	Place Place
	// Key is the full key, such as "reward.reward_functions.ocr.weight". It is empty for a fault of
	// the file as a whole.
	Key string
	// Message describes the error and the remedy.
	Message string
	// Lacking reports that the machine lacks something that the configuration uses, such as the
	// files of a model. The same configuration may be valid on another machine.
	Lacking bool
}

// String returns place, key and message on one line.
func (f Fault) String() string {
	var b strings.Builder
	if at := f.Place.String(); at != "" {
		b.WriteString(at + ": ")
	}
	if f.Key != "" {
		b.WriteString(f.Key + ": ")
	}
	b.WriteString(f.Message)
	return b.String()
}

// FaultsError contains every fault of a configuration, in the order of the file, followed by those
// of overrides.
type FaultsError []Fault

// Error returns one line for each fault.
func (fs FaultsError) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Beside returns the faults without those that are Lacking, that is the faults on every machine. It
// returns nil if there are none.
func (fs FaultsError) Beside() error {
	return slices.DeleteFunc(slices.Clone(fs), func(f Fault) bool { return f.Lacking }).sorted()
}

// sorted puts the faults in order, each once, and returns nil for none.
func (fs FaultsError) sorted() error {
	if len(fs) == 0 {
		return nil
	}
	slices.SortStableFunc(fs, func(a, b Fault) int {
		return cmp.Or(a.Place.compare(b.Place), cmp.Compare(a.Key, b.Key))
	})
	return slices.Compact(fs)
}

// DidYouMean returns "; did you mean x?" for the known word closest to a mistyped one, or "".
func DidYouMean(word string, known []string) string { return nearest(word, known) }

// nearest returns "; did you mean x?" for the known word closest to a mistyped
// one, or "".
func nearest(word string, known []string) string {
	best, at := len(word)/3+1, ""
	for _, k := range known {
		if d := distance(word, k); d <= best && d > 0 {
			best, at = d-1, k // the first of equals stays
		}
	}
	if at == "" {
		return ""
	}
	return "; did you mean " + at + "?"
}

// misspelt returns the known word that a word is, but for a slip of the keyboard; "" for
// none. It is stricter than nearest: what it finds is refused where any word could stand.
// Words that differ in their first letter only, as height and weight, are others.
func misspelt(word string, known []string) string {
	const shortest, letters = 4, 5 // one slip in a word of up to nine letters, two in up to 14
	for _, k := range known {
		d := distance(word, k)
		if len(k) < shortest || d == 0 || d > max(1, len(k)/letters) || len(word) > 0 && word[1:] == k[1:] {
			continue
		}
		return k
	}
	return ""
}

// distance is Damerau's and Levenshtein's, of short words: letters that are missing, too many
// or others, and neighbours that stand in each other's place.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
