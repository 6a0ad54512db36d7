package hftok

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer rewrites a text before it is cut.
type normalizer interface {
	// normalize returns the new text. first says that its first character still stands for the
	// beginning of the old text, which only Metaspace's scheme "first" asks about.
	normalize(s string) (out string, first bool, err error)
}

func buildNormalizer(at string, raw json.RawMessage, depth int) (normalizer, error) {
	c, err := openComponent(at, raw)
	if c == nil || err != nil {
		return nil, err
	}
	var n normalizer
	switch c.kind {
	case "Sequence":
		var seq normalizers
		err := c.list("normalizers", depth, func(at string, raw json.RawMessage) error {
			m, err := buildNormalizer(at, raw, depth+1)
			seq = append(seq, m)
			return err
		})
		return seq, err
	case "BertNormalizer":
		b := bertNormalizer{clean: c.boolean("clean_text", true), chinese: c.boolean("handle_chinese_chars", true), lower: c.boolean("lowercase", true)}
		b.strip = c.boolean("strip_accents", b.lower)
		n = b
	case "Lowercase":
		n = plain(lower)
	case "NFC":
		n = form{norm.NFC}
	case "NFD":
		n = form{norm.NFD}
	case "NFKC":
		n = form{norm.NFKC}
	case "NFKD":
		n = form{norm.NFKD}
	case "Strip":
		n = strip{c.boolean("strip_left", true), c.boolean("strip_right", true)}
	case "StripAccents":
		n = without(isCombining)
	case "Nmt":
		n = nmt{}
	case "Prepend":
		n = prepend(c.text("prepend", maxContent))
	case "Replace":
		n = replace{find: c.pattern("pattern"), content: c.text("content", maxContent)}
	case "ByteLevel":
		// trim_offsets and the like are written by some tools; the normaliser has no settings.
		n = plain(func(s string) string { return string(appendByteLevel(make([]byte, 0, 2*len(s)), s)) })
	case "Precompiled":
		var blob []byte
		c.require("precompiled_charsmap", &blob)
		n, err = newCharsmap(blob)
		if err != nil && c.err == nil {
			return nil, fmt.Errorf("%w: %s: %w", errInvalid, c.place(), err)
		}
	default:
		return nil, c.unknown()
	}
	return n, c.close()
}

// normalizers is a Sequence.
type normalizers []normalizer

func (seq normalizers) normalize(s string) (string, bool, error) {
	first := true
	for _, n := range seq {
		out, kept, err := n.normalize(s)
		if err != nil {
			return "", false, err
		}
		if len(out) > maxNormalized {
			return "", false, tooLong()
		}
		s, first = out, first && kept
	}
	return s, first, nil
}

func tooLong() error {
	return fmt.Errorf("%w: the normalised text has more than %d bytes", errText, maxNormalized)
}

// plain is a normaliser that drops nothing from the front.
type plain func(string) string

func (f plain) normalize(s string) (string, bool, error) { return f(s), true, nil }

// without drops characters.
type without func(rune) bool

func (drop without) normalize(s string) (string, bool, error) {
	out := strings.Map(func(r rune) rune {
		if drop(r) {
			return -1
		}
		return r
	}, s)
	r, _ := utf8.DecodeRuneInString(s)
	return out, s == "" || !drop(r), nil
}

// strip drops white space at the ends.
type strip struct{ left, right bool }

func (n strip) normalize(s string) (string, bool, error) {
	first := true
	if n.left {
		cut := strings.TrimLeftFunc(s, unicode.IsSpace)
		s, first = cut, len(cut) == len(s)
	}
	if n.right {
		s = strings.TrimRightFunc(s, unicode.IsSpace)
	}
	return s, first, nil
}

// prepend puts a string before a text that is not empty.
type prepend string

func (p prepend) normalize(s string) (string, bool, error) {
	if s == "" {
		return s, true, nil
	}
	return string(p) + s, true, nil
}

