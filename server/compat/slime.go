package compat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/wire"
)

// readSlime reads POST /rm and /rm/{name}, what slime's remote_rm asks
// (slime/rollout/rm_hub/__init__.py):
//
//	{"prompt": str | [message…], "response": str, "label": any}
//
// The answer is the score, a number. A list of such objects is answered with a list.
// The prompt of a conversation is the text of its last user turn, as with verl; the
// label is the sample's ground_truth.
func readSlime(req *Request) (*Batch, *Fault) {
	p, f := req.reward()
	if f != nil {
		return nil, f
	}
	t, err := strictjson.Parse(req.Body)
	if err != nil {
		return nil, AsFault(err)
	}
	b := &Batch{Whole: true}
	add := func(_ int, v strictjson.Text) error {
		if len(b.Plans) == req.Limits.Samples {
			return req.tooMany()
		}
		b.Plans = append(b.Plans, newPlan(req, p.Name, len(b.Plans)))
		return readAnswered(v, b.Plans[len(b.Plans)-1])
	}
	many := t.Kind() == '['
	if many {
		err = t.Array(add)
	} else {
		err = add(0, t)
	}
	if err != nil {
		return nil, AsFault(err)
	}
	b.Answer = allOrNone(func(scores []decimal, _ []*wire.Result) any {
		if many {
			return scores
		}
		return scores[0]
	})
	return b, nil
}

// readAnswered reads one answer of a model with what it was asked.
func readAnswered(t strictjson.Text, pl Plan) error {
	seen := map[string]bool{}
	err := t.Object(func(key string, v strictjson.Text) (err error) {
		seen[key] = true
		switch key {
		case "prompt":
			if v.Kind() == '[' {
				pl.Sample.Prompt, err = lastUserTurn(v)
			} else {
				pl.Sample.Prompt, err = v.Str()
			}
		case "response":
			pl.Sample.Response, err = v.Str()
		case "label":
			pl.Sample.GroundTruth = v.Raw()
		default:
			err = strictjson.ErrUnknownKey
		}
		return err
	})
	if err == nil && (!seen["prompt"] || !seen["response"]) {
		err = errors.New(`want {"prompt", "response", "label"}`)
	}
	return err
}

// lastUserTurn is the text of a conversation's last user turn.
func lastUserTurn(v strictjson.Text) (string, error) {
	var turns []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(v, &turns); err != nil {
		return "", fmt.Errorf("want a string or a list of messages: %w", err)
	}
	for i, turn := range slices.Backward(turns) {
		if turn.Role != "user" || len(turn.Content) == 0 {
			continue
		}
		if turn.Content[0] == '"' {
			return strictjson.Text(turn.Content).Str()
		}
		var parts []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if err := json.Unmarshal(turn.Content, &parts); err != nil {
			return "", fmt.Errorf("message %d: %w", i, err)
		}
		var text strings.Builder
		for _, p := range parts {
			if p.Type == "text" || p.Type == "" {
				text.WriteString(p.Text)
			}
		}
		return text.String(), nil
	}
	return "", nil
}
