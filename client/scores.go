package client

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// StepMode selects the tokens of a response that have a score.
type StepMode string

// The modes are those of RL-Factory (get_step_mask of verl/workers/reward_manager/parallel.py,
// d0abc1db).
const (
	// Outcome selects the last token: one score, as in validation.
	Outcome StepMode = "outcome"
	// Process selects the first, third, fifth and so on of the stop tokens: the first stop token
	// ends a turn of the model, and the next one ends the answer of its tool. With an odd number of
	// stop tokens these are all positions, because the last stop token ends the last turn. With an
	// even number, or with none, the last turn was cut short, and the last token is selected as
	// well.
	Process StepMode = "process"
)

// ErrScores means that the arguments of StepMask, RMScores or RMScoresOf are wrong.
var ErrScores = errors.New("scores")

// StepMask returns one value for each token of a response without padding: true at the positions of
// scores. At least one value is true. The error is ErrScores, for a response without tokens or an
// unknown mode.
func StepMask[T ~int | ~int32 | ~int64 | ~uint32](tokens, stops []T, mode StepMode) ([]bool, error) {
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%w: a response without tokens has no position for a score", ErrScores)
	}
	if mode != Outcome && mode != Process {
		return nil, fmt.Errorf("%w: mode %q, want %s or %s", ErrScores, mode, Outcome, Process)
	}
	mask := make([]bool, len(tokens))
	count := 0
	if mode == Process {
		for i, t := range tokens {
			if slices.Contains(stops, t) {
				mask[i] = count%2 == 0
				count++
			}
		}
	}
	if count%2 == 0 {
		mask[len(mask)-1] = true
	}
	return mask, nil
}

// ScoreOptions select the form of the batch that RMScores returns. The zero value is [B, 1]: one
// score for each sample.
type ScoreOptions struct {
	// Lengths are the numbers of tokens of the responses without padding; each score is at the last
	// token. StepMasks are results of StepMask: the k-th step score is at the k-th position that is
	// set. The reward of a sample without step scores, and the replacement for the score of a
	// failed sample, is at the last position that is set. At most one of the two may be set.
	Lengths   []int
	StepMasks [][]bool
	// Length is L, the number of columns of a batch with tokens. The default is the longest
	// response.
	Length int
	// ToolUseScores, which need StepMasks, are scores that the rollout already has. The tool-use
	// scores precede the step scores of the sample. In a row without step scores the tool-use
	// scores begin at the first position, and the reward is at the last position. NaN marks a turn
	// without a score, which is left out (compute_score of RL-Factory's envs/base.py, d0abc1db).
	ToolUseScores [][]float64
	// OnFailed is the replacement for the score of a failed sample: fallback (the fallback of the
	// result, which the profile or the connection can request, else NaN), nan, raise (an error) or
	// value:<x>. The default is fallback.
	OnFailed string
}

// Scores are the rewards of a batch, in the form that a trainer uses.
type Scores struct {
	// Values are [Rows, Columns] in row-major order; row i belongs to result i.
	Values        []float32
	Rows, Columns int
	// Valid reports whether a row has the sample's own score, and not a replacement.
	Valid []bool
}

// Row returns row i. The slice aliases the memory of s.
func (s *Scores) Row(i int) []float32 { return s.Values[i*s.Columns : (i+1)*s.Columns] }

