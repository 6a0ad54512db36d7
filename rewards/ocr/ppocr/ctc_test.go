package ppocr

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
)

func TestGoldenDecodingIsRapidOCRs(t *testing.T) {
	t.Parallel()
	type file struct {
		Characters []string
		Cases      []struct {
			Classes []int32
			Probs   []float32
			Text    string
			Score   float64
		}
	}
	g := golden[file](t, "pipeline/ctc.json")
	d, err := parseDictionary(strings.Join(g.Characters, "\n"))
	require.NoError(t, err)
	for _, c := range g.Cases {
		text, score, err := d.decode(c.Classes, c.Probs, true)
		require.NoError(t, err)
		require.Equal(t, c.Text, text)
		require.InDelta(t, c.Score, score, 1e-9)
	}
}

func TestRepeatsCountOnceAndBlanksSeparate(t *testing.T) {
	t.Parallel()
	d, err := parseDictionary("a\nb")
	require.NoError(t, err)
	text, score, err := d.decode([]int32{1, 1, 0, 1, 2, 2, 3, 0}, []float32{.5, .9, .9, 1, .25, 1, .25, 1}, false)
	require.NoError(t, err)
	require.Equal(t, "aab ", text)
	require.InDelta(t, .5, score, 1e-9)
	text, score, err = d.decode([]int32{0, 0}, []float32{1, 1}, true)
	require.NoError(t, err)
	require.Empty(t, text)
	require.Zero(t, score)
}

func TestAnswersThatNoRecogniserGivesAreFaults(t *testing.T) {
	t.Parallel()
	d, err := parseDictionary("a")
	require.NoError(t, err)
	for _, c := range []struct {
		classes []int32
		probs   []float32
	}{
		{[]int32{3}, []float32{1}},
		{[]int32{-1}, []float32{1}},
		{[]int32{1, 1}, []float32{1}},
		{[]int32{0}, []float32{float32(math.NaN())}},
		{[]int32{1}, []float32{float32(math.Inf(1))}},
	} {
		_, _, err := d.decode(c.classes, c.probs, true)
		require.ErrorIs(t, err, infer.ErrFault)
	}
}

func TestADictionaryHasACharacterALine(t *testing.T) {
	t.Parallel()
	d, err := parseDictionary("a\r\n\u2028\r\n \n\u0085\nab\n")
	require.NoError(t, err)
	require.Equal(t, dictionary{"", "a", "\u2028", " ", "\u0085", "ab", " "}, d)
	require.NoError(t, d.fits(7))
	require.ErrorIs(t, d.fits(6), infer.ErrModel)
	require.ErrorContains(t, d.fits(6), "6 classes, but its dictionary has 5 characters")
	for _, bad := range []string{"", "\n", "a\n\nb", "\r\na"} {
		_, err := parseDictionary(bad)
		require.ErrorIs(t, err, infer.ErrModel, "%q", bad)
	}
}

func TestTheAlphabetIsThatOfTheModel(t *testing.T) {
	t.Parallel()
	d, err := loadDictionary(infer.Info{Metadata: map[string]string{characterKey: "a"}})
	require.NoError(t, err)
	require.Equal(t, dictionary{"", "a", " "}, d)
	_, err = loadDictionary(infer.Info{})
	require.ErrorIs(t, err, infer.ErrModel)
	require.ErrorContains(t, err, "model without dictionary")
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{0, 1, 1, 0, 2}, uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, extra uint8) {
		d := dictionary{"", "a", "b", "c", " "}
		var classes []int32
		var probs []float32
		for len(data) >= 5 {
			classes = append(classes, int32(int8(data[0])))
			probs = append(probs, math.Float32frombits(binary.LittleEndian.Uint32(data[1:])))
			data = data[5:]
		}
		probs = append(probs, make([]float32, extra%2)...)
		text, score, err := d.decode(classes, probs, extra > 100)
		if err == nil && (len(text) > len(classes) || math.IsNaN(score)) {
			t.Fatalf("%v %v: %q %v", classes, probs, text, score)
		}
	})
}
