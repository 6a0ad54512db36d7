package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/parquetfile"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/store"
	"github.com/rewardloop/rewardloop/wire"
)

// keptSample is a sample with its result, as a server hands them to its store.
func keptSample(t *testing.T, s *rewards.Sample, with func(*store.Record)) store.Record {
	t.Helper()
	m, err := wire.Encode(s, wire.Options{})
	require.NoError(t, err)
	f, err := wire.NewFrame(m, nil)
	require.NoError(t, err)
	score := 0.25
	rec := store.Record{
		Run: "run", Epoch: 1, Split: rewards.Train, Step: s.Step, Reward: "default", Header: f.Header(), Finished: time.Now(),
		Result: &wire.Result{Type: "result", ID: s.ID, Outcome: rewards.Scored, RewardScore: &score, Worker: "w0", Attempts: 1, TimingMS: map[string]float64{"total": 3}},
	}
	if with != nil {
		with(&rec)
	}
	return rec
}

// keptIn writes records into a file.
func keptIn(t *testing.T, records ...store.Record) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "kept.db")
	s, err := store.Open(t.Context(), store.Config{Keep: store.KeepResults}, store.Options{Path: file})
	require.NoError(t, err)
	for _, r := range records {
		s.Put(r)
	}
	require.NoError(t, s.Close())
	return file
}

// parquetRows reads a Parquet file.
func parquetRows(t *testing.T, path string) (rows []map[string]any) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	r, err := parquetfile.Open(f, info.Size())
	require.NoError(t, err)
	for {
		row, err := r.Next()
		if err == io.EOF { //nolint:errorlint // it comes bare
			return rows
		}
		require.NoError(t, err)
		rows = append(rows, row)
	}
}

// hostileTexts are prompts as JSON may have them.
func hostileTexts(t *testing.T) (texts []string) {
	t.Helper()
	for _, text := range []string{
		`a\u0000b`, `\ud800 alone`, `../../x`, `<script>alert(\"1\")</script>`, `'); DROP TABLE results; --`, `a\r\nb,\"c\"\n`, `=cmd|' /C calc'!A0`, `\u202eabc`, `\u001b[31mred`, `\u2028`,
		strings.Repeat("long ", 100<<10),
	} {
		var value string
		require.NoError(t, json.Unmarshal([]byte(`"`+text+`"`), &value))
		texts = append(texts, value)
	}
	return texts
}

func TestHostileTextsComeOutOfExportsAsTheyAre(t *testing.T) {
	t.Parallel()
	texts := hostileTexts(t)
	records := make([]store.Record, len(texts))
	for i, text := range texts {
		s := &rewards.Sample{ID: text, UID: text, Prompt: text, Response: "fine", DataSource: "d", GroundTruth: json.RawMessage(`{"<b>":1}`)}
		if len(text) > 1000 {
			s.ID, s.UID = "long", "long"
		}
		records[i] = keptSample(t, s, func(r *store.Record) {
			r.Result.ExtraInfo = map[string]any{"note": text, "key\n" + s.ID: 1.5}
			r.Result.Errors = []rewards.ComponentError{{Component: "c", Class: rewards.Crashed, Message: text}}
		})
	}
	file := keptIn(t, records...)
	dir := t.TempDir()
	for _, kind := range []string{"parquet", "csv", "jsonl"} {
		got := call(t, "", "export", "--store", file, "--"+kind, filepath.Join(dir, "out."+kind))
		require.Equal(t, exitOK, got.code, got.stderr)
		require.Contains(t, got.stderr, fmt.Sprintf("%d results of %s written", len(texts), file))
	}
	rows := parquetRows(t, filepath.Join(dir, "out.parquet"))
	f, err := os.Open(filepath.Join(dir, "out.csv"))
	require.NoError(t, err)
	defer f.Close()
	table, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	lines, err := os.ReadFile(filepath.Join(dir, "out.jsonl"))
	require.NoError(t, err)
	objects := strings.Split(strings.TrimSuffix(string(lines), "\n"), "\n")
	require.Len(t, rows, len(texts))
	require.Len(t, table, len(texts)+1)
	require.Len(t, objects, len(texts))
	prompt, note := slices.Index(table[0], "prompt"), slices.Index(table[0], "note")
	for i, text := range texts {
		assert.Equal(t, text, rows[i]["prompt"])
		assert.Equal(t, text, rows[i]["note"])
		unix := func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") } // as encoding/csv reads what is quoted
		assert.Equal(t, unix(text), table[i+1][prompt])
		assert.Equal(t, unix(text), table[i+1][note])
		var object struct {
			Prompt string
			Extra  map[string]any
			Errors []rewards.ComponentError
		}
		require.NoError(t, json.Unmarshal([]byte(objects[i]), &object))
		assert.Equal(t, text, object.Prompt)
		assert.Equal(t, text, object.Extra["note"])
		assert.Equal(t, text, object.Errors[0].Message)
	}
	got := call(t, "", "replay", "--store", file, "reward.custom_reward_function.path=builtin://length", "--verify")
	require.Equal(t, exitFailure, got.code)
	assert.NotContains(t, got.stdout, "\x1b", "a terminal gets no control characters of a client")
	assert.NotContains(t, got.stdout, "\x00")
	again, _, same := figures3(t, got.stdout)
	assert.Equal(t, len(texts), again)
	assert.Zero(t, same)
}

