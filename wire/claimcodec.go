package wire

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
)

// EncodeClaim returns the JSON of a message of the claim protocol, which is given as a pointer. The
// field "type" comes first. NaN and ±Inf cannot be encoded and are an error.
func EncodeClaim(v any) ([]byte, error) {
	k := claimKinds.of(v)
	if k == nil {
		return nil, fmt.Errorf("%w: %T is not a message of the claim protocol", ErrUnknownType, v)
	}
	var form any
	switch m := v.(type) {
	case *ClaimPayload:
		form = payloadForm(m)
	case *ClaimResult:
		form = resultMessage{N: m.N, Token: m.Token, Result: formOf(m.Result)}
	default:
		form = v
	}
	b, err := appendMessage(make([]byte, 0, 256), k.name, form)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", k.name, ErrValue, err)
	}
	return b, k.fits(b)
}

// EncodeClaimResult returns the message of a result, which never exceeds MaxClaimResultBytes.
// Details that are too long or that JSON cannot express are replaced by a note. A result that
// cannot be encoded even without its details becomes a failure of class internal.
func EncodeClaimResult(n uint64, token string, res *Result) ([]byte, error) {
	m := ClaimResult{N: n, Token: token, Result: res}
	b, err := encodeFitting(&m)
	if err == nil {
		return b, nil
	}
	m.Result = undetailed(res, "left out on the way to the gateway: "+err.Error())
	if b, err = encodeFitting(&m); err == nil {
		return b, nil
	}
	m.Result = &Result{
		ID: res.ID, Outcome: rewards.Failed, Worker: res.Worker, Attempt: res.Attempt,
		Errors: []rewards.ComponentError{{Class: rewards.Internal, Message: "the result cannot be sent to the gateway: " + err.Error()}},
	}
	return encodeFitting(&m)
}

func encodeFitting(m *ClaimResult) ([]byte, error) {
	b, err := EncodeClaim(m)
	if err == nil && len(b) > MaxClaimResultBytes {
		err = fmt.Errorf("%w: result of %d bytes, the limit is %d", ErrTooLarge, len(b), MaxClaimResultBytes)
	}
	return b, err
}

// undetailed returns a copy of a result with a note in place of all details.
func undetailed(res *Result, note string) *Result {
	out := *res
	out.Details = map[string]any{"error": note}
	out.Partial = WithoutDetails(res.Partial)
	if res.Members != nil {
		out.Members = make([]*Result, len(res.Members))
		for i, m := range res.Members {
			out.Members[i] = undetailed(m, note)
		}
	}
	return &out
}

// WithoutDetails returns a copy of the results of components without their details.
func WithoutDetails(components []rewards.ComponentResult) []rewards.ComponentResult {
	if components == nil {
		return nil
	}
	out := append([]rewards.ComponentResult{}, components...)
	for i := range out {
		out[i].Score.Details = nil
	}
	return out
}

// DecodeClaim reads a message of the claim protocol and returns a pointer to its type. Unknown
// names are ignored. A refusal is a *FrameError.
func DecodeClaim(b []byte) (any, error) {
	v, err := decodeClaim(b)
	if err != nil {
		return nil, refuse("", err)
	}
	return v, nil
}

func decodeClaim(b []byte) (any, error) {
	k, err := claimKinds.read(b)
	if err != nil {
		return nil, fmt.Errorf("claim message: %w", err)
	}
	v := k.empty()
	switch m := v.(type) {
	case *ClaimPayload:
		var form payloadMessage
		if err = json.Unmarshal(b, &form); err == nil {
			err = form.into(m)
		}
	case *ClaimResult:
		var form resultMessage
		if err = json.Unmarshal(b, &form); err == nil {
			m.N, m.Token, m.Result = form.N, form.Token, form.Result.result()
		}
	default:
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", k.name, ErrValue, err)
	}
	if err := check(v); err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	return v, nil
}

// checkClaimed checks a result that a worker hands over, or one of its members.
func checkClaimed(r *Result, level int) error {
	switch {
	case r == nil:
		return errors.New("result is missing")
	case r.ID == "" || len(r.ID) > maxClaimName:
		return fmt.Errorf("id of %d bytes, want 1 to %d", len(r.ID), maxClaimName)
	case level == 0 && r.ID != r.Attempt.ID:
		return fmt.Errorf("result of sample %q for an attempt at sample %q", r.ID, r.Attempt.ID)
	case level > 0 && r.Members != nil:
		return errors.New("a member must not have members of its own")
	case r.RewardScore != nil && r.Outcome != rewards.Scored:
		return fmt.Errorf("reward_score is for outcome scored only, not for %q", r.Outcome)
	case r.RewardScore == nil && r.Outcome == rewards.Scored && r.Pending == nil && len(r.Members) == 0:
		return errors.New("outcome scored needs a reward_score")
	case r.Waits != "" && r.Outcome != rewards.OutcomeCancelled || len(r.Waits) > maxClaimName:
		return fmt.Errorf("a result that waits for a dependency has outcome %s and a dependency name of %d bytes, want outcome %s and at most %d bytes", r.Outcome, len(r.Waits), rewards.OutcomeCancelled, maxClaimName)
	case len(r.StepScores) > rewards.MaxSteps:
		return fmt.Errorf("%d step_scores, want at most %d", len(r.StepScores), rewards.MaxSteps)
	case r.Pending != nil && len(r.Pending.Steps) > rewards.MaxSteps:
		return fmt.Errorf("pending reward of %d steps, want at most %d", len(r.Pending.Steps), rewards.MaxSteps)
	}
	for _, m := range r.Members {
		if err := checkClaimed(m, level+1); err != nil {
			return fmt.Errorf("member: %w", err)
		}
	}
	return nil
}
