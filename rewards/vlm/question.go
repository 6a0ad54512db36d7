package vlm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// The questions where the options have none: VQAScore's of t2v_metrics, and one for
// digits.
const (
	askYesNo = `Does this figure show "{prompt}"? Please answer yes or no.`
	askDigit = "How well does this image match the description \"{prompt}\"? " +
		"Answer with one digit from %d (not at all) to %d (perfectly), and nothing else."
)

// maxField bounds what of a sample goes into a question, each of its texts, in bytes.
const maxField = 256 << 10

// placeholder is a name in braces. JSON has none: its names are in quotes.
var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

// sources are the placeholders a template may have, and what they stand for.
func sources() map[string]func(*rewards.Sample) (string, error) {
	return map[string]func(*rewards.Sample) (string, error){
		"{prompt}": caption, "{response}": response, "{ground_truth}": groundTruth,
	}
}

// template is a text with placeholders. What a placeholder stands for is put in as it
// is: braces in a prompt are no placeholders.
type template struct {
	pieces []string // text, placeholder, text, …
}

// parseTemplate refuses a placeholder that is none of sources: a slip of the keyboard
// would be asked as it is.
func parseTemplate(name, s string) (template, error) {
	if strings.TrimSpace(s) == "" {
		return template{}, fmt.Errorf("%s: is empty", name)
	}
	if len(s) > maxText {
		return template{}, fmt.Errorf("%s: has %d bytes, at most %d are taken", name, len(s), maxText)
	}
	known := sources()
	var t template
	var errs []error
	end := 0
	for _, at := range placeholder.FindAllStringIndex(s, -1) {
		p := s[at[0]:at[1]]
		if _, ok := known[p]; !ok {
			errs = append(errs, fmt.Errorf("%s: %s is no placeholder; there are %s", name, p, strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
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
			if len(v) > maxField {
				return "", fmt.Errorf("%w: %s of sample %q has %d bytes, a judge is shown at most %d", rewards.BadInput, piece, s.ID, len(v), maxField)
			}
			piece = v
		}
		b.WriteString(piece)
	}
	return b.String(), nil
}

// caption is what the picture was asked to show, found as the scorers of rewards/judge
// find it: extra_info.prompt, extra_info.raw_prompt, the sample's prompt.
func caption(s *rewards.Sample) (string, error) {
	var info map[string]json.RawMessage // its names are compared exactly, unlike those of a struct
	if len(s.ExtraInfo) > 0 && json.Unmarshal(s.ExtraInfo, &info) != nil {
		info = nil
	}
	for _, name := range []string{"prompt", "raw_prompt"} {
		var v string
		if raw := info[name]; len(raw) > 0 && json.Unmarshal(raw, &v) == nil && v != "" {
			return v, nil
		}
	}
	if s.Prompt == "" {
		return "", fmt.Errorf("%w: sample %q has no prompt", rewards.BadInput, s.ID)
	}
	return s.Prompt, nil
}

// response is the text that a text rollout produced; an empty one is missing where the
// sample carries media instead.
func response(s *rewards.Sample) (string, error) {
	if s.Response == "" && len(s.Media) > 0 {
		return "", fmt.Errorf("%w: sample %q has no response", rewards.BadInput, s.ID)
	}
	return s.Response, nil
}

// groundTruth is a ground truth as a judge reads it: a string as it is, anything else
// as JSON.
func groundTruth(s *rewards.Sample) (string, error) {
	raw := bytes.TrimSpace(s.GroundTruth)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return "", fmt.Errorf("%w: sample %q has no ground_truth", rewards.BadInput, s.ID)
	}
	if v, ok := s.Truth(); ok {
		return v, nil
	}
	return string(raw), nil
}
