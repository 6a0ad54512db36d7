package preference_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/preference"
)

func TestWrongOptionsAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	specs := preference.Specs(preference.Deps{Nets: towers(), Folder: func(string) (string, error) { return "", errors.New("rewardloop models pull it") }})
	for name, tt := range map[string]struct{ scorer, options, says string }{
		"unknown":      {"pickscore", `{"divider": 2}`, "divider"},
		"zero":         {"pickscore", `{"divisor": 0}`, "divisor: 0"},
		"formula":      {"clipscore", `{"formula": "cubic"}`, `formula: "cubic" is unknown`},
		"siglip":       {"siglip", `{"formula": "paper"}`, `formula: "paper" is unknown`},
		"scale":        {"hpsv2", `{"scale": 0}`, "scale: 0"},
		"aesthetic":    {"aesthetic", `{"scale": 0}`, "scale: 0"},
		"device":       {"hpsv2", `{"device": "cuda:01"}`, `device: "cuda:01"`},
		"frames":       {"hpsv2", `{"frame_interval": 0}`, "frame_interval: 0"},
		"result":       {"image_similarity", `{"result": "middle"}`, `result: "middle"`},
		"no model":     {"text_rm", `{}`, "model: is empty"},
		"no model too": {"onnx", ``, "model: is empty"},
		"template":     {"text_rm", `{"model": "x", "template": "hello"}`, "template: is"},
		"not here":     {"pickscore", ``, `model "pickscore-v1": rewardloop models pull it`},
	} {
		_, err := preference.Build(specs, tt.scorer, tt.options)
		require.ErrorContains(t, err, tt.says, name)
	}
	_, err := preference.Build(specs, "pickscore", `{"model": "", "device": "gpu", "divisor": 0, "frame_interval": -1}`)
	for _, says := range []string{"model: is empty", `device: "gpu"`, "divisor: 0", "frame_interval: -1"} {
		require.ErrorContains(t, err, says)
	}
	_, err = preference.Build(preference.Specs(preference.Deps{}), "pickscore", ``)
	require.ErrorContains(t, err, "this process has no runner for models")
}

func TestAModelOfAnotherKindIsRefusedWhenTheScorerIsMade(t *testing.T) {
	t.Parallel()
	specs := preference.Specs(preference.Deps{Nets: towers()})
	for name, says := range map[string]string{"aesthetic": "want image", "text_rm": "want text", "onnx": "want graph or image or text"} {
		_, err := preference.Build(specs, name, object(folder(t, "tiny-clip"), ""))
		require.ErrorContains(t, err, "is of kind two_tower, "+says)
	}
	_, err := preference.Build(specs, "hpsv2", object(folder(t, "tiny-aesthetic"), ""))
	require.ErrorContains(t, err, "is of kind image, want two_tower or combined")
	_, err = preference.Build(specs, "onnx", object(folder(t, "tiny-aesthetic"), `"template": "{prompt}"`))
	require.ErrorContains(t, err, "reads no text")
	dir := clipFolder(t, `"logit_scale"`, `"logit_bias"`)
	_, err = preference.Build(specs, "pickscore", object(dir, ""))
	require.ErrorContains(t, err, "no logit_scale")
	_, err = preference.Build(specs, "hpsv2", object(dir, ""))
	require.NoError(t, err, "a cosine needs none")
}

func TestASidecarThatWasPutRightIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := clipFolder(t)
	specs := preference.Specs(preference.Deps{Nets: towers()})
	first, err := preference.Build(specs, "clipscore", object(dir, ""))
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(dir, preference.SidecarFile))
	require.NoError(t, err)
	path := filepath.Join(dir, preference.SidecarFile)
	require.NoError(t, os.WriteFile(path, []byte("{}"), 0o600))
	_, err = preference.Build(specs, "clipscore", object(dir, ""))
	require.ErrorContains(t, err, "name is empty")
	before, _, _ := strings.Cut(string(data), `"logit_scale"`)
	require.NoError(t, os.WriteFile(path, []byte(before+`"logit_scale": 30}`), 0o600))
	second, err := preference.Build(specs, "clipscore", object(dir, ""))
	require.NoError(t, err)
	a, err := first.Score(t.Context(), sample("a", plain(1)))
	require.NoError(t, err)
	b, err := second.Score(t.Context(), sample("a", plain(1)))
	require.NoError(t, err)
	assert.NotEqual(t, a.Value, b.Value)
	assert.InDelta(t, b.Extra["cosine"], b.Value, 1e-12)
}
