package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Place is where something of a configuration stands: in a file, or in an
// override.
type Place struct {
	File         string
	Line, Column int
	// Override is the override that put it there, with its prefix; a value that
	// may be a secret is left out.
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

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	Place Place
	// Key is the whole key, "reward.reward_functions.ocr.weight"; empty for a
	// fault of the file as a whole.
	Key string
	// Message says what is wrong and what to write instead.
	Message string
	// Lacking says that the machine lacks what the configuration names, such as the files of a
	// model: the same configuration is right elsewhere.
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

// FaultsError is every fault of a configuration, in the order of the file, those
// of overrides after it.
type FaultsError []Fault

// Error returns one fault a line.
func (fs FaultsError) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
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

// distance is Levenshtein's, of short words.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
