package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// valueOf finds what a source names in a sample; what is not there is BadInput.
func valueOf(src service.Source, s *rewards.Sample) (pickle.Value, error) {
	text, raw, err := src.Find(s)
	if err != nil || raw == nil {
		return text, err
	}
	root, err := parseJSON(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is %w", rewards.BadInput, src.Field, err)
	}
	v, ok := path(src.Below).look(root)
	if !ok {
		return nil, src.Missing()
	}
	return v, nil
}

// textOf finds a text.
func textOf(src service.Source, s *rewards.Sample) (string, error) {
	v, err := valueOf(src, s)
	if err != nil {
		return "", err
	}
	t, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("%w: %s is %s, want text", rewards.BadInput, src, typeName(v))
	}
	return t, nil
}

// objectOf finds a JSON object, or text that holds one, as data sets in parquet have
// it.
func objectOf(src service.Source, s *rewards.Sample) (*pickle.Dict, error) {
	v, err := valueOf(src, s)
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
