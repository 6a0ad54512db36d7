package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/internal/pytext"
)

// What Python's str and re mean by whitespace, digit and word, where Go's own
// notions differ (pytext has lower case). Compared over all code points with
// CPython 3.11.

// space is Python's \s for a pattern; Go's \s is ASCII and lacks \v.
const space = `[\t-\r\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]`

// isSpace is str.isspace of one character.
func isSpace(r rune) bool { return pytext.IsSpace(r) }

// strip is str.strip().
func strip(s string) string { return strings.TrimFunc(s, isSpace) }

// isWord is \w. Combining marks are not word characters.
func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }

// lower is str.lower().
func lower(s string) string { return pytext.Lower(s) }

// tail is s[-n:], the last n code points.
func tail(s string, n int) string {
	i := len(s)
	for ; n > 0 && i > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:i])
		i -= size
	}
	return s[i:]
}

// isDigits is str.isdigit(): at least one character, and all are digits,
// superscripts and circled ones included.
func isDigits(s string) bool {
	for _, r := range s {
		if !unicode.IsDigit(r) && !unicode.Is(otherDigits, r) {
			return false
		}
	}
	return s != ""
}

// otherDigits are the characters with the Unicode property Numeric_Type=Digit.
// Decimal digits, which can form numbers, are not among them.
//
//nolint:gochecknoglobals // a table
var otherDigits = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0xb2, 0xb3, 1},
		{0xb9, 0xb9, 1},
		{0x1369, 0x1371, 1},
		{0x19da, 0x19da, 1},
		{0x2070, 0x2070, 1},
		{0x2074, 0x2079, 1},
		{0x2080, 0x2089, 1},
		{0x2460, 0x2468, 1},
		{0x2474, 0x247c, 1},
		{0x2488, 0x2490, 1},
		{0x24ea, 0x24ea, 1},
		{0x24f5, 0x24fd, 1},
		{0x24ff, 0x24ff, 1},
		{0x2776, 0x277e, 1},
		{0x2780, 0x2788, 1},
		{0x278a, 0x2792, 1},
	},
	R32: []unicode.Range32{
		{0x10a40, 0x10a43, 1}, {0x10e60, 0x10e68, 1}, {0x11052, 0x1105a, 1}, {0x1f100, 0x1f10a, 1},
	},
	LatinOffset: 2,
}
