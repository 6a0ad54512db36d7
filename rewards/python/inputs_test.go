package python_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// tiny is the text of an adapter, as the catalogue has them.
const tiny = `class Scorer:
    def __init__(self, device, factor=1):
        self.factor = factor

    def compute_scores(self, samples):
        return [self.one(sample) for sample in samples]

    def one(self, sample):
        if sample.prompt == "boom":
            return boom()
        array, rate = sample.waveform
        assert array.flags["C_CONTIGUOUS"]
        return {"score": self.factor * float(array[-1, 0]), "rate": rate, "shape": str(array.shape), "dtype": str(array.dtype)}


def boom():
    raise ValueError("a sound that nobody can hear")
`

func tinyModel(t *testing.T) *python.Model {
	t.Helper()
	m := model(t, newDevices(t, pool.Config{}), "Scorer", python.Options{
		Path: "scorer://tiny", Source: tiny, Inputs: []string{"audio", "prompt"}, Pixels: "numpy", Kwargs: map[string]any{"factor": 2}, Probe: []string{},
	})
	warm(t, m)
	return m
}

func sound(layout rewards.Layout, dtype string, shape []int, data []byte) *rewards.Sample {
	return &rewards.Sample{ID: "s", Prompt: "a bell", Media: []*rewards.Media{{
		Kind: rewards.Audio, Encoding: rewards.Raw, Layout: layout, DType: dtype, Shape: shape, Data: data, SampleRate: 16000,
	}}}
}

func TestAudioArrivesAsFloat32WithChannelsFirstAndItsRate(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	floats := func(values ...float32) (data []byte) {
		for _, v := range values {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		return data
	}
	m := tinyModel(t)
	for name, tt := range map[string]struct {
		sample *rewards.Sample
		shape  string
		want   float64 // the first value of the last channel
	}{
		"one channel":          {sound("T", "F32", []int{3}, floats(0.25, 0, 0)), "(1, 3)", 0.25},
		"channels first":       {sound("CT", "F32", []int{2, 3}, floats(0, 0, 0, 0.5, 0, 0)), "(2, 3)", 0.5},
		"channels last":        {sound("TC", "F32", []int{3, 2}, floats(0, 0.75, 0, 0, 0, 0)), "(2, 3)", 0.75},
		"integers":             {sound("T", "I16", []int{2}, []byte{0, 0x40, 0, 0}), "(1, 2)", 0.5},
		"upper half of floats": {sound("T", "BF16", []int{2}, []byte{0x80, 0xbf, 0, 0}), "(1, 2)", -1},
		"half precision":       {sound("T", "F16", []int{1}, []byte{0, 0x38}), "(1, 1)", 0.5},
	} {
		got, err := score(t, m, tt.sample)
		require.NoError(t, err, name)
		assert.InDelta(t, 2*tt.want, got.Value, 1e-6, name)
		assert.Equal(t, tt.shape, got.Extra["shape"], name)
		assert.Equal(t, "float32", got.Extra["dtype"], name)
		assert.EqualValues(t, 16000, got.Extra["rate"], name)
	}
}

func TestAModelThatIsATextRunsAndItsLinesAreInTracebacks(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	m := tinyModel(t)
	sample := sound("T", "I16", []int{1}, []byte{0, 0})
	sample.Prompt = "boom"
	_, err := score(t, m, sample)
	require.ErrorIs(t, err, rewards.Internal)
	require.ErrorContains(t, err, "a sound that nobody can hear")
	require.ErrorContains(t, err, `File "scorer://tiny", line 17, in boom`)
	require.ErrorContains(t, err, "raise ValueError(", "the line itself")
}

func TestASampleThatLacksWhatAModelNeedsFailsAloneAndWithoutACall(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	m := tinyModel(t)
	silent := sound("T", "I16", []int{1}, []byte{0, 0})
	silent.Prompt = ""
	for want, sample := range map[string]*rewards.Sample{
		`scorer://tiny needs audio, prompt, but sample "s" has no prompt`:           silent,
		`scorer://tiny needs audio, prompt, but sample "x" has no audio`:            {ID: "x", Prompt: "a bell"},
		`scorer://tiny needs audio, prompt, but sample "y" has no audio, no prompt`: plain(&rewards.Sample{ID: "y"}, 2, 2, 0),
	} {
		_, err := score(t, m, sample)
		require.ErrorIs(t, err, rewards.BadInput)
		require.ErrorContains(t, err, want)
	}
	edit := model(t, newDevices(t, pool.Config{}), "Scorer", python.Options{
		Path: "scorer://edit", Source: "class Scorer:\n    def compute_scores(self, samples):\n        return [len(s.media) for s in samples]\n",
		Inputs: []string{"image", "source image"}, Pixels: "numpy", Probe: []string{},
	})
	sample := plain(&rewards.Sample{ID: "e"}, 2, 2, 0)
	_, err := score(t, edit, sample)
	require.ErrorContains(t, err, `has no source image`)
	sample.Media = append(sample.Media, sample.Media[0])
	got, err := score(t, edit, sample)
	require.NoError(t, err)
	require.InDelta(t, 2, got.Value, 0)
}

func TestATextIsAModelAndItsInputsAreOfTheWordsThereAre(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]python.Options{
		"scorer://tiny is a model with a placement, which excludes a signature": {Path: "scorer://tiny", Source: tiny},
		`inputs: "smell", want image, source image, video, audio, prompt`: {
			Path: "scorer://tiny", Source: tiny, Placement: &python.Placement{}, Inputs: []string{"smell"},
		},
		`path "scorer://tiny": want a .py file`: {Path: "scorer://tiny", Placement: &python.Placement{}},
	} {
		require.ErrorContains(t, o.WithDefaults().Validate(), want)
	}
	require.NoError(t, python.Options{Path: "scorer://tiny", Source: tiny, Placement: &python.Placement{}}.WithDefaults().Validate())
}
