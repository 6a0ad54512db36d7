package failures

import (
	"strings"
	"unicode/utf8"
)

// maxShape is how many bytes a shape has at most.
const maxShape = 240

// shapeOf is the shape of a message about a sample. Many messages in a row are the same.
func (b *Book) shapeOf(message, id string) string {
	if raw := (rawKey{message, id}); b.raw != raw {
		b.raw, b.shape = raw, Shape(message, id)
	}
	return b.shape
}

// Shape returns message without the parts that differ between samples. A number, including its
// fraction, its exponent and directly following letters, becomes #; a quoted text becomes "…"; the
// sample's id becomes <id>, if the id is longer than 2 bytes; and white space becomes one space.
// The result has at most 240 bytes, from the beginning and the end of the message.
func Shape(message, id string) string {
	message = shorten(message)
	if len(id) > 2 { // shorter ones occur in words
		message = strings.ReplaceAll(message, id, "<id>")
	}
	out := make([]byte, 0, len(message))
	for i := 0; i < len(message); {
		c := message[i]
		switch {
		case c == '"' || c == '\'' && quoteBegins(message, i):
			if n := quoted(message[i:]); n > 0 {
				out = append(out, `"…"`...)
				i += n
				continue
			}
		case digit(c) && (i == 0 || !letter(message[i-1])):
			i += number(message[i:])
			out = append(out, '#')
			continue
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			if n := len(out); n > 0 && out[n-1] != ' ' {
				out = append(out, ' ')
			}
			i++
			continue
		}
		out = append(out, c)
		i++
	}
	return ends(strings.TrimSpace(string(out)), maxShape)
}

// quoteBegins tells an opening quote from an apostrophe.
func quoteBegins(s string, i int) bool { return i == 0 || !letter(s[i-1]) && !digit(s[i-1]) }

// quoted is how long the quoted text is that s begins with; 0: its end is missing.
func quoted(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		case '\n':
			return 0
		}
	}
	return 0
}

// number is how long the number is that s begins with, or the word that begins with a digit.
func number(s string) int {
	n := 0
	for n < len(s) && (digit(s[n]) || letter(s[n]) || s[n] == '_' ||
		(s[n] == '.' || s[n] == '-' || s[n] == '+' || s[n] == ':') && n+1 < len(s) && digit(s[n+1])) {
		n++
	}
	return n
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' || c >= utf8.RuneSelf }

// shorten bounds a message that is kept.
func shorten(s string) string { return ends(strings.ToValidUTF8(s, "\uFFFD"), maxMessage) }

// ends is the beginning and the end of a text, at most so many bytes of it.
func ends(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const gap = " … "
	from, to := most/3, len(s)-(most-most/3-len(gap))
	for !utf8.RuneStart(s[from]) {
		from--
	}
	for to < len(s) && !utf8.RuneStart(s[to]) {
		to++
	}
	return s[:from] + gap + s[to:]
}
