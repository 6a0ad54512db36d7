package hftok

import (
	"encoding/json"
	"fmt"
)

// postProcessor puts texts and special tokens together, by a template for one text and one for two. Bert's
// and Roberta's processors are such templates too. A nil one joins two texts as they are.
type postProcessor struct {
	one, two []templatePart
	// bare keeps the types of the texts as they are where no special tokens are asked for: what BERT's
	// processor does, and no other.
	bare bool
}

// templatePart is a place in a template: the first text, the second, or special tokens.
type templatePart struct {
	text int // 0 or 1; -1: special tokens
	ids  []int64
	kind int64 // token type id
}

// specials is templatePart.text for special tokens.
const specials = -1

func special(kind int64, ids ...int64) templatePart { return templatePart{specials, ids, kind} }

func text(n int, kind int64) templatePart { return templatePart{text: n, kind: kind} }

func buildPost(at string, raw json.RawMessage) (*postProcessor, error) {
	return buildPostAt(at, raw, 0)
}

// buildPostAt returns nil for a processor that changes no ids and no types.
func buildPostAt(at string, raw json.RawMessage, depth int) (*postProcessor, error) {
	c, err := openComponent(at, raw)
	if c == nil || err != nil {
		return nil, err
	}
	var p *postProcessor
	switch c.kind {
	case "Sequence":
		return buildPostSequence(c, depth)
	case "ByteLevel": // moves offsets only
		c.ignore("add_prefix_space", "trim_offsets", "use_regex")
	case "TemplateProcessing":
		p = readTemplate(c)
	case "BertProcessing":
		cls, sep := c.tokenID("cls"), c.tokenID("sep")
		p = &postProcessor{
			one:  []templatePart{special(0, cls), text(0, 0), special(0, sep)},
			two:  []templatePart{special(0, cls), text(0, 0), special(0, sep), text(1, 1), special(1, sep)},
			bare: true,
		}
	case "RobertaProcessing":
		c.ignore("add_prefix_space", "trim_offsets")
		cls, sep := c.tokenID("cls"), c.tokenID("sep")
		p = &postProcessor{
			one: []templatePart{special(0, cls), text(0, 0), special(0, sep)},
			two: []templatePart{special(0, cls), text(0, 0), special(0, sep, sep), text(1, 0), special(0, sep)},
		}
	default:
		return nil, c.unknown()
	}
	return p, c.close()
}

// ignore takes settings that only move offsets, which are not kept here.
func (c *component) ignore(keys ...string) {
	for _, k := range keys {
		c.boolean(k, false)
	}
}

// tokenID reads ["[CLS]", 101].
func (c *component) tokenID(key string) int64 {
	var pair [2]json.RawMessage
	var token string
	var id int64
	c.require(key, &pair)
	if c.err == nil && (json.Unmarshal(pair[0], &token) != nil || json.Unmarshal(pair[1], &id) != nil) {
		c.fail(fmt.Errorf("%w: %s: %s is not a token with its id", errInvalid, c.place(), key))
	}
	return id
}

func buildPostSequence(c *component, depth int) (*postProcessor, error) {
	var only *postProcessor
	err := c.list("processors", depth, func(at string, raw json.RawMessage) error {
		p, err := buildPostAt(at, raw, depth+1)
		if err != nil || p == nil {
			return err
		}
		if only != nil {
			return fmt.Errorf("%w: %s is the second of %s that adds tokens", errUnsupported, at, c.at)
		}
		only = p
		return nil
	})
	return only, err
}

// maxTemplate bounds the places of a template and the ids of a special token.
const maxTemplate = 64

func readTemplate(c *component) *postProcessor {
	var tokens map[string]struct{ IDs []int64 }
	c.require("special_tokens", &tokens)
	p := &postProcessor{}
	p.one = c.template("single", tokens, 1)
	p.two = c.template("pair", tokens, 2)
	return p
}

// template reads one template, for so many texts.
func (c *component) template(key string, tokens map[string]struct{ IDs []int64 }, texts int) []templatePart {
	type place struct {
		ID     string
		TypeID int64 `json:"type_id"`
	}
	var list []struct {
		Sequence     *place
		SpecialToken *place
	}
	c.require(key, &list)
	if len(list) > maxTemplate {
		c.fail(fmt.Errorf("%w: %s: %s has %d parts, more than %d", errInvalid, c.place(), key, len(list), maxTemplate))
		return nil
	}
	parts := make([]templatePart, 0, len(list))
	for i, e := range list {
		switch {
		case e.Sequence != nil && e.Sequence.ID == "A":
			parts = append(parts, text(0, e.Sequence.TypeID))
		case e.Sequence != nil && e.Sequence.ID == "B" && texts == 2:
			parts = append(parts, text(1, e.Sequence.TypeID))
		case e.SpecialToken != nil:
			tok, ok := tokens[e.SpecialToken.ID]
			if !ok || len(tok.IDs) > maxTemplate {
				c.fail(fmt.Errorf("%w: %s: %s[%d]: special token %q has no list of ids", errInvalid, c.place(), key, i, short(e.SpecialToken.ID)))
			}
			parts = append(parts, special(e.SpecialToken.TypeID, tok.IDs...))
		default:
			c.fail(fmt.Errorf("%w: %s: %s[%d] is neither a text nor a special token", errInvalid, c.place(), key, i))
		}
	}
	return parts
}

// adds reports whether there is anything to do for a single text.
func (p *postProcessor) adds(special bool) bool { return p != nil && special }

// added is how many special tokens the template has.
func (p *postProcessor) added(pair bool) int {
	if p == nil {
		return 0
	}
	n := 0
	for _, part := range p.parts(pair) {
		n += len(part.ids)
	}
	return n
}

func (p *postProcessor) parts(pair bool) []templatePart {
	if pair {
		return p.two
	}
	return p.one
}

// ids lists the special tokens' ids.
func (p *postProcessor) ids() []int64 {
	if p == nil {
		return nil
	}
	var ids []int64
	for _, pair := range []bool{false, true} {
		for _, part := range p.parts(pair) {
			ids = append(ids, part.ids...)
		}
	}
	return ids
}

func (p *postProcessor) single(ids []int64) Encoding {
	return fill(p.one, true, ids)
}

func (p *postProcessor) pair(a, b []int64, special bool) Encoding {
	if p == nil || p.bare && !special {
		return fill([]templatePart{text(0, 0), text(1, 1)}, false, a, b)
	}
	return fill(p.two, special, a, b)
}

// fill puts texts into a template.
func fill(parts []templatePart, special bool, texts ...[]int64) Encoding {
	n := 0
	for _, t := range texts {
		n += len(t) + 4
	}
	e := Encoding{IDs: make([]int64, 0, n), Types: make([]int64, 0, n), Mask: make([]int64, 0, n)}
	for _, part := range parts {
		ids := part.ids
		if part.text >= 0 {
			ids = texts[part.text]
		} else if !special {
			continue
		}
		e.IDs = append(e.IDs, ids...)
		for range ids {
			e.Types, e.Mask = append(e.Types, part.kind), append(e.Mask, 1)
		}
	}
	return e
}