// replace puts content in the place of every match.
type replace struct {
	find    finder
	content string
}

func (n replace) normalize(s string) (string, bool, error) {
	if s == "" {
		return s, true, nil
	}
	spans, err := n.find.spans(nil, s)
	if err != nil {
		return "", false, err
	}
	if len(spans) == 1 && !spans[0].match {
		return s, true, nil
	}
	out, err := n.fill(s, spans)
	if err != nil {
		return "", false, err
	}
	// What stands for several characters stands for the last of them.
	head := spans[0]
	first := !head.match || head.from == head.to || n.content != "" && utf8.RuneCountInString(s[head.from:head.to]) == 1
	return out, first, nil
}

// fill joins the parts of s, the content in place of the matches.
func (n replace) fill(s string, spans []span) (string, error) {
	var b strings.Builder
	b.Grow(len(s) + len(n.content))
	for _, sp := range spans {
		if sp.match {
			b.WriteString(n.content)
		} else {
			b.WriteString(s[sp.from:sp.to])
		}
		if b.Len() > maxNormalized {
			return "", tooLong()
		}
	}
	return b.String(), nil
}

// bertNormalizer is the one of BERT.
type bertNormalizer struct{ clean, chinese, strip, lower bool }

func (n bertNormalizer) normalize(s string) (string, bool, error) {
	first := true
	if n.clean {
		r, _ := utf8.DecodeRuneInString(s)
		first = s == "" || !n.drops(r)
	}
	if n.clean || n.chinese {
		s = n.rewrite(s)
	}
	if n.strip {
		decomposed, _, err := form{norm.NFD}.normalize(s)
		if err != nil {
			return "", false, err
		}
		s, _, _ = without(isNonSpacing).normalize(decomposed)
	}
	if n.lower {
		s = lower(s)
	}
	return s, first, nil
}

// drops says which characters the cleaning takes away.
func (n bertNormalizer) drops(r rune) bool {
	return r == 0 || r == utf8.RuneError || r != '\t' && r != '\n' && r != '\r' && isOther(r)
}

// rewrite cleans the text and puts spaces round Chinese characters.
func (n bertNormalizer) rewrite(s string) string {
	i := 0
	for i < len(s) && ' ' <= s[i] && s[i] < 0x7f {
		i++
	}
	if i == len(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	b.WriteString(s[:i])
	for _, r := range s[i:] {
		switch {
		case n.clean && n.drops(r):
		case n.clean && unicode.IsSpace(r):
			b.WriteByte(' ')
		case n.chinese && isChinese(r):
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isChinese reports the blocks of CJK ideographs that BERT separates; the hole from 0x2B820 is the library's.
func isChinese(r rune) bool {
	return 0x4E00 <= r && r <= 0x9FFF || 0x3400 <= r && r <= 0x4DBF || 0x20000 <= r && r <= 0x2A6DF ||
		0x2A700 <= r && r <= 0x2B73F || 0x2B740 <= r && r <= 0x2B81F || 0x2B920 <= r && r <= 0x2CEAF ||
		0xF900 <= r && r <= 0xFAFF || 0x2F800 <= r && r <= 0x2FA1F
}

// nmt is sentencepiece's cleaning: controls go, white space of all kinds becomes a space.
type nmt struct{}

func (nmt) normalize(s string) (string, bool, error) {
	r, _ := utf8.DecodeRuneInString(s)
	return strings.Map(nmtChar, s), s == "" || nmtChar(r) >= 0, nil
}

func nmtChar(r rune) rune {
	switch {
	case 0x01 <= r && r <= 0x08, r == 0x0B, 0x0E <= r && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
		return -1
	case r == 0x09, r == 0x0A, r == 0x0C, r == 0x0D, r == 0x1680, 0x200B <= r && r <= 0x200F, r == 0x2028, r == 0x2029, r == 0x2581, r == 0xFEFF, r == 0xFFFD:
		return ' '
	}
	return r
}
