package ocr

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/rewards"
)

// Bounds of what is wanted. The distance takes at most 2·maxTarget² steps, about
// 50 ms, for all spans of a sample together.
const (
	maxTarget = 4096 // code points
	maxSpans  = 64
)

var (
	doubleQuoted = regexp.MustCompile(`"([^"]+)"`)
	singleQuoted = regexp.MustCompile(`'([^']+)'`)
)

// Target is the first of Targets, or "" where there is none.
func (o Options) Target(s *rewards.Sample) (string, error) {
	targets, err := o.Targets(s)
	if err != nil || len(targets) == 0 {
		return "", err
	}
	return targets[0], nil
}

// Targets are the texts a sample's picture should show, by TargetRule, of the
// first of these that has any: the ground truth, if it is a string (in double
// quotes only: its apostrophes are no quotes); with BareGroundTruth such a ground
// truth itself; the prompt; with NoTarget "prompt" the whole prompt. With NoTarget
// "zero" there may be none, and no error. Only the rule every_quoted gives more
// than one.
//
// By first_quoted a quote that is not closed takes the rest, as Python's
// split('"')[1] does; but not in a bare ground truth, where it may be an inch mark.
//
// It fails with class BadInput where a target is wanted and not there, and beyond
// the bounds of 64 spans and 4,096 code points.
func (o Options) Targets(s *rewards.Sample) ([]string, error) {
	targets, err := o.find(s)
	if err != nil {
		return nil, err
	}
	if len(targets) > maxSpans {
		return nil, fmt.Errorf("%w: sample %q has %d wanted texts, want at most %d", rewards.BadInput, s.ID, len(targets), maxSpans)
	}
	n := 0
	for _, target := range targets {
		n += utf8.RuneCountInString(target)
	}
	if n > maxTarget {
		return nil, fmt.Errorf("%w: sample %q has a wanted text of %d characters, want at most %d", rewards.BadInput, s.ID, n, maxTarget)
	}
	return targets, nil
}

func (o Options) find(s *rewards.Sample) ([]string, error) {
	truth, isText := s.Truth()
	if isText {
		if spans := o.quoted(truth, o.BareGroundTruth); len(spans) > 0 {
			return spans, nil
		}
		if o.BareGroundTruth {
			return []string{truth}, nil
		}
	}
	if spans := o.quoted(s.Prompt, false); len(spans) > 0 {
		return spans, nil
	}
	if o.TargetRule == doubleOrSingle {
		if m := singleQuoted.FindStringSubmatch(s.Prompt); m != nil {
			return m[1:], nil
		}
	}
	// A sample without a prompt is a fault of the sender in every preset, and not a
	// prompt that asks for nothing.
	if s.Prompt != "" || isText {
		switch {
		case o.NoTarget == zero:
			return nil, nil
		case o.NoTarget == wholePrompt && s.Prompt != "":
			return []string{s.Prompt}, nil
		}
	}
	hint := ""
	if isText {
		hint = "; ground_truth has no double quotes: set bare_ground_truth: true to use it unquoted"
	}
	return nil, fmt.Errorf("%w: sample %q has no text between double quotes in ground_truth or prompt%s", rewards.BadInput, s.ID, hint)
}

// quoted returns the double-quoted spans of a text by the rule. Closed asks for
// the closing quote where the rule does not.
func (o Options) quoted(text string, closed bool) []string {
	switch o.TargetRule {
	case everyQuoted:
		var spans []string
		for _, m := range doubleQuoted.FindAllStringSubmatch(text, maxSpans+1) {
			spans = append(spans, m[1])
		}
		return spans
	case doubleOrSingle:
		if m := doubleQuoted.FindStringSubmatch(text); m != nil {
			return m[1:]
		}
		return nil
	}
	if parts := strings.SplitN(text, `"`, 3); len(parts) == 3 || len(parts) == 2 && !closed {
		return parts[1:2]
	}
	return nil
}
