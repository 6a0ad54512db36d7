package demo_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/examples/demo"
	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// made is a demo of two groups as a run would have recorded it: the readings are
// given, everything else follows from them.
func made(t *testing.T) *demo.Demo {
	t.Helper()
	formula, err := ocr.Preset(ocr.FlowGRPO)
	require.NoError(t, err)
	d := &demo.Demo{Record: demo.Record{About: demo.About{Reader: "a reader", Places: 2, GPUs: 2, Seed: 1}}}
	texts := []struct{ read, rendered string }{
		{"Open", "Open"},
		{"0pen", "Open"},
		{"Oen", "Oen"},
		{"", "pen"},
		{"Wet Paint", "Wet Paint"},
		{"WetPaint", "Wet Paint"},
		{"wet paint!", "Wet Paint"},
		{"Wet Paint", "Wet Paint"},
	}
	var g, r []float64
	for i, text := range texts {
		target := []string{"Open", "Wet Paint"}[i/4]
		m, err := formula.Compare(target, text.read)
		require.NoError(t, err)
		id, uid := fmt.Sprintf("s%d", i), fmt.Sprintf("g%d", i/4)
		d.Record.Samples = append(d.Record.Samples, demo.Sample{
			ID: id, UID: uid, Index: i, Target: target, Rendered: text.rendered, Streaming: &m.Value, Batch: &m.Value,
		})
		d.Scores = append(d.Scores, demo.Score{
			ID: id, Index: i, UID: uid, Outcome: rewards.Scored, RewardScore: &m.Value,
			Details: map[string]any{"target": target, "text": text.read},
		})
		g, r = append(g, 0.3*float64(i+1)), append(r, 0.4)
	}
	streaming, err := sim.IdealQueue(g, r, 2)
	require.NoError(t, err)
	batch, err := sim.BatchAfterRollout(g, r, 2)
	require.NoError(t, err)
	d.Record.Streaming, d.Record.Batch = trace.FromSchedule(streaming), trace.FromSchedule(batch)
	for i := range texts {
		d.Record.Streaming.Spans[i].ID, d.Record.Batch.Spans[i].ID = d.Scores[i].ID, d.Scores[i].ID
	}
	return d
}

func saved(t *testing.T, d *demo.Demo) string {
	t.Helper()
	rep, err := d.Report()
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "out", "demo")
	require.NoError(t, d.Save(dir, rep))
	return dir
}

func TestEveryFigureOfTheReportFollowsFromTheRecord(t *testing.T) {
	t.Parallel()
	rep, err := made(t).Report()
	require.NoError(t, err)
	require.Len(t, rep.Groups, 2)
	assert.InDelta(t, (1+0.75+0.75+0)/4, *rep.Groups[0].Mean, 1e-12)
	assert.InDelta(t, (1+1+0.75+0.75)/4, *rep.Groups[0].Truth, 1e-12)
	assert.InDelta(t, math.Sqrt((0.375*0.375+2*0.125*0.125+0.625*0.625)/4), *rep.Groups[0].Std, 1e-12)
	assert.True(t, rep.Groups[1].ZeroStd)
	assert.Equal(t, 1, rep.ZeroStd)
	assert.InDelta(t, (0.25+0.75)/8, rep.Truth.MeanError, 1e-12)
	assert.Equal(t, 6, rep.Truth.Exact)
	assert.Equal(t, "s3", rep.Truth.WorstID)
	assert.InDelta(t, 0.4, rep.Streaming.Exposed, 1e-9)
	assert.InDelta(t, 1.6, rep.Batch.Exposed, 1e-9)
	text := rep.String()
	for _, want := range []string{
		"g1    Wet Paint                  1.000   0.000   1.000       4       0",
		"8 scored, 0 failed. Zero-std ratio 0.500 (1 of 2 groups)", "mean absolute error 0.1250; 6 of 8 exact; worst 0.750 (s3)",
		"streaming                          2.400     0.400     2.800", "takes 30.0 % off the step, hides 75.0 %",
	} {
		assert.Contains(t, text, want)
	}
	for line := range strings.Lines(text) {
		assert.LessOrEqual(t, len([]rune(line)), 80, "%q", line)
	}
}

