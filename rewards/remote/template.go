package remote

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// template is a request with placeholders in its texts. A text that is one
// placeholder and nothing else becomes the value itself, a number or an object as
// well; within other text it becomes text. {{ and }} are braces.
type template struct {
	root     pickle.Value // strings with placeholders are *text
	pictures bool         // a placeholder needs the sample's picture
	frames   bool         // likewise, all frames of a video
}

// text is a string with placeholders, cut into pieces.
type text struct{ pieces []piece }

// piece is a literal, or a placeholder: a picture's name or a source.
type piece struct {
	literal string
	picture string
	source  service.Source
}

// pictureNames are the placeholders that are not sources.
func pictureNames() []string { return []string{"image_b64", "image_url", "frames_b64"} }

// maxTemplate bounds a request's template, in bytes.
const maxTemplate = 1 << 20

func parseTemplate(raw json.RawMessage) (*template, error) {
	if len(raw) > maxTemplate {
		return nil, fmt.Errorf("has %d bytes, want at most %d", len(raw), maxTemplate)
	}
	v, err := parseJSON(raw)
	if err != nil {
		return nil, err
	}
	if _, ok := v.(*pickle.Dict); !ok {
		return nil, fmt.Errorf("is %s, want an object", typeName(v))
	}
	t := &template{}
	var faults []error
	t.root = t.compile(v, &faults)
	if t.pictures && t.frames {
		faults = append(faults, errors.New("contains both {frames_b64} and a single picture; keep one of them"))
	}
	return t, errors.Join(faults...)
}

func (t *template) compile(v pickle.Value, faults *[]error) pickle.Value {
	switch v := v.(type) {
	case string:
		parsed, err := t.parse(v)
		if err != nil {
			*faults = append(*faults, err)
		}
		return parsed
	case *pickle.List:
		for i, item := range v.Items {
			v.Items[i] = t.compile(item, faults)
		}
	case *pickle.Dict:
		for i, p := range v.Items {
			v.Items[i].Value = t.compile(p.Value, faults)
		}
	}
	return v
}

// parse cuts a string at its placeholders.
func (t *template) parse(s string) (*text, error) {
	cut, err := service.Cut(s)
	if err != nil {
		return nil, err
	}
	out := &text{}
	for _, c := range cut {
		p := piece{literal: c.Text}
		if c.Placeholder {
			if p, err = t.placeholder(c.Text); err != nil {
				return nil, err
			}
		}
		out.pieces = append(out.pieces, p)
	}
	if len(out.pieces) > 1 && slices.ContainsFunc(out.pieces, func(p piece) bool { return p.picture == "frames_b64" }) {
		return nil, errors.New("{frames_b64} is a list and must be the whole text; remove the rest of the text")
	}
	return out, nil
}

func (t *template) placeholder(name string) (piece, error) {
	if slices.Contains(pictureNames(), name) {
		t.frames = t.frames || name == "frames_b64"
		t.pictures = t.pictures || name != "frames_b64"
		return piece{picture: name}, nil
	}
	src, err := service.ParseSource(name)
	if err != nil {
		return piece{}, fmt.Errorf("the placeholder {%s}: %w, or one of %s; write {{ for a brace", service.Clip(name, 40), err, strings.Join(pictureNames(), ", "))
	}
	return piece{source: src}, nil
}

// render fills the template in for a sample.
func (t *template) render(s *rewards.Sample, it *item, mime string) (pickle.Value, error) {
	return renderValue(t.root, func(p piece) (pickle.Value, error) {
		switch p.picture {
		case "image_b64":
			return base64Of(it.picture), nil
		case "image_url":
			return "data:" + mime + ";base64," + base64.StdEncoding.EncodeToString(it.picture), nil
		case "frames_b64":
			l := &pickle.List{}
			for _, file := range it.frames {
				l.Items = append(l.Items, base64Of(file))
			}
			return l, nil
		}
		if p.source.Field != "" {
			return valueOf(p.source, s)
		}
		return p.literal, nil
	})
}

func renderValue(v pickle.Value, of func(piece) (pickle.Value, error)) (pickle.Value, error) {
	var err error
	switch v := v.(type) {
	case *text:
		if len(v.pieces) == 1 {
			return of(v.pieces[0])
		}
		var b strings.Builder
		for _, p := range v.pieces {
			part, err := of(p)
			if err != nil {
				return nil, err
			}
			if s, ok := part.(string); ok {
				b.WriteString(s)
			} else {
				b.Write(appendJSON(nil, part))
			}
		}
		return b.String(), nil
	case *pickle.List:
		out := &pickle.List{Items: make([]pickle.Value, len(v.Items))}
		for i, item := range v.Items {
			if out.Items[i], err = renderValue(item, of); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *pickle.Dict:
		out := &pickle.Dict{Items: make([]pickle.Pair, len(v.Items))}
		for i, p := range v.Items {
			out.Items[i].Key = p.Key
			if out.Items[i].Value, err = renderValue(p.Value, of); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}