var scoredAgain = regexp.MustCompile(`(\d+) samples? scored again, (\d+) with a reward before and now, (\d+) identical`)

// figures3 are those of replay's first line.
func figures3(t *testing.T, out string) (again, both, same int) {
	t.Helper()
	m := scoredAgain.FindStringSubmatch(out)
	require.NotNil(t, m, out)
	var n [3]int
	for i := range n {
		var err error
		n[i], err = strconv.Atoi(m[i+1])
		require.NoError(t, err)
	}
	return n[0], n[1], n[2]
}

// steps are records of two runs of 3 steps of 4 samples; the second run has its step 2 twice.
func steps(t *testing.T) (list []store.Record) {
	t.Helper()
	for _, run := range []string{"a", "b"} {
		for step := range int64(3) {
			for epoch := range uint64(2) {
				for n := range 4 {
					if epoch == 1 && (run == "a" || step < 2) {
						continue
					}
					s := &rewards.Sample{ID: fmt.Sprintf("%s%d%d", run, step, n), Step: step, UID: "g", GroupSize: 4, Prompt: "p", Response: "r"}
					list = append(list, keptSample(t, s, func(r *store.Record) {
						r.Run, r.Epoch = run, epoch+1
						if n == 3 {
							r.Result.RewardScore, r.Result.Outcome = nil, rewards.Failed
							r.Result.Errors = []rewards.ComponentError{{Component: "c", Class: rewards.Crashed, Message: "m"}}
						}
						if n == 2 {
							r.Split, r.Reward = rewards.Val, "judge"
						}
					}))
				}
			}
		}
	}
	return list
}

func TestExportWritesWhatItsFlagsSelect(t *testing.T) {
	t.Parallel()
	file := keptIn(t, steps(t)...)
	for _, c := range []struct {
		args string
		rows int
	}{
		{"", 24},
		{"--all-epochs", 28},
		{"--run a", 12},
		{"--run nobody", 0},
		{"--steps 1", 8},
		{"--steps 1-2", 16},
		{"--split val", 6},
		{"--split train", 18},
		{"--reward judge", 6},
		{"--reward default", 18},
		{"--failed", 6},
		{"--failed --run b --steps 2 --all-epochs", 2},
	} {
		for _, kind := range []string{"csv", "jsonl"} {
			got := call(t, "", append([]string{"export", "--store", file, "--" + kind, "-"}, strings.Fields(c.args)...)...)
			require.Equal(t, exitOK, got.code, got.stderr)
			rows := strings.Count(got.stdout, "\n")
			if kind == "csv" {
				rows-- // the heading
			}
			assert.Equal(t, c.rows, rows, "%s %s", kind, c.args)
		}
		out := filepath.Join(t.TempDir(), "out.parquet")
		got := call(t, "", append([]string{"export", "--store", file, "--parquet", out}, strings.Fields(c.args)...)...)
		require.Equal(t, exitOK, got.code, got.stderr)
		rows := parquetRows(t, out)
		require.Len(t, rows, c.rows, c.args)
		for _, row := range rows {
			assert.Equal(t, row["outcome"] == "failed", row["reward_score"] == nil, "a failure has no reward, not zero")
		}
	}
}

