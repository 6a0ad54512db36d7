package hftok

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// piece is a part of the text on its way to the model.
type piece struct {
	text  string
	first bool // it stands at the beginning of the whole text
}

// preTokenizer cuts sc.pieces into smaller ones; empty ones are dropped.
type preTokenizer interface {
	cut(sc *scratch) error
}

func buildPreTokenizer(at string, raw json.RawMessage, depth int) (preTokenizer, error) {
	c, err := openComponent(at, raw)
	if c == nil || err != nil {
		return nil, err
	}
	var p preTokenizer
	switch c.kind {
	case "Sequence":
		var seq preTokenizers
		err := c.list("pretokenizers", depth, func(at string, raw json.RawMessage) error {
			m, err := buildPreTokenizer(at, raw, depth+1)
			seq = append(seq, m)
			return err
		})
		return seq, err
	case "ByteLevel":
		return buildByteLevel(c)
	case "BertPreTokenizer":
		p = preTokenizers{splitter{find: charFinder(unicode.IsSpace), keep: removed}, splitter{find: charFinder(isPunctuation), keep: isolated}}
	case "CharDelimiterSplit":
		p = splitter{find: literal(c.char("delimiter")), keep: removed}
	case "Digits":
		p = splitter{find: charFinder(isNumeric), keep: contiguous}
		if c.boolean("individual_digits", false) {
			p = splitter{find: charFinder(isNumeric), keep: isolated}
		}
	case "FixedLength":
		n := fixedLength(5)
		if c.value("length", &n); n < 1 {
			c.fail(fmt.Errorf("%w: %s: length %d", errInvalid, c.place(), n))
		}
		p = n
	case "Metaspace":
		p = readMetaspace(c)
	case "Punctuation":
		p = splitter{find: charFinder(isPunctuation), keep: c.behavior(isolated)}
	case "Split":
		s := splitter{find: c.pattern("pattern"), keep: c.behavior("")}
		c.require("invert", &s.invert)
		p = s
	case "Whitespace":
		p = splitter{find: charRuns{}, keep: removed, invert: true}
	case "WhitespaceSplit":
		p = splitter{find: charFinder(unicode.IsSpace), keep: removed}
	default:
		return nil, c.unknown()
	}
	return p, c.close()
}

// preTokenizers is a Sequence.
type preTokenizers []preTokenizer

func (seq preTokenizers) cut(sc *scratch) error {
	for _, p := range seq {
		if err := p.cut(sc); err != nil {
			return err
		}
	}
	return nil
}

// buildByteLevel reads the pre-tokenizer of GPT-2 as up to three steps.
func buildByteLevel(c *component) (preTokenizer, error) {
	var seq preTokenizers
	var space, trim bool
	c.require("add_prefix_space", &space)
	c.require("trim_offsets", &trim)
	if space {
		seq = append(seq, prefixSpace{})
	}
	if c.boolean("use_regex", true) {
		seq = append(seq, splitter{find: handWritten(exprGPT2), keep: isolated})
	}
	return append(seq, toByteLevel{}), c.close()
}

// takeByteLevel removes the byte-level step at the end of a pre-tokenizer and reports whether there was
// one.
func takeByteLevel(pre *preTokenizer) bool {
	switch p := (*pre).(type) {
	case toByteLevel:
		*pre = preTokenizers{}
		return true
	case preTokenizers:
		if len(p) == 0 {
			return false
		}
		return takeByteLevel(&p[len(p)-1])
	}
	return false
}

// each replaces every piece by what of makes of it.
func each(sc *scratch, of func(dst []piece, p piece) ([]piece, error)) error {
	out := sc.spare[:0]
	var err error
	for _, p := range sc.pieces {
		if out, err = of(out, p); err != nil {
			return err
		}
	}
	sc.pieces, sc.spare = out, sc.pieces
	return nil
}

// toByteLevel writes the pieces in the byte alphabet.
type toByteLevel struct{}

func (toByteLevel) cut(sc *scratch) error {
	for i := range sc.pieces {
		sc.buf = appendByteLevel(sc.buf[:0], sc.pieces[i].text)
		sc.pieces[i].text = string(sc.buf)
	}
	return nil
}

// prefixSpace puts a space before every piece that does not begin with one.
type prefixSpace struct{}