func TestRunsThatDoNotCompareAreSaidToBeSo(t *testing.T) {
	t.Parallel()
	d := made(t)
	assert.NotContains(t, reportOf(t, d), "do not compare")
	for i := range d.Record.Streaming.Spans { // each picture took ten times as long
		s := &d.Record.Streaming.Spans[i]
		start := s.Generated
		if i > 1 {
			start = max(start, *d.Record.Streaming.Spans[i-2].Scored)
		}
		s.Started, s.Scored = new(start), new(start+4)
	}
	text := reportOf(t, d)
	assert.Contains(t, text, "the measured rows do not compare")
	assert.Contains(t, text, "Streaming took 315.0 % longer\n")
	assert.NotContains(t, text, "hides")
}

func reportOf(t *testing.T, d *demo.Demo) string {
	t.Helper()
	rep, err := d.Report()
	require.NoError(t, err)
	return rep.String()
}

func TestWhatIsSavedVerifiesAndASecondDemoReplacesTheFirst(t *testing.T) {
	t.Parallel()
	d := made(t)
	dir := saved(t, d)
	rep, err := demo.Verify(dir)
	require.NoError(t, err)
	want, err := d.Report()
	require.NoError(t, err)
	assert.Equal(t, want.String(), rep.String())
	d.Record.About.Reader = "another reader"
	want, err = d.Report()
	require.NoError(t, err)
	require.NoError(t, d.Save(dir, want))
	rep, err = demo.Verify(dir)
	require.NoError(t, err)
	assert.Contains(t, rep.String(), "another reader")
}

func TestAFileThatWasTamperedWithIsFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ file, old, new, says string }{
		"a score":               {demo.ScoresFile, `"reward_score":0.75`, `"reward_score":0.85`, "but 0.75 in the trace"},
		"a score in the trace":  {demo.TraceFile, `"streaming_score": 0.75`, `"streaming_score": 1`, "scored 0.75, but 1 in the trace"},
		"what was read":         {demo.ScoresFile, `"text":"0pen"`, `"text":"Open"`, `gives the score 1, but the file has 0.75`},
		"the truth":             {demo.TraceFile, `"rendered": "Oen"`, `"rendered": "Open"`, "mean absolute error"},
		"a time":                {demo.TraceFile, `"generated_s": 2.4,`, `"generated_s": 2.3,`, "takes"},
		"two samples swapped":   {demo.ScoresFile, `{"id":"s1","index":1`, `{"id":"s2","index":1`, `row 1 is sample "s1"`},
		"a line missing":        {demo.ScoresFile, "\n{\"id\":\"s7\"", "\n", "s7"},
		"a figure of the text":  {demo.ReportFile, "8 scored", "9 scored", "computed   8 scored"},
		"a name nobody knows":   {demo.TraceFile, `"about": {`, `"more": 1, "about": {`, "more"},
		"a sample out of sight": {demo.TraceFile, `"batch_score": 0.75`, `"batch_score": null`, "without a time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := saved(t, made(t))
			path := filepath.Join(dir, tt.file)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Contains(t, string(data), tt.old)
			changed := strings.Replace(string(data), tt.old, tt.new, 1)
			if name == "a line missing" {
				changed = string(data[:bytes.LastIndex(bytes.TrimSpace(data), []byte("\n"))+1])
				tt.says = "8 samples, but 7 scores"
			}
			require.NoError(t, os.WriteFile(path, []byte(changed), 0o600))
			_, err = demo.Verify(dir)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func TestATensorThatWasTamperedWithIsFound(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	dir := saved(t, made(t))
	path := filepath.Join(dir, demo.TensorsFile)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		require.NoError(t, os.WriteFile(path, bad, 0o600))
		_, err := demo.Verify(dir)
		// A bit of the padding or of white space may not matter; one of the data does.
		if i >= len(good)-5*8 {
			require.ErrorIs(t, err, demo.ErrMismatch, "byte %d", i)
		}
	}
	for n := range good {
		require.NoError(t, os.WriteFile(path, good[:n], 0o600))
		_, err := demo.Verify(dir)
		require.ErrorIs(t, err, demo.ErrMismatch, "cut to %d bytes", n)
	}
}

func TestAFolderWithoutADemoSaysWhatToDo(t *testing.T) {
	t.Parallel()
	_, err := demo.Verify(t.TempDir())
	require.ErrorContains(t, err, "run the demo first")
}

func TestAFailedSampleIsNoZeroAndLeavesTheStepUnfinished(t *testing.T) {
	t.Parallel()
	d := made(t)
	d.Record.Samples[3].Streaming, d.Record.Samples[3].Batch = nil, nil
	d.Scores[3].RewardScore, d.Scores[3].Outcome = nil, rewards.Failed
	d.Scores[3].Errors = []rewards.ComponentError{{Class: rewards.Timeout, Message: "30 s"}}
	for _, tr := range []*trace.Trace{&d.Record.Streaming, &d.Record.Batch} {
		tr.Spans[3].Started, tr.Spans[3].Scored = nil, nil
	}
	rep, err := demo.Verify(saved(t, d))
	require.NoError(t, err)
	assert.Nil(t, rep.Streaming)
	assert.InDelta(t, (1+0.75+0.75)/3, *rep.Groups[0].Mean, 1e-12, "the mean is over those that were scored")
	text := rep.String()
	assert.Contains(t, text, "7 scored, 1 failed")
	assert.Contains(t, text, "s3 failed, timeout: 30 s")
	assert.Contains(t, text, "Not shown: a sample without a score leaves the step unfinished")
}

func TestTheServersGroupStatisticsMustBeThoseOfItsScores(t *testing.T) {
	t.Parallel()
	d := made(t)
	rep, err := d.Report()
	require.NoError(t, err)
	d.Record.Groups = append(d.Record.Groups, rep.Groups[0].GroupStats)
	_, err = d.Report()
	require.NoError(t, err)
	d.Record.Groups[0].Mean = new(*d.Record.Groups[0].Mean + 1e-6)
	_, err = d.Report()
	require.ErrorContains(t, err, `group "g0": the server says`)
}

func TestTheTensorsAreWhatTheirHeaderSays(t *testing.T) {
	t.Parallel()
	scores := []*float64{new(0.1), nil, new(-2.5), new(0.0)}
	file, err := demo.EncodeRM(scores)
	require.NoError(t, err)
	require.NoError(t, demo.CheckRM(file, scores))
	size := int(binary.LittleEndian.Uint64(file))
	assert.Zero(t, size%8, "the data are aligned")
	var head map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(file[8:8+size], &head))
	assert.JSONEq(t, `{"dtype":"F32","shape":[4,1],"data_offsets":[0,16]}`, string(head["rm_scores"]))
	assert.JSONEq(t, `{"dtype":"BOOL","shape":[4,1],"data_offsets":[16,20]}`, string(head["rm_valid"]))
	assert.Equal(t, []byte{1, 0, 1, 1}, file[len(file)-4:])
	require.ErrorContains(t, demo.CheckRM(file, []*float64{new(0.1), new(0.0), new(-2.5), new(0.0)}), "row 1 is NaN with rm_valid 0")
}