func TestExportAndReplaySayWhatIsWrongWithWhatTheyAreGiven(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := keptIn(t, steps(t)[0])
	garbage := put(t, dir, "garbage.db", bytes.Repeat([]byte("garbage "), 1000))
	empty := put(t, dir, "empty.db", nil)
	out := filepath.Join(dir, "out.csv")
	for _, c := range []struct{ args, says string }{
		{"export --store " + file, "parquet"},
		{"export --store " + file + " --csv " + out + " --jsonl " + out, "csv jsonl"},
		{"export --csv " + out + " --store " + filepath.Join(dir, "none.db"), "none.db"},
		{"export --csv " + out + " --store " + garbage, "garbage.db"},
		{"export --csv " + out + " --store " + empty, "the file is not a store of rewardloop"},
		{"export --csv " + out + " --store " + dir, dir},
		{"export --csv " + out + " --store " + file + " --steps 9-3", "--steps"},
		{"export --csv " + out + " --store " + file + " --steps x", "--steps"},
		{"export --csv " + out + " --store " + file + " --split test", "want train or val"},
		{"export --csv " + out + " --store " + file + " extra", "extra"},
		{"replay --store " + file, "no reward is named"},
		{"replay --store " + garbage + " reward.custom_reward_function.path=builtin://length", "garbage.db"},
		{"replay --store " + file + " reward.custom_reward_function.path=builtin://length -o " + filepath.Join(dir, "no", "where"), "where"},
		{"replay --store " + file + " reward.custom_reward_function.path=builtin://length ++queue.nats_listen=127.0.0.1:0 reward.num_workers=0", "num_workers"},
	} {
		got := call(t, "", strings.Fields(c.args)...)
		assert.Equal(t, exitUsage, got.code, "%s: %s", c.args, got.stderr)
		assert.Contains(t, got.stderr, c.says, c.args)
		assert.NoFileExists(t, out)
	}
	got := call(t, "", "export", "--store", file, "--csv", filepath.Join(dir, "no", "where.csv"))
	assert.Equal(t, exitFailure, got.code)
	assert.Contains(t, got.stderr, "where.csv")
	before, err := os.ReadFile(garbage)
	require.NoError(t, err)
	assert.Len(t, before, 8000, "it is left as it is")
	none := call(t, "", "replay", "--store", file, "--run", "nobody", "reward.custom_reward_function.path=builtin://length")
	assert.Equal(t, exitFailure, none.code)
	assert.Contains(t, none.stderr, "no sample of "+file)
}

func TestAFileIsExportedWhileAServerWritesIt(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kept.db")
	_, addr := keeping(t, file)
	c := dial(t, addr)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			f, err := c.Submit(ctx, &rewards.Sample{ID: strconv.Itoa(n), Prompt: "p", Response: "r"}, 0)
			if err == nil && n%64 == 63 {
				_, _ = f.Wait(ctx)
			}
		}
	}()
	defer func() { cancel(); <-done }()
	last := 0
	for round := 0; round < 3 || last == 0; round++ {
		require.Less(t, round, 200)
		out := filepath.Join(t.TempDir(), "out.parquet")
		got := call(t, "", "export", "--store", file, "--parquet", out)
		require.Equal(t, exitOK, got.code, got.stderr)
		rows := parquetRows(t, out)
		require.GreaterOrEqual(t, len(rows), last)
		last = len(rows)
		for i, row := range rows {
			require.Equal(t, int64(i+1), row["key"])
		}
	}
}

// twoFunctions is a reward of two functions, the second of which looks at whole groups.
func twoFunctions(t *testing.T, weight string) string {
	t.Helper()
	return put(t, t.TempDir(), "cfg.yaml", []byte(`reward:
  reward_functions:
    words: {path: "builtin://f1", weight: `+weight+`}
    place: {path: "builtin://rank", of: words, weight: 0.5}
rewards:
  brief: {custom_reward_function: {path: "builtin://length"}}
`))
}

