package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/rewards"
)

// Bounds of what is looked at, in bytes.
const (
	// maxText bounds a response and the texts it is compared with: twice what a
	// frame's header holds.
	maxText = 2 << 20
	// maxAnswer bounds the right answer to a question: those of the published data
	// sets have up to a few hundred characters.
	maxAnswer = 64 << 10
	// maxTargets bounds the number of right answers to one question.
	maxTargets = 1024
	// maxDetail bounds a text in the details, in code points.
	maxDetail = 1000
)

// bad is an error of class BadInput about a sample.
func bad(s *rewards.Sample, format string, args ...any) error {
	return fmt.Errorf("%w: sample %q %s", rewards.BadInput, s.ID, fmt.Sprintf(format, args...))
}

// response returns what the rollout wrote. An empty one is scored: a model that
// ends at once has answered nothing. It is missing where the sample carries media
// instead, or nothing at all.
func response(s *rewards.Sample) (string, error) {
	switch {
	case len(s.Response) > maxText:
		return "", bad(s, "has a response of %d bytes, at most %d are scored", len(s.Response), maxText)
	case s.Response != "":
		return s.Response, nil
	case len(s.Media) > 0:
		return "", bad(s, "has media and no response: this reward scores text rollouts")
	case s.Prompt == "" && len(s.GroundTruth) == 0:
		return "", bad(s, "has no response, no prompt and no ground_truth")
	}
	return "", nil
}

// truth returns the right answer: a ground truth that is a JSON string of at most
// limit bytes.
func truth(s *rewards.Sample, limit int) (string, error) {
	t, ok := s.Truth()
	switch raw := bytes.TrimSpace(s.GroundTruth); {
	case len(raw) == 0:
		return "", bad(s, "has no ground_truth")
	case !ok:
		return "", bad(s, "has a ground_truth that is not a JSON string: %.40s; write the answer as text, \"42\" for 42", raw)
	case len(t) > limit:
		return "", bad(s, "has a ground_truth of %d bytes, at most %d are compared", len(t), limit)
	}
	return t, nil
}

// targets returns the right answers, one or several: {"target": …} as Search-R1
// has it, or what stands for … alone: a string or a list of strings.
func targets(s *rewards.Sample) ([]string, error) {
	raw := bytes.TrimSpace(s.GroundTruth)
	var object struct {
		Target json.RawMessage `json:"target"`
	}
	switch {
	case len(raw) == 0:
		return nil, bad(s, "has no ground_truth")
	case len(raw) > maxText:
		return nil, bad(s, "has a ground_truth of %d bytes, at most %d are compared", len(raw), maxText)
	case raw[0] == '{' && json.Unmarshal(raw, &object) == nil:
		raw = bytes.TrimSpace(object.Target)
	}
	var one string
	var several []*string // null among them would be a right answer of nothing, which every answer contains
	switch {
	case len(raw) == 0 || string(raw) == "null":
	case json.Unmarshal(raw, &one) == nil:
		return []string{one}, nil
	case json.Unmarshal(raw, &several) != nil || slices.Contains(several, nil):
	case len(several) > maxTargets:
		return nil, bad(s, "has %d right answers, at most %d are compared", len(several), maxTargets)
	case len(several) > 0:
		out := make([]string, len(several))
		for i, t := range several {
			out[i] = *t
		}
		return out, nil
	}
	return nil, bad(s, `has a ground_truth without a right answer: want "…", ["…", …] or {"target": …}, not %.40s`, s.GroundTruth)
}

// extraInfo returns a field of the sample's extra_info; nil: it has none.
func extraInfo(s *rewards.Sample, key string) (json.RawMessage, error) {
	if len(bytes.TrimSpace(s.ExtraInfo)) == 0 {
		return nil, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(s.ExtraInfo, &fields); err != nil {
		return nil, bad(s, "has an extra_info that is not a JSON object: %v", err)
	}
	return fields[key], nil
}

// clip is the beginning of a text, for the details.
func clip(s string) string {
	n := 0
	for i := range s {
		if n == maxDetail {
			return s[:i] + "…"
		}
		n++
	}
	return s
}

// The ways to cut a text into tokens.
const (
	simpleTokens = "simple"
	charTokens   = "chars"
)

// tokenizerOption says how a text becomes tokens. It is part of the options of
// the scorers that need it.
type tokenizerOption struct {
	// TokenizerType is "simple" (default): between whitespace; or "chars": every
	// character that is no whitespace, for scripts without spaces.
	TokenizerType string `json:"tokenizer_type"`
}

func (o tokenizerOption) validate() error {
	return oneOf("tokenizer_type", o.TokenizerType, simpleTokens, charTokens)
}

const tokenizerDoc = "tokens: simple, words between whitespace; or chars, single characters, for scripts without spaces"

// tokens cuts s.
func (o tokenizerOption) tokens(s string) iter.Seq[string] {
	words := strings.FieldsFuncSeq(s, isSpace)
	if o.TokenizerType != charTokens {
		return words
	}
	return func(yield func(string) bool) {
		for word := range words {
			for word != "" {
				_, n := utf8.DecodeRuneInString(word)
				if !yield(word[:n]) {
					return
				}
				word = word[n:]
			}
		}
	}
}
