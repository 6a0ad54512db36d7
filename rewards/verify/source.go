package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// valueOf finds what a source names in a sample, as JSON; what is not there is BadInput.
func valueOf(src service.Source, s *rewards.Sample) (json.RawMessage, error) {
	text, raw, err := src.Find(s)
	switch {
	case err != nil:
		return nil, err
	case raw == nil:
		return quoted(text), nil
	case !json.Valid(raw):
		return nil, fmt.Errorf("%w: %s is not JSON", rewards.BadInput, src.Field)
	}
	for _, step := range src.Below {
		var ok bool
		if raw, ok = look(raw, step); !ok {
			return nil, src.Missing()
		}
	}
	return raw, nil
}

// look takes one step below a value that is valid JSON.
func look(raw json.RawMessage, step string) (json.RawMessage, bool) {
	switch raw = bytes.TrimSpace(raw); raw[0] {
	case '{':
		var object map[string]json.RawMessage
		_ = json.Unmarshal(raw, &object)
		v, ok := object[step]
		return v, ok
	case '[':
		var list []json.RawMessage
		_ = json.Unmarshal(raw, &list)
		i, err := strconv.Atoi(step)
		if err != nil || i < 0 || i >= len(list) {
			return nil, false
		}
		return list[i], true
	}
	return nil, false
}
