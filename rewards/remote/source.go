package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/rewards"
)

// source names where something stands in a sample: prompt, response, data_source,
// id, ground_truth or extra_info, and of the last two also a path below them, such
// as extra_info.caption. The zero value names nothing.
type source struct {
	field string
	below path
}

// sourceFields are the fields a source may name, those with JSON in them last.
func sourceFields() []string {
	return []string{"prompt", "response", "data_source", "id", "ground_truth", "extra_info"}
}

func parseSource(text string) (source, error) {
	field, rest, deeper := strings.Cut(text, ".")
	if !slices.Contains(sourceFields(), field) {
		return source{}, fmt.Errorf("%q is no field of a sample: want one of %s, or a path below the last two, such as extra_info.caption",
			text, strings.Join(sourceFields(), ", "))
	}
	if !deeper {
		return source{field: field}, nil
	}
	if field != "ground_truth" && field != "extra_info" {
		return source{}, fmt.Errorf("%q: %s is text and has nothing below it", text, field)
	}
	below, err := parsePath(rest)
	if err == nil && len(below) == 0 {
		err = fmt.Errorf("%q ends with a dot", text)
	}
	return source{field: field, below: below}, err
}

func (src source) String() string {
	if len(src.below) == 0 {
		return src.field
	}
	return src.field + "." + src.below.String()
}

// value finds the value in a sample; what is not there is BadInput.
func (src source) value(s *rewards.Sample) (pickle.Value, error) {
	var raw json.RawMessage
	switch src.field {
	case "prompt":
		return s.Prompt, nil
	case "response":
		return s.Response, nil
	case "data_source":
		return s.DataSource, nil
	case "id":
		return s.ID, nil
	case "ground_truth":
		raw = s.GroundTruth
	default:
		raw = s.ExtraInfo
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, fmt.Errorf("%w: the sample has no %s", rewards.BadInput, src.field)
	}
	root, err := parseJSON(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is %w", rewards.BadInput, src.field, err)
	}
	v, ok := src.below.look(root)
	if !ok {
		return nil, fmt.Errorf("%w: the sample has no %s", rewards.BadInput, src)
	}
	return v, nil
}

// text finds a text.
func (src source) text(s *rewards.Sample) (string, error) {
	v, err := src.value(s)
	if err != nil {
		return "", err
	}
	t, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("%w: %s is %s, want text", rewards.BadInput, src, typeName(v))
	}
	return t, nil
}

// object finds a JSON object, or text that holds one, as data sets in parquet have
// it.
func (src source) object(s *rewards.Sample) (*pickle.Dict, error) {
	v, err := src.value(s)
	if err != nil {
		return nil, err
	}
	if text, ok := v.(string); ok {
		if inner, err := parseJSON([]byte(text)); err == nil {
			v = inner
		}
	}
	d, ok := v.(*pickle.Dict)
	if !ok {
		return nil, fmt.Errorf("%w: %s is %s, want an object", rewards.BadInput, src, typeName(v))
	}
	return d, nil
}

// appendJSON writes a tree as JSON. What has no form in JSON is written as its
// type's name: it only occurs in what is quoted.
func appendJSON(b []byte, v pickle.Value) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		return appendText(b, v)
	case json.Number:
		return append(b, v.String()...)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case *pickle.List:
		b = append(b, '[')
		for i, item := range v.Items {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, item)
		}
		return append(b, ']')
	case *pickle.Dict:
		b = append(b, '{')
		for i, p := range v.Items {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(b, fmt.Sprint(p.Key))
			b = appendJSON(append(b, ':'), p.Value)
		}
		return append(b, '}')
	case float64:
		if out, err := json.Marshal(v); err == nil {
			return append(b, out...)
		}
	}
	return appendText(b, typeName(v))
}

// appendText writes a JSON string without escaping <, > and &, which prompts have.
func appendText(b []byte, s string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return append(b, `""`...) // unreachable: a string is always encodable
	}
	return append(b, bytes.TrimRight(out.Bytes(), "\n")...)
}
