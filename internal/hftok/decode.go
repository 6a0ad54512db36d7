package hftok

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoder rewrites a list of tokens; joined they are the text.
type decoder interface {
	// decode may write into tokens.
	decode(tokens []string) ([]string, error)
}

// decodeTokens runs a decoder; without one, spaces go between the tokens.
func decodeTokens(d decoder, tokens []string) (string, error) {
	if d == nil {
		return strings.Join(tokens, " "), nil
	}
	tokens, err := d.decode(tokens)
	if err != nil {
		return "", err
	}
	return strings.Join(tokens, ""), nil
}

func buildDecoder(at string, raw json.RawMessage, depth int) (decoder, error) {
	c, err := openComponent(at, raw)
	if c == nil || err != nil {
		return nil, err
	}
	var d decoder
	switch c.kind {
	case "Sequence":
		var seq decoders
		err := c.list("decoders", depth, func(at string, raw json.RawMessage) error {
			m, err := buildDecoder(at, raw, depth+1)
			seq = append(seq, m)
			return err
		})
		return seq, err
	case "BPEDecoder":
		d = bpeDecoder(c.text("suffix", maxContent))
	case "ByteFallback":
		d = tokensTo(decodeFallback)
	case "ByteLevel":
		c.ignore("add_prefix_space", "trim_offsets", "use_regex")
		d = tokensTo(decodeByteLevel)
	case "CTC":
		d = ctc{pad: c.text("pad_token", maxContent), delimiter: c.text("word_delimiter_token", maxContent), cleanup: c.boolean("cleanup", true)}
	case "Fuse":
		d = tokensTo(func(tokens []string) []string { return []string{strings.Join(tokens, "")} })
	case "Metaspace":
		m := readMetaspace(c)
		m.split = false
		d = m
	case "Replace":
		d = replace{find: c.pattern("pattern"), content: c.text("content", maxContent)}
	case "Strip":
		s := stripDecoder{char: c.char("content")}
		c.require("start", &s.start)
		c.require("stop", &s.stop)
		d = s
	case "WordPiece":
		d = wordPieceDecoder{prefix: c.text("prefix", maxContent), cleanup: c.boolean("cleanup", true)}
	default:
		return nil, c.unknown()
	}
	return d, c.close()
}

// decoders is a Sequence.
type decoders []decoder

func (seq decoders) decode(tokens []string) ([]string, error) {
	for _, d := range seq {
		var err error
		if tokens, err = d.decode(tokens); err != nil {
			return nil, err
		}
		size := 0
		for _, t := range tokens {
			if size += len(t); size > maxNormalized {
				return nil, fmt.Errorf("%w: the decoded text has more than %d bytes", errText, maxNormalized)
			}
		}
	}
	return tokens, nil
}

// tokensTo is a decoder that cannot fail.
type tokensTo func(tokens []string) []string

func (f tokensTo) decode(tokens []string) ([]string, error) { return f(tokens), nil }

// bpeDecoder turns the end-of-word suffix into spaces.
type bpeDecoder string

func (suffix bpeDecoder) decode(tokens []string) ([]string, error) {
	for i, t := range tokens {
		by := " "
		if i == len(tokens)-1 {
			by = ""
		}
		tokens[i] = strings.ReplaceAll(t, string(suffix), by)
	}
	return tokens, nil
}

// decodeFallback turns tokens like <0x61> into the text their bytes are, or into one replacement character
// for each where they are none.
func decodeFallback(tokens []string) []string {
	out := make([]string, 0, len(tokens))
	var bytes []byte
	flush := func() {
		if len(bytes) > 0 && utf8.Valid(bytes) {
			out = append(out, string(bytes))
		} else {
			for range bytes {
				out = append(out, "\uFFFD")
			}
		}
		bytes = bytes[:0]
	}
	for _, t := range tokens {
		if len(t) == 6 && strings.HasPrefix(t, "<0x") && t[5] == '>' {
			if b, err := strconv.ParseUint(t[3:5], 16, 8); err == nil {
				bytes = append(bytes, byte(b))
				continue
			}
		}
		flush()
		out = append(out, t)
	}
	flush()
	return out
}

