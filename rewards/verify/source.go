package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// source names where something stands in a sample: a field, and below the two that
// hold JSON a path of names and indices, such as extra_info.tables.0.
type source struct {
	field string
	below []string
}

// sourceFields are the fields a source may name, those with JSON in them last.
func sourceFields() []string {
	return []string{"prompt", "response", "data_source", "id", "ground_truth", "extra_info"}
}

func parseSource(text string) (source, error) {
	field, rest, deeper := strings.Cut(text, ".")
	if !slices.Contains(sourceFields(), field) {
		return source{}, fmt.Errorf("%q is no field of a sample: want one of %s, or a path below the last two, such as extra_info.caption",
			service.Clip(text, 40), strings.Join(sourceFields(), ", "))
	}
	if !deeper {
		return source{field: field}, nil
	}
	if field != "ground_truth" && field != "extra_info" {
		return source{}, fmt.Errorf("%q: %s is text and has nothing below it", service.Clip(text, 40), field)
	}
	below := strings.Split(rest, ".")
	if slices.Contains(below, "") {
		return source{}, fmt.Errorf("%q: two dots in a row, or one at the end", service.Clip(text, 40))
	}
	return source{field, below}, nil
}

// value finds the value in a sample, as JSON; what is not there is BadInput.
func (src source) value(s *rewards.Sample) (json.RawMessage, error) {
	switch src.field {
	case "prompt":
		return quoted(s.Prompt), nil
	case "response":
		return quoted(s.Response), nil
	case "data_source":
		return quoted(s.DataSource), nil
	case "id":
		return quoted(s.ID), nil
	}
	raw := s.ExtraInfo
	if src.field == "ground_truth" {
		raw = s.GroundTruth
	}
	name := strings.Join(append([]string{src.field}, src.below...), ".")
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, fmt.Errorf("%w: the sample has no %s", rewards.BadInput, src.field)
	}
	if !json.Valid(raw) {
		return nil, fmt.Errorf("%w: %s is not JSON", rewards.BadInput, src.field)
	}
	for _, step := range src.below {
		var ok bool
		if raw, ok = look(raw, step); !ok {
			return nil, fmt.Errorf("%w: the sample has no %s", rewards.BadInput, name)
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
