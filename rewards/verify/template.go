package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// template is a request with placeholders in its texts. A text that is one placeholder
// and nothing else becomes the value itself, a number or an object as well; within
// other text it becomes text. {{ and }} are braces. The names of an object are taken
// as they stand.
type template struct{ root any } // strings are text

// text is a string cut at its placeholders.
type text []piece

// piece is a literal, or a placeholder.
type piece struct {
	literal string
	source  service.Source // the zero value: it is none
}

// maxTemplate bounds a request's template, in bytes.
const maxTemplate = 1 << 20

func parseTemplate(raw json.RawMessage) (*template, error) {
	if len(raw) > maxTemplate {
		return nil, fmt.Errorf("has %d bytes, at most %d", len(raw), maxTemplate)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if _, ok := v.(map[string]any); !ok {
		return nil, errors.New("is not an object")
	}
	var faults []error
	return &template{compile(v, &faults)}, errors.Join(faults...)
}

func compile(v any, faults *[]error) any {
	switch v := v.(type) {
	case string:
		parsed, err := parseText(v)
		if err != nil {
			*faults = append(*faults, err)
		}
		return parsed
	case []any:
		for i := range v {
			v[i] = compile(v[i], faults)
		}
	case map[string]any:
		for name := range v {
			v[name] = compile(v[name], faults)
		}
	}
	return v
}

// parseText cuts a string at its placeholders.
func parseText(s string) (text, error) {
	pieces, err := service.Cut(s)
	if err != nil {
		return nil, err
	}
	var out text
	for _, p := range pieces {
		if !p.Placeholder {
			out = append(out, piece{literal: p.Text})
			continue
		}
		src, err := service.ParseSource(p.Text)
		if err != nil {
			return nil, fmt.Errorf("the placeholder {%s}: %w; write {{ for a brace", service.Clip(p.Text, 40), err)
		}
		out = append(out, piece{source: src})
	}
	return out, nil
}

// render fills the template in for a sample.
func (t *template) render(s *rewards.Sample) ([]byte, error) {
	v, err := render(t.root, s)
	if err != nil {
		return nil, err
	}
	out, err := encode(v)
	if err != nil {
		return nil, fmt.Errorf("%w: the request: %w", rewards.Internal, err)
	}
	return out, nil
}

func render(v any, s *rewards.Sample) (any, error) {
	var err error
	switch v := v.(type) {
	case text:
		return v.render(s)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			if out[i], err = render(v[i], s); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for name := range v {
			if out[name], err = render(v[name], s); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

func (t text) render(s *rewards.Sample) (any, error) {
	if len(t) == 1 && t[0].source.Field != "" {
		return valueOf(t[0].source, s)
	}
	var b strings.Builder
	for _, p := range t {
		b.WriteString(p.literal)
		if p.source.Field == "" {
			continue
		}
		raw, err := valueOf(p.source, s)
		if err != nil {
			return nil, err
		}
		var inner string
		if json.Unmarshal(raw, &inner) == nil && raw[0] == '"' {
			b.WriteString(inner)
		} else {
			b.Write(raw)
		}
	}
	return b.String(), nil
}
