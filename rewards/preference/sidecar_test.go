package preference_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/preference"
)

const (
	imagePart = `"image": {"steps": [{"op": "resize", "width": 8, "height": 8, "filter": "bicubic"}], "rescale": 0.0039, "mean": [0, 0, 0], "std": [1, 1, 1]}`
	textPart  = `"text": {"length": 77, "pad_id": 3}`
	clip      = `{"format": 1, "kind": "two_tower", "name": "c", ` + imagePart + `, ` + textPart + `, "logit_scale": 100}`
)

func TestASidecarSaysWhatTheModelIs(t *testing.T) {
	t.Parallel()
	s, err := preference.ParseSidecar([]byte(clip))
	require.NoError(t, err)
	assert.Equal(t, preference.TwoTower, s.Kind)
	assert.InDelta(t, 100, *s.LogitScale, 0)
	assert.Equal(t, "longest", s.Text.Pad)
	assert.Equal(t, int64(3), s.Text.PadID)
	assert.Equal(t, preference.ScoreRules{Transform: "raw", Scale: 1}, s.Score)
	assert.Len(t, s.Image.Steps, 1)

	s, err = preference.ParseSidecar([]byte(`{"format": 1, "kind": "graph", "name": "g", ` + textPart + `,
		"inputs": {"ids": "tokens"}, "outputs": {"score": "s"}, "files": {"model": "onnx/model.onnx"},
		"score": {"transform": "softmax", "index": 1, "scale": 0.1, "offset": -1},
		"constants": [{"name": "n", "dtype": "I64", "shape": [1], "values": [1]}, {"name": "f", "dtype": "F32", "shape": [], "values": [0.5]}]}`))
	require.NoError(t, err)
	assert.Equal(t, "tokens", s.Inputs.IDs)
	assert.Equal(t, filepath.Join("onnx", "model.onnx"), filepath.FromSlash(s.Files.Model))
	assert.Equal(t, preference.ScoreRules{Transform: "softmax", Index: 1, Scale: .1, Offset: -1}, s.Score)
	assert.Len(t, s.Constants, 2)
}

func TestEveryTinyModelsSidecarIsRead(t *testing.T) {
	t.Parallel()
	all, err := filepath.Glob(filepath.Join(root, "testdata", "models", "*", preference.SidecarFile))
	require.NoError(t, err)
	for _, path := range all {
		_, err := preference.ReadSidecar(filepath.Dir(path))
		require.NoError(t, err)
	}
}

// What `rewardloop models pull` writes beside the files of others; those of judges are
// read by package vlm.
func TestEverySidecarOfTheCatalogueIsRead(t *testing.T) {
	t.Parallel()
	all, err := filepath.Glob(filepath.Join(root, "models", "sidecars", "*.json"))
	require.NoError(t, err)
	read := 0
	for _, path := range all {
		if strings.HasPrefix(filepath.Base(path), "judge-") {
			continue
		}
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		_, err = preference.ParseSidecar(data)
		require.NoError(t, err, path)
		read++
	}
	assert.NotZero(t, read)
}

func TestAWrongSidecarNamesAllThatIsWrong(t *testing.T) {
	t.Parallel()
	with := func(parts ...string) string {
		return `{"format": 1, "name": "c", ` + strings.Join(parts, ", ") + "}"
	}
	for name, tt := range map[string]struct {
		file string
		says []string
	}{
		"no JSON":       {`{"format": 1`, []string{"the file"}},
		"a list":        {`[]`, []string{"the file is not a JSON object"}},
		"two values":    {clip + "{}", []string{"more than one JSON value"}},
		"empty":         {`{}`, []string{"format is 0", `kind is ""`, "name is empty"}},
		"another":       {`{"format": 2, "kind": "tower", "name": ""}`, []string{"format is 2, want 1", `kind is "tower"`, "name is empty"}},
		"unknown keys":  {with(`"kind": "text"`, textPart, `"logitscale": 1`, `"score": {"idx": 1}`), []string{`"logitscale" is unknown`, `"score.idx" is unknown`, `"logit_scale"`}},
		"key of case":   {with(`"Kind": "text"`, textPart), []string{`"Kind" is unknown`}},
		"twice":         {with(`"kind": "text"`, `"kind": "text"`, textPart), []string{"duplicate name kind"}},
		"null":          {with(`"kind": "text"`, `"text": null`), []string{"text is not a JSON object"}},
		"null scale":    {with(`"kind": "text"`, textPart, `"logit_scale": null`), []string{"logit_scale is null"}},
		"no parts":      {with(`"kind": "combined"`), []string{"image is missing", "text is missing"}},
		"graph of none": {with(`"kind": "graph"`), []string{"image and text are missing"}},
		"needless":      {with(`"kind": "image"`, imagePart, textPart, `"constants": [{"name": "n", "dtype": "I64", "shape": [], "values": [1]}]`), []string{"kind image reads no text", "constants are only for kind graph"}},
		"needless too":  {with(`"kind": "text"`, imagePart, textPart), []string{"kind text reads no pictures"}},
		"paths":         {with(`"kind": "text"`, textPart, `"files": {"model": "../m.onnx", "vision": "/v.onnx"}`), []string{`files.model is "../m.onnx"`, `files.vision is "/v.onnx"`}},
		"one name":      {with(`"kind": "text"`, textPart, `"inputs": {"ids": "x", "mask": "x"}`), []string{`inputs.ids and inputs.mask are both "x"`}},
		"numbers":       {with(`"kind": "text"`, textPart, `"logit_scale": -1`, `"score": {"index": -1, "scale": 0, "transform": "tanh"}`), []string{"logit_scale is not a positive", "score.index is -1", "score.scale is 0", `score.transform is "tanh"`}},
		"infinite":      {with(`"kind": "text"`, textPart, `"logit_bias": 1e999`), []string{"logit_bias"}},
		"text":          {with(`"kind": "text"`, `"text": {"length": 0, "pad": "left", "pad_id": -1, "template": "hello"}`), []string{"text.length is 0", `text.pad is "left"`, "text.pad_id is -1", "text.template is"}},
		"words":         {with(`"kind": "text"`, textPart, `"source": "`+strings.Repeat("x", 300)+`"`), []string{"source has 300 bytes"}},
		"image":         {with(`"kind": "image"`, `"image": {"steps": [{"op": "turn"}], "rescale": 1, "mean": [0,0,0], "std": [1,1,1]}`), []string{"image", "turn"}},
		"constants": {with(`"kind": "graph"`, textPart, `"constants": [{"name": "", "dtype": "F16", "shape": [], "values": [1]},
			{"name": "n", "dtype": "I64", "shape": [2], "values": [1]}, {"name": "n", "dtype": "BOOL", "shape": [], "values": [2]}, {"name": "h", "dtype": "I64", "shape": [], "values": [0.5]},
			{"name": "b", "dtype": "U8", "shape": [99999], "values": [0]}]`), []string{
			"constants[0].name is empty", `dtype is "F16"`, "1 values for shape [2]", `duplicate name "n"`, "2 is not a value of dtype BOOL", "0.5 is not a value", "shape [99999]",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := preference.ParseSidecar([]byte(tt.file))
			for _, says := range tt.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
}

func TestASidecarOfAGigabyteIsNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, preference.SidecarFile))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(1<<30))
	require.NoError(t, f.Close())
	_, err = preference.ReadSidecar(dir)
	require.ErrorContains(t, err, "more than 1048576 bytes")
}