// readTensors is the format as its own page describes it, in plain Python.
const readTensors = `
import json, math, struct, sys
f = open(sys.argv[1], "rb").read()
n, = struct.unpack("<Q", f[:8])
head, data = json.loads(f[8:8+n]), f[8+n:]
assert all(isinstance(v, str) for v in head.pop("__metadata__").values())
s, v = head.pop("rm_scores"), head.pop("rm_valid")
assert not head and s["dtype"] == "F32" and v["dtype"] == "BOOL" and s["shape"] == v["shape"]
rows, one = s["shape"]
assert one == 1 and v["data_offsets"][1] == len(data)
scores = struct.unpack("<%df" % rows, data[slice(*s["data_offsets"])])
valid = struct.unpack("<%d?" % rows, data[slice(*v["data_offsets"])])
assert all(math.isfinite(x) == ok for x, ok in zip(scores, valid))
print(json.dumps([x if ok else None for x, ok in zip(scores, valid)]))
`

func TestPythonReadsTheTensors(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	interpreter := os.Getenv("REWARDLOOP_PYTHON")
	if interpreter == "" {
		interpreter = "python3"
	}
	if _, err := exec.LookPath(interpreter); err != nil {
		t.Skipf("SKIPPED: no Python: %v; name one in REWARDLOOP_PYTHON", err)
	}
	file, err := demo.EncodeRM([]*float64{new(0.5), nil, new(-2.5)})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), demo.TensorsFile)
	require.NoError(t, os.WriteFile(path, file, 0o600))
	out, err := exec.CommandContext(t.Context(), interpreter, "-I", "-c", readTensors, path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.JSONEq(t, `[0.5, null, -2.5]`, string(out))
}
