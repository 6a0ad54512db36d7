package text

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/rewards"
)

type lengthOptions struct {
	// MinLength and MaxLength are the code points a response may have; 10 and 1000.
	MinLength int `json:"min_length"`
	MaxLength int `json:"max_length"`
	// PenaltyRate is taken off for every code point beyond them; 0.01.
	PenaltyRate float64 `json:"penalty_rate"`
	// Floor is the lowest value given; nil: none, as published.
	Floor *float64 `json:"floor"`
}

func (o lengthOptions) validate() error {
	var errs rewards.Faults
	errs.Add(o.MinLength < 0 || o.MaxLength < o.MinLength, "min_length: %d and max_length: %d, want 0 <= min_length <= max_length", o.MinLength, o.MaxLength)
	errs.Add(o.PenaltyRate < 0, "penalty_rate: %v, want 0 or more", o.PenaltyRate)
	if o.Floor != nil && *o.Floor > 0 {
		errs = append(errs, fmt.Errorf("floor: %v, want 0 or less", *o.Floor))
	}
	return errors.Join(errs...)
}

func lengthSpec() rewards.Spec {
	return rewards.Spec{
		Name:    "length",
		Summary: "a penalty for every character of a response that is too short or too long (RM-Gallery)",
		Options: []rewards.Option{
			{Name: "min_length", Type: "int", Default: "10", Doc: "minimum number of characters (code points) without a penalty"},
			{Name: "max_length", Type: "int", Default: "1000", Doc: "maximum number of characters (code points) without a penalty"},
			{Name: "penalty_rate", Type: "number", Default: "0.01", Doc: "penalty for each character below min_length or above max_length"},
			{Name: "floor", Type: "number", Default: "none", Doc: "lowest value of the reward, 0 or less"},
		},
		Build: build(lengthOptions{MinLength: 10, MaxLength: 1000, PenaltyRate: 0.01}, newLength),
	}
}

func newLength(o lengthOptions) (*scorer, error) {
	return &scorer{
		fields: []rewards.Field{{Name: "length", Kind: rewards.Number}},
		rate: func(_ context.Context, _ *rewards.Sample, response string) (rewards.Score, error) {
			n := utf8.RuneCountInString(response)
			v := -float64(max(o.MinLength-n, n-o.MaxLength, 0)) * o.PenaltyRate
			if o.Floor != nil {
				v = max(v, *o.Floor)
			}
			return rewards.Score{Value: v, Extra: map[string]any{"length": n}}, nil
		},
	}, nil
}

type overlongOptions struct {
	// MaxRespLen is the longest response the trainer lets a model write, in tokens.
	MaxRespLen int64 `json:"max_resp_len"`
	// OverlongBufferLen is how many tokens before that the penalty begins.
	OverlongBufferLen int64 `json:"overlong_buffer_len"`
	// PenaltyFactor is the penalty at MaxRespLen; 1.
	PenaltyFactor float64 `json:"penalty_factor"`
	// LengthKey is the field of extra_info with the number of response tokens.
	LengthKey string `json:"length_key"`
}

func (o overlongOptions) validate() error {
	var errs rewards.Faults
	if o.OverlongBufferLen < 1 || o.MaxRespLen < o.OverlongBufferLen {
		errs = append(errs, fmt.Errorf("max_resp_len: %d and overlong_buffer_len: %d are required in tokens, want 1 <= overlong_buffer_len <= max_resp_len",
			o.MaxRespLen, o.OverlongBufferLen))
	}
	errs.Add(o.PenaltyFactor < 0, "penalty_factor: %v, want 0 or more", o.PenaltyFactor)
	errs.Add(o.LengthKey == "", "length_key: is empty, want the name of a field of extra_info")
	return errors.Join(errs...)
}

func overlongSpec() rewards.Spec {
	return rewards.Spec{
		Name:    "overlong",
		Summary: "a penalty that grows over the last tokens before the response's limit (DAPO)",
		Options: []rewards.Option{
			{Name: "max_resp_len", Type: "int", Default: "required", Doc: "maximum length of a response in tokens"},
			{Name: "overlong_buffer_len", Type: "int", Default: "required", Doc: "number of tokens before max_resp_len at which the penalty begins"},
			{Name: "penalty_factor", Type: "number", Default: "1", Doc: "penalty at max_resp_len"},
			{Name: "length_key", Type: "string", Default: responseLength, Doc: "field of extra_info with the number of tokens of the response"},
		},
		Build: build(overlongOptions{PenaltyFactor: 1, LengthKey: responseLength}, newOverlong),
	}
}

func newOverlong(o overlongOptions) (*scorer, error) {
	return &scorer{
		fields: []rewards.Field{{Name: "overlong", Kind: rewards.Bool}},
		rate: func(_ context.Context, s *rewards.Sample, _ string) (rewards.Score, error) {
			n, err := responseTokens(s, o.LengthKey)
			if err != nil {
				return rewards.Score{}, err
			}
			v := overlongPenalty(n, Overlong{MaxRespLen: o.MaxRespLen, BufferLen: o.OverlongBufferLen, PenaltyFactor: o.PenaltyFactor})
			return rewards.Score{Value: v, Extra: map[string]any{"overlong": v < 0}}, nil
		},
	}, nil
}

// tokenCount reads a count, which trainers also write as 812.0.
func tokenCount(raw json.RawMessage) (float64, error) {
	if len(raw) == 0 {
		return 0, errors.New("has no number of response tokens")
	}
	n := -1.0
	if err := json.Unmarshal(raw, &n); err != nil || n < 0 || n != math.Trunc(n) {
		return 0, fmt.Errorf("has %.40s and no number of response tokens", raw)
	}
	return n, nil
}
