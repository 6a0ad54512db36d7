package compare

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// placeholder is a name in braces. JSON has none: its names are in quotes.
var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

// Placeholders that stand for what all members have in common.
const (
	inPrompt      = "{prompt}"
	inGroundTruth = "{ground_truth}"
	inDataSource  = "{data_source}"
)

// template is a text with placeholders. What a placeholder stands for is put in as it
// is: braces in a prompt are no placeholders.
type template struct {
	pieces []string // text, placeholder, text, …
}

// parseTemplate refuses a placeholder that is none of required and more or of those that
// all members have in common, and a template without one of required.
func parseTemplate(s string, required []string, more ...string) (template, error) {
	if len(s) > maxTemplate {
		return template{}, fmt.Errorf("template: has %d bytes, at most %d are taken", len(s), maxTemplate)
	}
	known := slices.Concat([]string{inPrompt, inGroundTruth, inDataSource}, required, more)
	var t template
	var errs []error
	end := 0
	for _, at := range placeholder.FindAllStringIndex(s, -1) {
		p := s[at[0]:at[1]]
		if !slices.Contains(known, p) {
			errs = append(errs, fmt.Errorf("template: %s is no placeholder; there are %s", p, strings.Join(known, ", ")))
		}
		t.pieces = append(t.pieces, s[end:at[0]], p)
		end = at[1]
	}
	t.pieces = append(t.pieces, s[end:])
	for _, p := range required {
		if !t.has(p) {
			errs = append(errs, fmt.Errorf("template: has no %s", p))
		}
	}
	return t, errors.Join(errs...)
}

func (t template) has(p string) bool {
	for i := 1; i < len(t.pieces); i += 2 {
		if t.pieces[i] == p {
			return true
		}
	}
	return false
}

// fill puts in what the placeholders stand for.
func (t template) fill(values ...map[string]string) string {
	var b strings.Builder
	for i, piece := range t.pieces {
		if i%2 == 0 {
			b.WriteString(piece)
			continue
		}
		for _, v := range values {
			b.WriteString(v[piece])
		}
	}
	return b.String()
}
