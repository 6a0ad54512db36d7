package text_test

import (
	"regexp/syntax"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/text"
)

// Values of CPython 3.11.
func TestLowerIsPythons(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"ABC É": "abc é", "İ": "i\u0307", "ΟΔΟΣ": "οδος", "Σ": "σ", "ΑΣ.Α": "ασ.α", "ΑΣ. Α": "ας. α", "A\u0301Σ": "a\u0301ς",
		"ʰΣ": "ʰσ", "ΑΣ'": "ας'", "ΣΣ": "σς", "ǅ": "ǆ", "ẞ": "ß", "K": "k",
	} {
		assert.Equal(t, want, text.Lower(in), "%q", in)
	}
	// Wherever in a long text a word ends.
	assert.Equal(t, strings.Repeat("οδος. cat's ", 500), text.Lower(strings.Repeat("ΟΔΟΣ. Cat's ", 500)))
}

func TestAPatternIsNeverLongerThanItIsCounted(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		"a", "abc", "(?i)abc", "[a-z]", `\pL`, "a*", "(a)", "(?:ab|cd|e)", "a{3}", "(ab){2,7}", "a{4,}", "(a|b{2,5}){3}", `^\s*(?:x+x+)+y$`, "", "a|", "(?s).*?<answer>(.*?)</answer>",
	} {
		tree, err := syntax.Parse(pattern, syntax.Perl)
		require.NoError(t, err)
		program, err := syntax.Compile(tree.Simplify())
		require.NoError(t, err)
		n, err := text.Instructions(pattern)
		if pattern == "" {
			require.ErrorContains(t, err, "required")
			continue
		}
		require.NoError(t, err)
		assert.GreaterOrEqual(t, n, len(program.Inst), pattern)
		assert.LessOrEqual(t, n, 2*len(program.Inst)+2, pattern)
	}
}

// textbook is the longest common subsequence by the table.
func textbook(a, b []string) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		diagonal := 0
		for j, y := range b {
			diagonal, row[j+1] = row[j+1], max(row[j+1], row[j], diagonal+number(x == y))
		}
	}
	return row[len(b)]
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func FuzzCommonSubsequence(f *testing.F) {
	f.Add("the cat sat on the mat", "a cat on a mat")
	f.Add(strings.Repeat("ab", 70), strings.Repeat("ba", 65))
	f.Add("", "x")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a) > 1000 || len(b) > 1000 {
			return
		}
		as, bs := strings.Split(a, ""), strings.Split(b, "")
		lists := [][]string{as, nil, bs, as[:len(as)/2], as}
		want := make([]int, len(lists))
		for i, list := range lists {
			want[i] = textbook(list, bs)
		}
		got, err := text.CommonLengths(t.Context(), lists, bs)
		require.NoError(t, err)
		assert.Equal(t, want, got, "none of several changes what is found for another")
	})
}

func FuzzBoxed(f *testing.F) {
	for _, s := range []string{`\boxed{7}`, `\boxed{\frac{1}{2}} and \boxed{`, `\boxed 7$ x`, `\boxed{a}}`, `\boxed{{}`, `\fbox{1}`, `\boxedx{1}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		inside, ok := text.LastBoxed(s)
		if ok {
			assert.Equal(t, strings.Count(inside, "{"), strings.Count(inside, "}"))
			at := strings.LastIndex(s, `\boxed{`)
			assert.True(t, strings.HasPrefix(s[at:], `\boxed{`+inside+"}"))
		}
		answer, found := text.MathAnswer(s)
		if found && !strings.Contains(s, `\boxed `) {
			assert.True(t, ok)
			assert.Equal(t, inside, answer)
		}
		// Both normal forms end, whatever they are given.
		if _, err := text.NormaliseMath(s); err == nil {
			again, err := text.NormaliseMath(s)
			require.NoError(t, err)
			assert.NotContains(t, again, "\n")
		}
	})
}

func FuzzNormalise(f *testing.F) {
	for _, s := range []string{"The cat", "a\u0301n", "ΟΔΟΣ.", "İ", "12°", "1 ^\\circ", "\xff", "x\x1cy"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, n int) {
		assert.Equal(t, text.NormaliseQA(s), text.NormaliseQA(text.NormaliseQA(s)+" the"), "normal stays normal")
		end := text.Tail(s, n)
		assert.True(t, strings.HasSuffix(s, end))
		if utf8.ValidString(s) {
			assert.Equal(t, min(max(n, 0), utf8.RuneCountInString(s)), utf8.RuneCountInString(end))
			assert.True(t, utf8.ValidString(text.Lower(s)))
		}
		if letter := text.LastLetter(s); letter != "" {
			assert.Contains(t, "ABCDE", letter)
			assert.Contains(t, s, letter)
		}
		assert.LessOrEqual(t, len(text.WithoutDegrees(s)), len(s))
	})
}