func (prefixSpace) cut(sc *scratch) error {
	for i := range sc.pieces {
		if p := &sc.pieces[i]; p.text[0] != ' ' {
			p.text = " " + p.text
		}
	}
	return nil
}

// splitter cuts at the matches of a pattern.
type splitter struct {
	find   finder
	keep   behavior
	invert bool // what does not match is the match
}

func (s splitter) cut(sc *scratch) error {
	return each(sc, func(dst []piece, p piece) ([]piece, error) {
		spans, err := s.find.spans(sc.spans[:0], p.text)
		if err != nil {
			return nil, err
		}
		sc.spans = spans
		if s.invert {
			for i := range spans {
				spans[i].match = !spans[i].match
			}
		}
		for _, sp := range s.keep.shape(spans) {
			if sp.from < sp.to {
				dst = append(dst, piece{p.text[sp.from:sp.to], p.first && sp.from == 0})
			}
		}
		return dst, nil
	})
}

// charFinder matches each character that it is true of, one by one.
type charFinder func(rune) bool

func (is charFinder) spans(dst []span, s string) ([]span, error) {
	done := 0
	for i, r := range s {
		if !is(r) {
			continue
		}
		if done < i {
			dst = append(dst, span{done, i, false})
		}
		done = i + utf8.RuneLen(r)
		dst = append(dst, span{i, done, true})
	}
	if done < len(s) {
		dst = append(dst, span{done, len(s), false})
	}
	return dst, nil
}

// charRuns is the pattern \w+|[^\w\s]+ of the regex crate.
type charRuns struct{}

func (charRuns) spans(dst []span, s string) ([]span, error) {
	const (
		blank = iota
		word
		sign
	)
	from, last := 0, blank
	for i, r := range s {
		kind := sign
		switch {
		case isWord(r):
			kind = word
		case unicode.IsSpace(r):
			kind = blank
		}
		if kind != last && from < i {
			dst = append(dst, span{from, i, last != blank})
			from = i
		}
		last = kind
	}
	if from < len(s) {
		dst = append(dst, span{from, len(s), last != blank})
	}
	return dst, nil
}

// fixedLength cuts pieces of so many characters.
type fixedLength int

func (n fixedLength) cut(sc *scratch) error {
	return each(sc, func(dst []piece, p piece) ([]piece, error) {
		from, count := 0, 0
		for i := range p.text {
			if count == int(n) {
				dst = append(dst, piece{p.text[from:i], p.first && from == 0})
				from, count = i, 0
			}
			count++
		}
		return append(dst, piece{p.text[from:], p.first && from == 0}), nil
	})
}

// metaspace is sentencepiece's: spaces become a visible sign, which also goes before the text.
type metaspace struct {
	sign   string
	scheme string // first, never or always: where the sign is put before a piece
	split  bool
}

func readMetaspace(c *component) metaspace {
	m := metaspace{sign: c.char("replacement"), split: c.boolean("split", true)}
	m.scheme = c.oneOf("prepend_scheme", "always", "first", "never")
	c.raw("str_rep") // the sign again, in old files
	var add *bool
	if c.value("add_prefix_space", &add); add != nil && !*add && m.scheme != "never" {
		c.fail(fmt.Errorf("%w: %s: add_prefix_space is false, but prepend_scheme is %q", errInvalid, c.place(), m.scheme))
	}
	return m
}

func (m metaspace) cut(sc *scratch) error {
	return each(sc, func(dst []piece, p piece) ([]piece, error) {
		s := strings.ReplaceAll(p.text, " ", m.sign)
		if (m.scheme == "always" || m.scheme == "first" && p.first) && !strings.HasPrefix(s, m.sign) {
			s = m.sign + s
		}
		if !m.split {
			return append(dst, piece{s, p.first}), nil
		}
		// Each sign begins a piece: MergedWithNext, in which a sign before a sign stays alone.
		first := p.first
		for len(s) > 0 {
			end := len(s)
			if i := strings.Index(s[min(len(s), len(m.sign)):], m.sign); i >= 0 && strings.HasPrefix(s, m.sign) {
				end = i + len(m.sign)
			} else if i := strings.Index(s, m.sign); i > 0 {
				end = i
			}
			dst = append(dst, piece{s[:end], first})
			s, first = s[end:], false
		}
		return dst, nil
	})
}
