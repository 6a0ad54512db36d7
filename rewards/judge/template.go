package judge

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// placeholder is a name in braces. JSON has none: its names are in quotes.
var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

// sources are the placeholders a template may have, and what they stand for.
func sources() map[string]func(*rewards.Sample) (string, error) {
	return map[string]func(*rewards.Sample) (string, error){
		"{prompt}":       func(s *rewards.Sample) (string, error) { return caption(s, false) },
		"{response}":     response,
		"{ground_truth}": groundTruth,
		"{data_source}":  dataSource,
	}
}

// template is a text with placeholders. What a placeholder stands for is put in as
// it is: braces in a prompt are no placeholders.
type template struct {
	pieces []string // text, placeholder, text, …
}

// parseTemplate refuses a placeholder that is none of sources: a slip of the keyboard
// would be sent as it is, to be rated.
func parseTemplate(name, s string) (template, error) {
	if strings.TrimSpace(s) == "" {
		return template{}, fmt.Errorf("%s: is empty", name)
	}
	if len(s) > maxTemplate {
		return template{}, fmt.Errorf("%s: has %d bytes, at most %d are taken", name, len(s), maxTemplate)
	}
	known := sources()
	var t template
	var errs []error
	end := 0
	for _, at := range placeholder.FindAllStringIndex(s, -1) {
		p := s[at[0]:at[1]]
		if _, ok := known[p]; !ok {
			errs = append(errs, fmt.Errorf("%s: %s is no placeholder; there are %s", name, p, words(slices.Sorted(maps.Keys(known)))))
		}
		t.pieces = append(t.pieces, s[end:at[0]], p)
		end = at[1]
	}
	t.pieces = append(t.pieces, s[end:])
	return t, errors.Join(errs...)
}

// fill puts in what the placeholders stand for.
func (t template) fill(s *rewards.Sample) (string, error) {
	known := sources()
	var b strings.Builder
	for i, piece := range t.pieces {
		if i%2 == 1 {
			v, err := known[piece](s)
			if err != nil {
				return "", err
			}
			piece = v
		}
		b.WriteString(piece)
	}
	return b.String(), nil
}
