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

// Target returns the first of Targets, or "" if there are none.
func (o Options) Target(s *rewards.Sample) (string, error) {
	targets, err := o.Targets(s)
	if err != nil || len(targets) == 0 {
		return "", err
	}
	return targets[0], nil
}

// Targets returns the texts that the sample's picture should contain, selected by TargetRule. The
// first of these sources with a target is used: the ground truth, if it is a string (only double
// quotes count, because apostrophes are not quotes); with BareGroundTruth, that ground truth as a
// whole; the prompt; with NoTarget "prompt", the whole prompt. With NoTarget "zero", the result may
// be empty, without an error. Only the rule every_quoted returns more than one target.
//
// With first_quoted, an unclosed quote extends to the end of the text, as in Python's
// split('"')[1]. This does not apply with BareGroundTruth to a ground truth, in which the quote may
// be an inch mark.
//
// Targets returns an error of class BadInput if there is no target although one is required, or if
// the targets have more than 64 spans or more than 4,096 code points.
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