// RMScores returns the rm_scores of a batch. Row i belongs to results[i]. The error is ErrScores if
// the options do not fit the results, and, with the id of the sample, if the number of scores
// differs from the number of positions, if a number does not fit a float32, or if a sample has
// failed and OnFailed is raise.
func RMScores(results []*wire.Result, o ScoreOptions) (*Scores, error) {
	fallback, err := parseOnFailed(o.OnFailed)
	if err != nil {
		return nil, err
	}
	out := &Scores{Rows: len(results), Columns: 1, Valid: make([]bool, len(results))}
	if o.Lengths != nil || o.StepMasks != nil {
		if out.Columns, err = o.columns(len(results)); err != nil {
			return nil, err
		}
	} else if o.Length != 0 || o.ToolUseScores != nil {
		return nil, fmt.Errorf("%w: ToolUseScores needs StepMasks; Length needs Lengths or StepMasks", ErrScores)
	}
	out.Values = make([]float32, out.Rows*out.Columns)
	for i, r := range results {
		var scores []float64
		if out.Valid[i] = r.RewardScore != nil; out.Valid[i] {
			scores = o.scoresOf(i, r)
		} else {
			v, err := fallback(r)
			if err != nil {
				return nil, err
			}
			scores = []float64{v}
		}
		if err := o.place(out.Row(i), i, r, scores); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// columns checks that the options fit n results and returns the columns of the batch.
func (o *ScoreOptions) columns(n int) (int, error) {
	switch {
	case o.Lengths != nil && o.StepMasks != nil:
		return 0, fmt.Errorf("%w: give Lengths or StepMasks, not both", ErrScores)
	case o.Lengths != nil && o.ToolUseScores != nil:
		return 0, fmt.Errorf("%w: ToolUseScores needs StepMasks: the last token has room for one score", ErrScores)
	case len(o.Lengths)+len(o.StepMasks) != n || o.ToolUseScores != nil && len(o.ToolUseScores) != n:
		return 0, fmt.Errorf("%w: %d lengths, %d step masks and %d rows of tool use scores for %d results",
			ErrScores, len(o.Lengths), len(o.StepMasks), len(o.ToolUseScores), n)
	}
	longest := o.Length
	for i := range n {
		var length int
		if o.Lengths != nil {
			length = o.Lengths[i]
		} else {
			length = len(o.StepMasks[i])
		}
		switch {
		case length < 1:
			return 0, fmt.Errorf("%w: row %d has %d tokens and no position for a score", ErrScores, i, length)
		case o.Length != 0 && length > o.Length:
			return 0, fmt.Errorf("%w: row %d has %d tokens, want at most %d", ErrScores, i, length, o.Length)
		}
		longest = max(longest, length)
	}
	return longest, nil
}

// scoresOf lists the scores of a sample that was scored, one for each place.
func (o *ScoreOptions) scoresOf(i int, r *wire.Result) []float64 {
	if o.StepMasks == nil {
		return []float64{*r.RewardScore}
	}
	var scores []float64
	if o.ToolUseScores != nil {
		scores = slices.DeleteFunc(slices.Clone(o.ToolUseScores[i]), math.IsNaN)
	}
	if len(r.StepScores) > 0 {
		return append(scores, r.StepScores...)
	}
	places := 0
	for _, set := range o.StepMasks[i] {
		if set {
			places++
		}
	}
	for len(scores) < places-1 {
		scores = append(scores, 0)
	}
	return append(scores, *r.RewardScore)
}

// place writes the scores of row i to their places.
func (o *ScoreOptions) place(row []float32, i int, r *wire.Result, scores []float64) error {
	var places []int
	switch {
	case o.StepMasks != nil:
		for at, set := range o.StepMasks[i] {
			if set {
				places = append(places, at)
			}
		}
		if r.RewardScore == nil && len(places) > 0 {
			places = places[len(places)-1:]
		}
	case o.Lengths != nil:
		places = []int{o.Lengths[i] - 1}
	default:
		places = []int{0}
	}
	if len(places) != len(scores) {
		return fmt.Errorf("%w: sample %q (row %d) has %d scores for the %d positions that are set in its step mask", ErrScores, r.ID, i, len(scores), len(places))
	}
	for k, v := range scores {
		if math.IsInf(v, 0) || math.Abs(v) > math.MaxFloat32 || math.IsNaN(v) && r.RewardScore != nil {
			return fmt.Errorf("%w: sample %q (row %d): %v is not a finite float32", ErrScores, r.ID, i, v)
		}
		row[places[k]] = float32(v)
	}
	return nil
}

// parseOnFailed returns what gives the fallback of a failed sample.
func parseOnFailed(s string) (func(*wire.Result) (float64, error), error) {
	switch {
	case s == "" || s == "fallback":
		return func(r *wire.Result) (float64, error) {
			if r.Fallback == nil || r.Fallback.Value == nil {
				return math.NaN(), nil
			}
			return *r.Fallback.Value, nil
		}, nil
	case s == "nan":
		return func(*wire.Result) (float64, error) { return math.NaN(), nil }, nil
	case s == "raise":
		return func(r *wire.Result) (float64, error) {
			why := ""
			if len(r.Errors) > 0 {
				why = fmt.Sprintf(" (%s: %s)", r.Errors[0].Class, r.Errors[0].Message)
			}
			return 0, fmt.Errorf("%w: sample %q has no score: %s%s", ErrScores, r.ID, r.Outcome, why)
		}, nil
	case strings.HasPrefix(s, "value:"):
		p, err := rewards.ParseSamplePolicy(s)
		if err != nil {
			return nil, fmt.Errorf("%w: OnFailed: %w", ErrScores, err)
		}
		return func(*wire.Result) (float64, error) { return p.Value, nil }, nil
	}
	return nil, fmt.Errorf("%w: OnFailed %q, want fallback, nan, raise or value:<x>", ErrScores, s)
}

// RMScoresOf returns the rm_scores of a chunk: [B, 1] in the order of its rows, NaN for a row with
// neither a score nor a replacement. The error is ErrScores if the columns of the chunk differ in
// length, or, with the id of the sample, if a number does not fit a float32.
func RMScoresOf(r *wire.Rewards) (*Scores, error) {
	if len(r.Scores) != len(r.IDs) || len(r.Valid) != len(r.IDs) {
		return nil, fmt.Errorf("%w: %d ids, %d rm_scores and %d rm_valid, want equal numbers", ErrScores, len(r.IDs), len(r.Scores), len(r.Valid))
	}
	out := &Scores{Values: make([]float32, len(r.Scores)), Rows: len(r.Scores), Columns: 1, Valid: make([]bool, len(r.Scores))}
	copy(out.Valid, r.Valid)
	for i, v := range r.Scores {
		switch {
		case v == nil:
			out.Values[i] = float32(math.NaN())
		case math.Abs(*v) > math.MaxFloat32 || math.IsNaN(*v):
			return nil, fmt.Errorf("%w: sample %q (row %d): %v is not a finite float32", ErrScores, r.IDs[i], i, *v)
		default:
			out.Values[i] = float32(*v)
		}
	}
	return out, nil
}