// servedFile has 2 runs of 2 steps of 24 samples in groups of 4 and 4 of another reward each, kept by a server.
func servedFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kept.db")
	p, addr := serving(t, "-c", twoFunctions(t, "1"), "store.path="+file)
	p.stderr.await(t, "results are kept")
	scoreAll(t.Context(), t, addr, 112, func(n int) *rewards.Sample {
		run, place := n%2, n/2
		s := &rewards.Sample{
			ID: "s" + strconv.Itoa(n), Prompt: "p", Response: strings.Repeat("one ", place%4) + "two", GroundTruth: json.RawMessage(`"one two three"`),
			UID: fmt.Sprintf("g%d-%d", run, place/4), GroupSize: 4,
		}
		if place >= 48 {
			s.UID, s.GroupSize, s.Reward = "", 0, "brief"
		}
		return s
	})
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Equal(t, exitOK, p.code(t), p.stderr.String())
	return file
}

func TestReplayComparesWithAnotherConfiguration(t *testing.T) {
	t.Parallel()
	file := servedFile(t)
	same := call(t, "", "replay", "--store", file, "-c", twoFunctions(t, "1"), "--verify", "reward.num_workers=3")
	require.Equal(t, exitOK, same.code, "%s\n%s", same.stdout, same.stderr)
	again, both, equal := figures3(t, same.stdout)
	assert.Equal(t, []int{112, 112, 112}, []int{again, both, equal}, same.stdout)
	assert.NotContains(t, same.stdout, "not the same")

	moved := filepath.Join(t.TempDir(), "moved.jsonl")
	other := call(t, "", "replay", "--store", file, "-c", twoFunctions(t, "-0.4"), "-o", moved)
	require.Equal(t, exitOK, other.code, "%s\n%s", other.stdout, other.stderr)
	assert.Contains(t, other.stdout, "moved most:")
	assert.Contains(t, other.stdout, "  words: correlation 1.0000, of ranks 1.0000 over 96 samples")
	assert.Contains(t, other.stdout, "of 144 pairs within prompt groups changed their order")
	assert.LessOrEqual(t, strings.Count(other.stdout, "\n"), 20)
	pairs, err := os.ReadFile(moved)
	require.NoError(t, err)
	n := 0
	for line := range strings.Lines(string(pairs)) {
		var c compared
		require.NoError(t, json.Unmarshal([]byte(line), &c))
		if c.OldComponents["words"] != nil {
			assert.InDelta(t, -1.4**c.OldComponents["words"], *c.New-*c.Old, 1e-9)
		}
		n++
	}
	assert.Equal(t, 112, n)
	verified := call(t, "", "replay", "--store", file, "-c", twoFunctions(t, "-0.4"), "--verify")
	assert.Equal(t, exitFailure, verified.code)
	assert.Contains(t, verified.stdout, "not the same:")
	assert.Contains(t, verified.stderr, "some rewards are not the same")
	_, _, equal = figures3(t, verified.stdout)
	_, listed, _ := strings.Cut(verified.stdout, "not the same:\n")
	assert.Equal(t, 112-equal+1, strings.Count(listed, "\n"), "a heading and a line each")

	toStdout := call(t, "", "replay", "--store", file, "-c", twoFunctions(t, "1"), "-o", "-")
	require.Equal(t, exitOK, toStdout.code)
	for line := range strings.Lines(toStdout.stdout) {
		require.True(t, json.Valid([]byte(line)), "nothing else is written there: %s", line)
	}
	assert.Contains(t, toStdout.stderr, "112 samples scored again")
}