// decodeByteLevel turns the byte alphabet back into bytes. A token with other characters, such as an
// added one, is taken as it is.
func decodeByteLevel(tokens []string) []string {
	var bytes []byte
	for _, t := range tokens {
		var ok bool
		if bytes, ok = appendBytes(bytes, t); !ok {
			bytes = append(bytes, t...)
		}
	}
	return []string{lossy(bytes)}
}

// lossy is the text of bytes with a replacement character for every longest part of them that begins a
// character and does not end it: Unicode's recommendation (section 3.9) and Rust's from_utf8_lossy.
func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r != utf8.RuneError || n > 1 {
			s.Write(b[:n])
			b = b[n:]
			continue
		}
		s.WriteRune(utf8.RuneError)
		// The bytes up to n begin a character as long as they are not a full rune, valid or not.
		for n < min(len(b), utf8.UTFMax-1) && !utf8.FullRune(b[:n+1]) {
			n++
		}
		b = b[n:]
	}
	return s.String()
}

// ctc joins repeated tokens, as models of speech write them.
type ctc struct {
	pad, delimiter string
	cleanup        bool
}

func (d ctc) decode(tokens []string) ([]string, error) {
	out := make([]string, 0, len(tokens))
	for _, t := range slices.Compact(tokens) {
		t = strings.ReplaceAll(t, d.pad, "")
		if d.cleanup {
			t = strings.ReplaceAll(cleanup(t), d.delimiter, " ")
		}
		if t != "" {
			out = append(out, t)
		}
	}
	return out, nil
}

// cleanup takes back spaces that a tokenizer for English puts round signs.
func cleanup(s string) string {
	if !strings.Contains(s, " ") {
		return s
	}
	for _, r := range [...][2]string{
		{" .", "."},
		{" ?", "?"},
		{" !", "!"},
		{" ,", ","},
		{" ' ", "'"},
		{" n't", "n't"},
		{" 'm", "'m"},
		{" do not", " don't"},
		{" 's", "'s"},
		{" 've", "'ve"},
		{" 're", "'re"},
	} {
		s = strings.ReplaceAll(s, r[0], r[1])
	}
	return s
}

// decode turns the sign back into spaces; the one before the text goes.
func (m metaspace) decode(tokens []string) ([]string, error) {
	for i, t := range tokens {
		by := " "
		if i == 0 && m.scheme != "never" {
			by = ""
		}
		tokens[i] = strings.ReplaceAll(t, m.sign, by)
	}
	return tokens, nil
}

// decode replaces in every token.
func (n replace) decode(tokens []string) ([]string, error) {
	for i, t := range tokens {
		if t == "" {
			continue
		}
		spans, err := n.find.spans(nil, t)
		if err != nil {
			return nil, err
		}
		if tokens[i], err = n.fill(t, spans); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// stripDecoder takes up to so many of a character from the ends of every token.
type stripDecoder struct {
	char        string
	start, stop int
}

func (d stripDecoder) decode(tokens []string) ([]string, error) {
	for i, t := range tokens {
		for n := 0; n < d.start && strings.HasPrefix(t, d.char); n++ {
			t = t[len(d.char):]
		}
		for n := 0; n < d.stop && strings.HasSuffix(t, d.char); n++ {
			t = t[:len(t)-len(d.char)]
		}
		tokens[i] = t
	}
	return tokens, nil
}

// wordPieceDecoder joins the pieces of words and puts spaces between words.
type wordPieceDecoder struct {
	prefix  string
	cleanup bool
}

func (d wordPieceDecoder) decode(tokens []string) ([]string, error) {
	for i, t := range tokens {
		if i > 0 {
			if rest, ok := strings.CutPrefix(t, d.prefix); ok {
				t = rest
			} else {
				t = " " + t
			}
		}
		if d.cleanup {
			t = cleanup(t)
		}
		tokens[i] = t
	}
	return tokens, nil
}
