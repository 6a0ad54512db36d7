package service

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

// Quote returns the beginning and the end of a text on one line, without control characters.
func Quote(body []byte) string {
	const window = 4 * (quotedHead + quotedTail) // before white space is squeezed
	text := string(body[:min(len(body), window)])
	if len(body) > window {
		text += string(body[max(window, len(body)-window):])
	}
	text = Plain(text)
	if len(text) > quotedHead+quotedTail {
		text = Clip(text, quotedHead) + " " + ending(text, quotedTail)
	}
	if text == "" {
		return "nothing"
	}
	return "\"" + text + "\""
}

// Plain returns a text with white space reduced to single spaces and without unprintable
// characters.
func Plain(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// Clip shortens a text to at most n bytes, at the end of a character, and appends a mark.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return Prefix(s, n) + "…"
}

// Prefix returns at most the first n bytes of a text, without splitting a character.
func Prefix(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// ending is the last n bytes of a text, or a little less, never within a character.
func ending(s string, n int) string {
	at := max(0, len(s)-n)
	for at < len(s) && !utf8.RuneStart(s[at]) {
		at++
	}
	return s[at:]
}

// ExtractCode returns the code of a response: the text after the last fence with the language's
// name, or else the text between the first two fences, without a first line that is a word of
// letters (verl's sandbox_fusion).
func ExtractCode(response, language string) (code string, ok bool) {
	const fence = "```"
	if i := strings.LastIndex(response, fence+language); i >= 0 {
		code, _, _ = strings.Cut(response[i+len(fence+language):], fence)
		return code, true
	}
	_, after, ok := strings.Cut(response, fence)
	if !ok {
		return "", false
	}
	code, _, _ = strings.Cut(after, fence)
	if first, rest, found := strings.Cut(code, "\n"); found && isWord(strings.TrimSpace(first)) {
		code = rest
	}
	return code, true
}

func isWord(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsLetter(r) }) < 0
}
