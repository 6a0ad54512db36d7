package prompt

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// MaxTemplate is the maximum length of a template in bytes; a longer one is assumed to be a
// mistake.
const MaxTemplate = 1 << 20

// placeholder is a name in braces. JSON has none: its names are in quotes.
var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

// Template is a text with placeholders. The zero value is the empty text.
type Template struct {
	pieces []string // text, placeholder, text, …
}

// Parse splits the text of an option at its placeholders. The error lists the placeholders that are
// not in known, with their braces. A text without a word, and a text longer than MaxTemplate, are
// errors.
func Parse(option, text string, known ...string) (Template, error) {
	if strings.TrimSpace(text) == "" {
		return Template{}, fmt.Errorf("%s: is empty", option)
	}
	if len(text) > MaxTemplate {
		return Template{}, fmt.Errorf("%s: has %d bytes, want at most %d", option, len(text), MaxTemplate)
	}
	var t Template
	var errs rewards.Faults
	end := 0
	for _, at := range placeholder.FindAllStringIndex(text, -1) {
		p := text[at[0]:at[1]]
		errs.Add(!slices.Contains(known, p), "%s: unknown placeholder %s, want one of %s", option, p, strings.Join(slices.Sorted(slices.Values(known)), ", "))
		t.pieces = append(t.pieces, text[end:at[0]], p)
		end = at[1]
	}
	t.pieces = append(t.pieces, text[end:])
	return t, errors.Join(errs...)
}

// Has reports whether the template contains the placeholder.
func (t Template) Has(placeholder string) bool {
	for i := 1; i < len(t.pieces); i += 2 {
		if t.pieces[i] == placeholder {
			return true
		}
	}
	return false
}

// Fill returns the template with the placeholders replaced by the texts of a sample; see Of.
func (t Template) Fill(s *rewards.Sample) (string, error) {
	return t.FillWith(func(placeholder string) (string, error) { return Of(s, placeholder) })
}

// FillWith returns the template with the placeholders replaced by the results of of. An error is
// that of of.
func (t Template) FillWith(of func(placeholder string) (string, error)) (string, error) {
	var b strings.Builder
	for i, piece := range t.pieces {
		if i%2 == 1 {
			v, err := of(piece)
			if err != nil {
				return "", err
			}
			piece = v
		}
		b.WriteString(piece)
	}
	return b.String(), nil
}