func TestReplayLeavesOutWhatItCannotScoreAndSaysSo(t *testing.T) {
	t.Parallel()
	file := servedFile(t)
	got := call(t, "", "replay", "--store", file, "reward.custom_reward_function.path=builtin://f1")
	assert.Equal(t, exitFailure, got.code)
	assert.Contains(t, got.stdout, "16 samples left out: the configuration has no reward brief")
	again, _, _ := figures3(t, got.stdout)
	assert.Equal(t, 96, again)

	part := call(t, "", "replay", "--store", file, "-c", twoFunctions(t, "1"), "--run", "run0", "--reward", "default", "--steps", "0", "--verify")
	require.Equal(t, exitOK, part.code, part.stdout)
	again, _, _ = figures3(t, part.stdout)
	assert.Equal(t, 48, again)

	meddled := filepath.Join(t.TempDir(), "meddled.db")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(meddled, data, 0o600))
	meddle(t, meddled, "DELETE FROM results WHERE id = 's0'", "UPDATE results SET head = x'00' WHERE id = 's9'")
	whole := call(t, "", "replay", "--store", meddled, "-c", twoFunctions(t, "1"), "--verify")
	assert.Equal(t, exitFailure, whole.code)
	assert.Contains(t, whole.stdout, "1 sample left out: their media are not kept, or are damaged")
	assert.Contains(t, whole.stdout, "6 samples in prompt groups with missing members")
	again, _, _ = figures3(t, whole.stdout)
	assert.Equal(t, 110, again)
}

func TestReplayLeavesOutPicturesWhoseBytesWereNotKept(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kept.db")
	p, addr := serving(t, "reward.custom_reward_function.path=builtin://jpeg_incompressibility", "store.path="+file)
	p.stderr.await(t, "results are kept")
	scoreAll(t.Context(), t, addr, 5, func(n int) *rewards.Sample {
		data, _ := drawing(t, n)
		return &rewards.Sample{Media: []*rewards.Media{{Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Shape: []int{len(data)}, Data: data}}}
	})
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Equal(t, exitOK, p.code(t), p.stderr.String())
	got := call(t, "", "replay", "--store", file, "reward.custom_reward_function.path=builtin://jpeg_incompressibility")
	assert.Equal(t, exitFailure, got.code)
	assert.Contains(t, got.stdout, "5 samples left out")
	assert.Contains(t, got.stderr, "no sample of "+file)
}

func TestAGroupWiderThanWhatIsUnderWayIsReplayed(t *testing.T) {
	t.Parallel()
	var list []store.Record
	const groups, size = 600, 2 // the first members of all groups before the second ones
	for n := range groups * size {
		s := &rewards.Sample{ID: strconv.Itoa(n), UID: strconv.Itoa(n % groups), GroupSize: size, Prompt: "p", Response: strings.Repeat("a", n), GroundTruth: json.RawMessage(`"a"`)}
		list = append(list, keptSample(t, s, nil))
	}
	file := keptIn(t, list...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := callWith(ctx, strings.NewReader(""), "replay", "--store", file, "-c", twoFunctions(t, "1"))
	require.Equal(t, exitOK, got.code, "%s\n%s", got.stdout, got.stderr)
	again, _, _ := figures3(t, got.stdout)
	assert.Equal(t, groups*size, again)
}

func TestCtrlCEndsAReplayWithWhatWasCompared(t *testing.T) {
	t.Parallel()
	var list []store.Record
	for n := range 40_000 {
		list = append(list, keptSample(t, &rewards.Sample{ID: strconv.Itoa(n), Prompt: "p", Response: "r"}, nil))
	}
	file := keptIn(t, list...)
	out := watched()
	p := start(t, "", nil, out, "replay", "--store", file, "reward.custom_reward_function.path=builtin://length", "-o", "-")
	out.await(t, `"id":"1"`)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Equal(t, exitFailure, p.code(t), p.stderr.String())
	assert.Contains(t, p.stderr.String(), "interrupted; the comparison so far")
	again, _, _ := figures3(t, p.stderr.String())
	assert.Positive(t, again)
	assert.Less(t, again, 40_000)
	assert.Equal(t, again, strings.Count(out.String(), "\n"))
}

func TestARewardOfMinusZeroIsTheSameAgain(t *testing.T) {
	t.Parallel()
	minus := math.Copysign(0, -1)
	file := keptIn(t, keptSample(t, &rewards.Sample{ID: "a", Prompt: "p"}, func(r *store.Record) { r.Result.RewardScore = &minus }))
	r, err := store.OpenReader(file)
	require.NoError(t, err)
	defer r.Close()
	for row, err := range r.Each(t.Context(), store.Query{}) {
		require.NoError(t, err)
		now := minus
		assert.True(t, (&compared{Old: row.Score, New: &now}).same())
	}
}
