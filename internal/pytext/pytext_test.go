package pytext_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/rewardloop/rewardloop/internal/pytext"
)

// Values of CPython 3.11.
func TestLowerIsPythons(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"ABC É": "abc é", "İ": "i\u0307", "ΟΔΟΣ": "οδος", "Σ": "σ", "ΑΣ.Α": "ασ.α", "ΑΣ. Α": "ας. α", "A\u0301Σ": "a\u0301ς",
		"ʰΣ": "ʰσ", "ΑΣ'": "ας'", "ΣΣ": "σς", "ǅ": "ǆ", "ẞ": "ß", "K": "k", "": "", "日本 😀": "日本 😀",
	} {
		assert.Equal(t, want, pytext.Lower(in), "%q", in)
	}
}

// golang.org/x/text/cases looks for the end of a word in pieces of 256 bytes and
// takes the end of a piece for it.
func TestAWordsLastSigmaIsFoundWhereverItStandsInALongText(t *testing.T) {
	t.Parallel()
	for before := range 1100 {
		got := pytext.Lower(strings.Repeat("x", before) + " ΟΔΟΣ ΟΔΟΣ'ΟΔΟΣ")
		assert.Equal(t, " οδος οδοσ'οδος", got[before:], "%d bytes before it", before)
	}
	assert.Equal(t, strings.Repeat("οδος. cat's ", 500), pytext.Lower(strings.Repeat("ΟΔΟΣ. Cat's ", 500)))
}

func TestSpaceIsPythons(t *testing.T) {
	t.Parallel()
	for r := range rune(unicode.MaxRune) {
		// str.isspace is true of 29 characters.
		want := strings.ContainsRune("\t\n\v\f\r\x1c\x1d\x1e\x1f \u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000", r) || r >= 0x2000 && r <= 0x200a
		if got := pytext.IsSpace(r); got != want {
			t.Errorf("IsSpace(%U) = %v", r, got)
		}
	}
}

func FuzzLower(f *testing.F) {
	for _, s := range []string{"ΟΔΟΣ.", "İ", "aΣ\u0301", "\xffΣ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := pytext.Lower(s)
		if utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("%q becomes %q", s, got)
		}
		if again := pytext.Lower(got); again != got {
			t.Errorf("%q becomes %q, and that %q", s, got, again)
		}
	})
}
