package compare

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/internal/prompt"
)

// ofGroup are the placeholders that stand for what all members have in common.
func ofGroup() []string { return []string{prompt.Prompt, prompt.GroundTruth, prompt.DataSource} }

// parseTemplate reads a question of the configuration, in which every one of required
// stands.
func parseTemplate(text string, required []string, more ...string) (prompt.Template, error) {
	t, err := prompt.Parse("template", text, slices.Concat(ofGroup(), required, more)...)
	errs := []error{err}
	for _, p := range required {
		if !t.Has(p) {
			errs = append(errs, fmt.Errorf("template: has no %s", p))
		}
	}
	return t, errors.Join(errs...)
}

// filled puts into a template what its placeholders stand for, in one of values.
func filled(t prompt.Template, values ...map[string]string) string {
	text, _ := t.FillWith(func(placeholder string) (string, error) { // which does not fail
		for _, v := range values {
			if text, ok := v[placeholder]; ok {
				return text, nil
			}
		}
		return "", nil
	})
	return text
}
