package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// Piece is a part of a text with placeholders: literal text, or the name of a placeholder.
type Piece struct {
	Text        string
	Placeholder bool
}

// Cut splits a text at its {placeholders}. {{ and }} are literal braces. The empty text is one
// empty piece.
func Cut(text string) ([]Piece, error) {
	var out []Piece
	literal := ""
	for text != "" {
		i := strings.IndexAny(text, "{}")
		if i < 0 {
			literal += text
			break
		}
		literal, text = literal+text[:i], text[i:]
		if strings.HasPrefix(text, "{{") || strings.HasPrefix(text, "}}") {
			literal, text = literal+text[:1], text[2:]
			continue
		}
		end := strings.IndexByte(text, '}')
		if text[0] == '}' || end < 0 {
			return nil, fmt.Errorf("%q: an unpaired brace; write {{ or }} for a literal brace", Clip(text, 40))
		}
		if literal != "" {
			out = append(out, Piece{Text: literal})
		}
		out, literal, text = append(out, Piece{Text: text[1:end], Placeholder: true}), "", text[end+1:]
	}
	if literal != "" || len(out) == 0 {
		out = append(out, Piece{Text: literal})
	}
	return out, nil
}

// Source is the place of a value in a sample: prompt, response, data_source, id, ground_truth or
// extra_info. For the last two, Below is a path of names and indices, such as extra_info.tables.0.
// The zero value is no place.
type Source struct {
	Field string
	Below []string
}

// sourceFields are the fields a source may name, those with JSON in them last.
func sourceFields() []string {
	return []string{"prompt", "response", "data_source", "id", "ground_truth", "extra_info"}
}

// maxSteps bounds a path: JSON is not nested deeper.
const maxSteps = 64

// ParseSource parses a source such as "extra_info.caption".
func ParseSource(text string) (Source, error) {
	field, rest, deeper := strings.Cut(text, ".")
	if !slices.Contains(sourceFields(), field) {
		return Source{}, fmt.Errorf("%q is not a field of a sample: want one of %s, or a path below the last two, such as extra_info.caption",
			Clip(text, 40), strings.Join(sourceFields(), ", "))
	}
	if !deeper {
		return Source{Field: field}, nil
	}
	if field != "ground_truth" && field != "extra_info" {
		return Source{}, fmt.Errorf("%q: %s is text and has no fields", Clip(text, 40), field)
	}
	below := strings.Split(rest, ".")
	if slices.Contains(below, "") {
		return Source{}, fmt.Errorf("%q: two dots in a row, or one at the end", Clip(text, 40))
	}
	if len(below) > maxSteps {
		return Source{}, fmt.Errorf("%q: %d steps, at most %d", Clip(text, 40), len(below), maxSteps)
	}
	return Source{Field: field, Below: below}, nil
}

// String returns the form that ParseSource parses.
func (src Source) String() string {
	return strings.Join(append([]string{src.Field}, src.Below...), ".")
}

// Find returns the field of a sample: its text, or the JSON in which the path starts; root is nil
// for a text field. If a JSON field is empty, the error wraps rewards.BadInput.
func (src Source) Find(s *rewards.Sample) (text string, root json.RawMessage, err error) {
	switch src.Field {
	case "prompt":
		return s.Prompt, nil, nil
	case "response":
		return s.Response, nil, nil
	case "data_source":
		return s.DataSource, nil, nil
	case "id":
		return s.ID, nil, nil
	case "ground_truth":
		root = s.GroundTruth
	case "extra_info":
		root = s.ExtraInfo
	}
	if root = bytes.TrimSpace(root); len(root) == 0 {
		return "", nil, fmt.Errorf("%w: the sample has no %s", rewards.BadInput, src.Field)
	}
	return "", root, nil
}

// Missing returns the error for a sample in which the path leads to no value.
func (src Source) Missing() error {
	return fmt.Errorf("%w: the sample has no %s", rewards.BadInput, src)
}