func TestScoresAreTransformedThenScaled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rules preference.ScoreRules
		all   []float32
		want  float64
	}{
		{preference.ScoreRules{Transform: "raw", Scale: 1}, []float32{3}, 3},
		{preference.ScoreRules{Transform: "raw", Index: 1, Scale: -2, Offset: 1}, []float32{3, 4}, -7},
		{preference.ScoreRules{Transform: "sigmoid", Scale: 1}, []float32{0}, .5},
		{preference.ScoreRules{Transform: "sigmoid", Scale: 1}, []float32{-3e38}, 0},
		{preference.ScoreRules{Transform: "sigmoid", Scale: 4, Offset: 1}, []float32{3e38}, 5},
		{preference.ScoreRules{Transform: "softmax", Scale: 1}, []float32{3e38, 3e38}, .5},
		{preference.ScoreRules{Transform: "softmax", Index: 2, Scale: 10}, []float32{1, 2, 3}, 10 / (1 + math.Exp(-1) + math.Exp(-2))},
	} {
		got, err := tt.rules.Rate(tt.all)
		require.NoError(t, err)
		assert.InDelta(t, tt.want, got, 1e-9, "%+v", tt)
	}
	_, err := preference.ScoreRules{Transform: "raw", Index: 2, Scale: 1}.Rate([]float32{1, 2})
	require.ErrorContains(t, err, "score.index is 2")
	_, err = preference.ScoreRules{Transform: "raw", Scale: 1e300}.Rate([]float32{3e38})
	require.ErrorContains(t, err, "+Inf")
}

func TestASelfTestThatTestsNothingIsRefused(t *testing.T) {
	t.Parallel()
	side, err := preference.ParseSidecar([]byte(clip))
	require.NoError(t, err)
	n, err := preference.ParseSelfTest([]byte(`{"format": 1, "cases": [{"width": 1, "height": 1, "rgb": "AAAA", "prompt": "a", "score": 1, "tolerance": 0.1}]}`), side)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	_, err = preference.ParseSelfTest([]byte(`{"format": 1, "cases": [{"width": 65, "height": 1, "rgb": "AAAA", "tolerance": 0, "text": 1}]}`), side)
	for _, says := range []string{"cases[0]: a picture of 65x1 in 3 bytes", "cases[0].tolerance is 0", "cases[0] has no values to compare", `"cases[0].text" is unknown`} {
		require.ErrorContains(t, err, says)
	}
	_, err = preference.ParseSelfTest([]byte(`{"format": 1, "cases": []}`), side)
	require.ErrorContains(t, err, "cases has 0 entries")
	_, err = preference.ParseSelfTest([]byte(`{}`), side)
	require.ErrorContains(t, err, "format is 0")
}

func FuzzSidecar(f *testing.F) {
	f.Add([]byte(clip))
	f.Add([]byte(`{"format": 1, "kind": "graph", "name": "g", ` + textPart + `, "constants": [{"name": "n", "dtype": "I64", "shape": [1], "values": [1]}]}`))
	f.Add([]byte(`{"format": 1, "cases": [{"rgb": "AAAA", "score": 1}]}`))
	side, err := preference.ParseSidecar([]byte(clip))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := preference.ParseSidecar(data)
		if err == nil && (s.Name == "" || s.Kind == "" || s.Score.Scale == 0 || s.Image == nil && s.Text == nil) {
			t.Fatalf("%s is read as %+v", data, s)
		}
		if err != nil && s != nil {
			t.Fatal("a sidecar with an error")
		}
		_, _ = preference.ParseSelfTest(data, side)
		_ = fmt.Sprint(err)
	})
}
