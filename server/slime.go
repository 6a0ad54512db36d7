package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/wire"
)

// slime is POST /rm and /rm/{name}, what slime's remote_rm asks
// (slime/rollout/rm_hub/__init__.py):
//
//	{"prompt": str | [message…], "response": str, "label": any}
//
// The answer is the score, a number. A list of such objects is answered with a list.
// The prompt of a conversation is the text of its last user turn, as with verl; the
// label is the sample's ground_truth.
func (s *Server) slime() protocol {
	return protocol{run: "_slime", read: func(req *request) (*batch, *fault) {
		p, f := s.profile(req.profile)
		if f != nil {
			return nil, f
		}
		t, err := parseJSON(req.body.data)
		if err != nil {
			return nil, asFault(err)
		}
		b := &batch{whole: true}
		add := func(_ int, v jsonText) error {
			if len(b.plans) == s.cfg.BatchSamples {
				return s.tooMany()
			}
			b.plans = append(b.plans, newPlan(req, p.Name, len(b.plans)))
			return readSlime(v, b.plans[len(b.plans)-1])
		}
		many := t.kind() == '['
		if many {
			err = t.array(add)
		} else {
			err = add(0, t)
		}
		if err != nil {
			return nil, asFault(err)
		}
		b.answer = allOrNone(func(scores []decimal, _ []*wire.Result) any {
			if many {
				return scores
			}
			return scores[0]
		})
		return b, nil
	}}
}

func readSlime(t jsonText, pl plan) error {
	seen := map[string]bool{}
	err := t.object(func(key string, v jsonText) (err error) {
		seen[key] = true
		switch key {
		case "prompt":
			if v.kind() == '[' {
				pl.sample.Prompt, err = lastUserTurn(v)
			} else {
				pl.sample.Prompt, err = v.str()
			}
		case "response":
			pl.sample.Response, err = v.str()
		case "label":
			pl.sample.GroundTruth = v.raw()
		default:
			err = errUnknownKey
		}
		return err
	})
	if err == nil && (!seen["prompt"] || !seen["response"]) {
		err = errors.New(`want {"prompt", "response", "label"}`)
	}
	return err
}

// lastUserTurn is the text of a conversation's last user turn.
func lastUserTurn(v jsonText) (string, error) {
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
			return jsonText(turn.Content).str()
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
