package pytext

import (
	"strings"
	"unicode"
)

// IsSpace is str.isspace for one character, and \s of re: Unicode's White_Space and the four
// separators U+001C to U+001F.
func IsSpace(r rune) bool { return unicode.IsSpace(r) || (r >= 0x1c && r <= 0x1f) }

// Lower is str.lower(). strings.ToLower drops the dot of İ and does not handle the final sigma;
// golang.org/x/text/cases returns a wrong sigma if a word ends at the end of one of its internal
// buffers, after 256 bytes.
func Lower(s string) string {
	if !strings.ContainsAny(s, "İΣ") {
		return strings.ToLower(s)
	}
	var b strings.Builder
	b.Grow(len(s))
	inWord := false // The last character that is not ignorable is cased.
	for i, r := range s {
		switch {
		case r == 'İ':
			b.WriteString("i\u0307")
		case r == 'Σ' && inWord && !beginsCased(s[i+len("Σ"):]):
			b.WriteRune('ς')
		default:
			b.WriteRune(unicode.ToLower(r))
		}
		if !isIgnorable(r) {
			inWord = isCased(r)
		}
	}
	return b.String()
}

// beginsCased reports whether a cased character follows, ignorable ones aside.
func beginsCased(s string) bool {
	for _, r := range s {
		if !isIgnorable(r) {
			return isCased(r)
		}
	}
	return false
}

// isCased is Unicode's property Cased.
func isCased(r rune) bool {
	return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Uppercase, unicode.Other_Lowercase)
}

// isIgnorable is Unicode's property Case_Ignorable: marks, modifiers, and what may
// stand in the middle of a word.
func isIgnorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
		strings.ContainsRune("'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a", r)
}
