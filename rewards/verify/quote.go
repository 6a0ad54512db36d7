package verify

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is quoted of an answer, in bytes. Of a long text the end is worth
// more than the beginning: a traceback has its cause there.
const (
	quotedHead = 100
	quotedTail = 300
)

// quote returns the beginning and the end of a text on one line, without control
// characters.
func quote(body []byte) string {
	const window = 4 * (quotedHead + quotedTail) // before white space is squeezed
	text := string(body[:min(len(body), window)])
	if len(body) > window {
		text += string(body[max(window, len(body)-window):])
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > quotedHead+quotedTail {
		text = clip(text, quotedHead) + " " + suffix(text, quotedTail)
	}
	if text == "" {
		return "nothing"
	}
	return "\"" + text + "\""
}

// clip cuts a text at a character, n bytes at most before the mark.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return prefix(s, n) + "…"
}

// prefix is the first n bytes of a text, or a little less, never within a character.
func prefix(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// suffix is the last n bytes of a text, likewise.
func suffix(s string, n int) string {
	at := max(0, len(s)-n)
	for at < len(s) && !utf8.RuneStart(s[at]) {
		at++
	}
	return s[at:]
}
