package hftok

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// alphabet is rich in what the expressions tell apart.
const scanAlphabet = "abcXYZ stmdrevl''''ſſé日١12²Ⅷ½ \t\n\r\r\n\u0085\u00a0\u2028\u3000.,!?-_<>\"/(₂)€\u0301\u0327😀\U00010d50\u1c89\U0001e5f1ǅʰ"

func TestScannersMatchWhatTheirExpressionsMatch(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{exprGPT2, exprCLIP, exprLlama3, exprQwen2, exprSpaces, exprBlanks} {
		t.Run(expr, func(t *testing.T) {
			t.Parallel()
			slow, err := compileGeneral(expr)
			require.NoError(t, err)
			quick := handWritten(expr)
			require.NotNil(t, quick)
			rng := rand.New(rand.NewPCG(1, 2))
			runes := []rune(scanAlphabet)
			for range 4000 {
				text := make([]rune, rng.IntN(14))
				for i := range text {
					text[i] = runes[rng.IntN(len(runes))]
				}
				want, err := slow.spans(nil, string(text))
				require.NoError(t, err)
				got, err := quick.spans(nil, string(text))
				require.NoError(t, err)
				if !assert.Equal(t, want, got, "%q", string(text)) {
					return
				}
			}
		})
	}
}

func TestBlanksMeanTwoAndMore(t *testing.T) {
	t.Parallel()
	spans, err := handWritten(exprBlanks).spans(nil, "a b  c   ")
	require.NoError(t, err)
	assert.Equal(t, []span{{0, 3, false}, {3, 5, true}, {5, 6, false}, {6, 9, true}}, spans)
}

func FuzzScanners(f *testing.F) {
	f.Add("Hello, I'll's  x\r\n 123")
	f.Fuzz(func(t *testing.T, text string) {
		for _, expr := range []string{exprGPT2, exprCLIP, exprLlama3, exprQwen2} {
			spans, err := handWritten(expr).spans(nil, text)
			require.NoError(t, err)
			at := 0
			for _, s := range spans {
				require.Equal(t, at, s.from)
				require.Greater(t, s.to, s.from)
				at = s.to
			}
			require.Equal(t, len(text), at)
		}
	})
}
