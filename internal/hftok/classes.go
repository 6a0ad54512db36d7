package hftok

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The classes of characters that patterns and components speak of, as tokenizers 0.22.2 has them.
// White space is unicode.IsSpace in all of its tables.

// class is what the hand-written scanners tell characters by.
type class uint8

const (
	other  class = iota
	letter       // \p{L}
	number       // \p{N}
	space        // \s
)

// asciiClass is class for one-byte characters.
//
//nolint:gochecknoglobals // a table
var asciiClass = func() (t [utf8.RuneSelf]class) {
	for r := range rune(utf8.RuneSelf) {
		t[r] = slowClass(r)
	}
	return t
}()

func slowClass(r rune) class {
	switch {
	case unicode.IsLetter(r) || unicode.Is(onigLetterMore, r):
		return letter
	case unicode.IsNumber(r) || unicode.Is(onigNumberMore, r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// classAt returns the class and the width of the character at s[i]; the width is 0 at the end.
func classAt(s string, i int) (class, int) {
	if i >= len(s) {
		return other, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return asciiClass[c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return slowClass(r), n
}

// isNumeric is Rust's char::is_numeric.
func isNumeric(r rune) bool { return unicode.IsNumber(r) || unicode.Is(rustNumericMore, r) }

// isWord is \w of the regex crate.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control, wordMore)
}

// isPunctuation is what Bert takes for punctuation: ASCII's, symbols included, and category P.
func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~'
	}
	return unicode.IsPunct(r) && unicode.Is(unicode8, r) || unicode.Is(punctMore, r)
}

// isNonSpacing is category Mn of Unicode 8.
func isNonSpacing(r rune) bool {
	return r >= utf8.RuneSelf && (unicode.Is(unicode.Mn, r) && unicode.Is(unicode8, r) && !unicode.Is(markLess, r) || unicode.Is(markMore, r))
}

// isCombining is category M of Unicode 9.
func isCombining(r rune) bool {
	return r >= utf8.RuneSelf && (unicode.Is(unicode.M, r) && unicode.Is(unicode9, r) && !unicode.Is(combiningLess, r) || unicode.Is(combiningMore, r))
}

// isOther is what Bert takes for control characters: categories Cc, Cf and Co of Unicode 8.
func isOther(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) && unicode.Is(unicode8, r)
}

// extends reports whether a character joins the grapheme cluster before it.
func extends(r rune) bool {
	if r < 0x300 {
		return false
	}
	joins := unicode.In(r, unicode.M, unicode.Other_Grapheme_Extend) || r == 0x200d || 0x1f3fb <= r && r <= 0x1f3ff
	return joins && !unicode.Is(extendLess, r) || unicode.In(r, onigMarkMore, graphemeMore)
}

// lower is the full lower case of a text: character by character, İ becomes two.
func lower(s string) string {
	i := 0
	for i < len(s) && s[i] < utf8.RuneSelf && (s[i] < 'A' || s[i] > 'Z') {
		i++
	}
	if i == len(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	b.WriteString(s[:i])
	for _, r := range s[i:] {
		switch {
		case r < utf8.RuneSelf:
			if 'A' <= r && r <= 'Z' {
				r += 'a' - 'A'
			}
			b.WriteByte(byte(r))
		case r == 'İ':
			b.WriteString("i̇")
		default:
			l := unicode.ToLower(r)
			if l == r {
				l = lowerMore.ToLower(r)
			}
			b.WriteRune(l)
		}
	}
	return b.String()
}

// isControl is Grapheme_Cluster_Break=Control but for the few characters the caller exempts.
func isControl(r rune) bool {
	if r == 0x2065 || 0xFFF0 <= r && r <= 0xFFF8 || 0xE0000 <= r && r <= 0xE0FFF {
		return !extends(r) // to be ignored wherever they are not assigned
	}
	return r < ' ' || 0x7f <= r && r < 0xa0 || r >= 0xad && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) && !extends(r)
}
