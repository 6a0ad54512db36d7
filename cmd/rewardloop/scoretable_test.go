package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/parquetfile"
	"github.com/rewardloop/rewardloop/rewards"
)

// readTable reads a Parquet file that score wrote.
func readTable(t *testing.T, path string) (columns []string, rows []map[string]any) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	r, err := parquetfile.Open(bytes.NewReader(data), int64(len(data)))
	require.NoError(t, err)
	defer r.Close()
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Columns(), rows
		}
		require.NoError(t, err)
		rows = append(rows, row)
	}
}

// two is a configuration of two components.
func two(t *testing.T, dir string) string {
	t.Helper()
	return put(t, dir, "two.yaml", []byte(`
reward:
  num_workers: 2
  reward_functions:
    plain: {path: builtin://jpeg_incompressibility}
    half: {path: builtin://jpeg_incompressibility, weight: 0.5}
`))
}

func TestAParquetOutputHasAFlatTypedRowForEachSample(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	picture, want := drawing(t, 5)
	put(t, dir, "a.png", picture)
	in := put(t, dir, "in.jsonl", []byte(strings.Join([]string{
		`{"id": "a", "uid": "u", "group_size": 2, "step": 3, "index": 0, "split": "val", "prompt": "red \u0000 cube", "ground_truth": {"k": 1}, "extra_info": {"x": [1]}, "image": "a.png"}`,
		`{"id": "b", "uid": "u", "group_size": 2, "step": 3, "images": ["a.png", "a.png"]}`,
		`{"id": "c", "imgae": "a.png"}`,
		"", `{"id": "d", "image": "missing.png", "response": "text"}`,
	}, "\n")))
	out := filepath.Join(dir, "scores.PARQUET")
	got := call(t, "", "score", "-c", two(t, dir), "-i", in, "-o", out)
	require.Equal(t, exitFailure, got.code, got.stderr)
	columns, rows := readTable(t, out)
	require.Equal(t, fixedColumns(), columns[:len(fixedColumns())])
	require.Len(t, rows, 4)
	a := rows[0]
	require.Equal(t, "a", a["id"])
	require.Equal(t, "scored", a["outcome"])
	require.InDelta(t, 1.5*want, a["reward_score"], 1e-9)
	require.InDelta(t, want, a["reward/plain"], 1e-9)
	require.InDelta(t, want, a["reward/half"], 1e-9)
	require.Equal(t, false, a["reward/half/imputed"])
	require.Equal(t, true, a["rewardloop/valid"])
	require.IsType(t, 0.0, a["timing_ms/total"])
	require.Equal(t, "red \x00 cube", a["prompt"])
	require.JSONEq(t, `{"k": 1}`, a["ground_truth"].(string))
	require.JSONEq(t, `["a.png"]`, a["media"].(string))
	require.Equal(t, []any{"u", int64(2), int64(3), int64(0), "val"}, []any{a["uid"], a["group_size"], a["step"], a["index"], a["split"]})
	require.JSONEq(t, `{"plain": {"jpeg_bytes": 1}, "half": {"jpeg_bytes": 1}}`,
		strings.NewReplacer(fmt.Sprint(int(1000*want)), "1").Replace(a["details"].(string)))
	require.Nil(t, a["errors"])
	require.JSONEq(t, `["a.png","a.png"]`, rows[1]["media"].(string))
	c := rows[2]
	require.Equal(t, "c", c["id"])
	require.Equal(t, "rejected", c["outcome"])
	require.Nil(t, c["reward_score"], "absence is not zero")
	require.Nil(t, c["step"])
	require.Nil(t, c["reward/plain"])
	require.Contains(t, c["errors"], `malformed: line 3: unknown key "imgae"`)
	require.Equal(t, "malformed", c["error_class"])
	require.Equal(t, "d", rows[3]["id"])
	require.Equal(t, "text", rows[3]["response"], "of a sample whose picture is missing")
	require.NoFileExists(t, out+partial)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 4, "no file but these is left: %v", entries)
}

// pictureStruct is what Hugging Face's datasets writes for a picture.
type pictureStruct struct {
	Bytes []byte  `parquet:"bytes,optional"`
	Path  *string `parquet:"path,optional"`
}

type pictureRow struct {
	ID     int64           `parquet:"id"`
	Prompt *string         `parquet:"prompt,optional"`
	Image  *pictureStruct  `parquet:"image,optional"`
	Images []pictureStruct `parquet:"images,list,optional"`
	Video  []pictureStruct `parquet:"video,list,optional"`
	Step   *float64        `parquet:"step,optional"`
	Extra  string          `parquet:"extra_info"`
}

func putParquet[T any](t *testing.T, path string, rows []T) string {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, parquet.MaxRowsPerRowGroup(3))
	_, err := w.Write(rows)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}

func TestAParquetInputHasItsPicturesInItOrNamesTheirFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, one := drawing(t, 3)
	second, other := drawing(t, 9)
	put(t, dir, "b.png", second)
	in := putParquet(t, filepath.Join(dir, "in.parquet"), []pictureRow{
		{ID: 7, Prompt: new("red"), Image: &pictureStruct{Bytes: first, Path: new("gone.png")}, Step: new(4.0), Extra: `{"k": 1}`},
		{ID: 8, Image: &pictureStruct{Path: new("b.png")}},
		{ID: 9, Image: &pictureStruct{Bytes: []byte("no picture")}},
		{ID: 10, Images: []pictureStruct{{Bytes: second}}},
		{ID: 11, Video: []pictureStruct{{Bytes: first}, {Bytes: first}}},
		{ID: 12, Image: &pictureStruct{Bytes: first}, Video: []pictureStruct{{Bytes: first}}},
		{ID: 13, Step: new(0.5)},
	})
	out := filepath.Join(dir, "out.jsonl")
	got := call(t, "", "score", "-c", "testdata/cfg.yaml", "-i", in, "-o", out)
	require.Equal(t, exitFailure, got.code, got.stderr)
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	lines := parseOutput(t, string(text))
	require.Len(t, lines, 7)
	require.Equal(t, "7", lines[0].ID)
	require.InDelta(t, one, *lines[0].RewardScore, 1e-12)
	require.InDelta(t, other, *lines[1].RewardScore, 1e-12)
	require.Contains(t, lines[2].Errors[0].Message, "line 3: image: the picture is not a PNG, JPEG or WebP picture (10 bytes")
	require.InDelta(t, other, *lines[3].RewardScore, 1e-12)
	require.InDelta(t, one, *lines[4].RewardScore, 1e-12)
	require.Contains(t, lines[5].Errors[0].Message, "one of image, images and video")
	require.Contains(t, lines[6].Errors[0].Message, "step: want an integer")

	type wrong struct {
		ID    string `parquet:"id"`
		Respo string `parquet:"respons"`
	}
	in = putParquet(t, filepath.Join(dir, "wrong.parquet"), []wrong{{"a", "b"}})
	got = call(t, "", "score", "-c", "testdata/cfg.yaml", "-i", in, "-o", "-")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, `unknown key "respons"; did you mean response?`)
	got = call(t, "", "score", "-c", "testdata/cfg.yaml", "-i", put(t, dir, "text.parquet", []byte("id\na\n")), "-o", "-")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "not a complete Parquet file")
}

// told runs score over standard input and tells it to end once four lines are taken, of which one
// waits for its group.
func told(t *testing.T, out string) outcome {
	t.Helper()
	dir := t.TempDir()
	first, fails := drawing(t, 0)
	other, _ := drawing(t, 1)
	held, fine := put(t, dir, "0.png", first), put(t, dir, "1.png", other)
	cfg := imputing(t, dir, fails, "")
	ctx, cancel := context.WithCancel(t.Context())
	stdin, feed := io.Pipe()
	defer feed.Close() // ends the goroutine that reads
	done := make(chan outcome)
	go func() { done <- callWith(ctx, stdin, "score", "-c", cfg, "-i", "-", "-o", out) }()
	for _, line := range []string{
		fmt.Sprintf(`{"id": "early", "prompt": "p", "image": %q}`, fine),
		fmt.Sprintf(`{"id": "held", "uid": "u", "group_size": 3, "image": %q}`, held),
		`{"id": "bad`,
		"{}", "{}", // read only when the lines before the last have been taken
	} {
		_, err := io.WriteString(feed, line+"\n")
		require.NoError(t, err)
	}
	cancel()
	got := <-done
	require.Equal(t, exitFailure, got.code)
	return got
}

func TestAParquetOutputOfARunThatIsToldToEndIsWholeAndReadable(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "scores.parquet")
	got := told(t, out)
	require.Contains(t, got.stderr, "stopped after line")
	_, rows := readTable(t, out)
	require.GreaterOrEqual(t, len(rows), 3)
	require.Equal(t, []any{"early", "held", "line-3"}, []any{rows[0]["id"], rows[1]["id"], rows[2]["id"]})
	require.Equal(t, "cancelled", rows[1]["outcome"])
	require.Nil(t, rows[1]["reward_score"])
	require.NoFileExists(t, out+partial)
}

func TestAReportOfARunThatIsToldToEndSaysSo(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "report.html")
	told(t, out)
	page, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(page), "The run was told to end before all samples of the input were scored.")
	require.True(t, strings.HasSuffix(strings.TrimSpace(string(page)), "</html>"))
}

// Where the output cannot be written the results are not lost.
func TestAnOutputThatCannotBeWrittenLeavesTheResultsAsJSONLines(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skipf("SKIPPED: no full device here: %v", err)
	}
	dir := t.TempDir()
	picture, _ := drawing(t, 2)
	put(t, dir, "a.png", picture)
	in := put(t, dir, "in.jsonl", []byte(`{"id": "x", "image": "a.png"}`))
	out := filepath.Join(dir, "full.parquet")
	require.NoError(t, os.Symlink("/dev/full", out))
	got := call(t, "", "score", "-c", "testdata/cfg.yaml", "-i", in, "-o", out)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "no space left")
	require.Contains(t, got.stderr, "the results are in "+out+partial)
	text, err := os.ReadFile(out + partial)
	require.NoError(t, err)
	require.Equal(t, "x", parseOutput(t, string(text))[0].ID)
}

// A reward may invent a name for each sample, and may give one name values of several types.
func TestColumnsAreBoundedAndOnesOfSeveralTypesAreJSON(t *testing.T) {
	t.Parallel()
	k, err := newKept(filepath.Join(t.TempDir(), "x.parquet"))
	require.NoError(t, err)
	defer k.drop(true)
	c := columnsOf{seen: map[string]*scalars{}}
	const n = maxColumns + 50
	values := []any{1.5, true, "text", []any{1.0}, nil}
	for i := range n {
		r := &outputLine{ID: fmt.Sprint(i), Outcome: rewards.Scored, ExtraInfo: map[string]any{
			"aaa": values[i%len(values)], "id": float64(i), "words": "w", "": true, fmt.Sprintf("own%05d", i): float64(i),
		}}
		line, err := json.Marshal(r)
		require.NoError(t, err)
		_, err = k.results.Write(append(line, '\n'))
		require.NoError(t, err)
		require.NoError(t, k.sample([]byte(`{"id": "x"}`)))
		c.note(r)
	}
	path := filepath.Join(t.TempDir(), "out.parquet")
	out, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, writeParquet(k, &c, out))
	require.NoError(t, out.Close())
	columns, rows := readTable(t, path)
	require.Len(t, columns, len(fixedColumns())+maxColumns+1)
	require.Len(t, rows, n)
	require.Equal(t, []any{"1.5", "true", `"text"`, "[1]", nil}, []any{rows[0]["aaa"], rows[1]["aaa"], rows[2]["aaa"], rows[3]["aaa"], rows[4]["aaa"]})
	require.Equal(t, "w", rows[0]["words"])
	require.Equal(t, "0", rows[0]["id"])
	require.InDelta(t, 0, rows[0]["reward_extra_info/id"], 0)
	require.Equal(t, true, rows[0]["reward_extra_info/"])
	last := rows[n-1]
	require.JSONEq(t, fmt.Sprintf(`{"own%05d": %d}`, n-1, n-1), last[moreColumn].(string))
}

// What pandas and pyarrow read is what was written, where they are installed.
func TestPandasReadsTheParquetOfScoreAndExport(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	python, err := exec.LookPath(cmp.Or(os.Getenv("REWARDLOOP_PYTHON"), "python3"))
	if err != nil {
		t.Skipf("SKIPPED: no Python: %v", err)
	}
	if exec.CommandContext(t.Context(), python, "-c", "import pandas, pyarrow").Run() != nil {
		t.Skipf("SKIPPED: %s has no pandas with pyarrow", python)
	}
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept.parquet")
	require.Equal(t, exitOK, call(t, "", "export", "--store", servedFile(t), "--parquet", kept).code)
	picture, want := drawing(t, 5)
	in := putParquet(t, filepath.Join(dir, "in.parquet"), []pictureRow{
		{ID: 1, Prompt: new("räd"), Image: &pictureStruct{Bytes: picture}}, {ID: 2, Image: &pictureStruct{Bytes: []byte("x")}},
	})
	out := filepath.Join(dir, "out.parquet")
	got := call(t, "", "score", "-c", two(t, dir), "-i", in, "-o", out)
	require.Equal(t, exitFailure, got.code, got.stderr)
	script := `
import sys, math, pandas, pyarrow, pyarrow.parquet as pq
path, want, kept = sys.argv[1], float(sys.argv[2]), sys.argv[3]
types = {f.name: f.type for f in pq.read_schema(path)}
assert types["reward_score"] == types["reward/plain"] == pyarrow.float64(), types
assert types["step"] == pyarrow.int64() and types["rewardloop/valid"] == pyarrow.bool_(), types
assert types["id"] == types["errors"] == types["prompt"] == pyarrow.string(), types
rows = pandas.read_parquet(path)
assert list(rows["id"]) == ["1", "2"] and rows["prompt"][0] == "r\u00e4d", rows
assert abs(rows["reward/plain"][0] - want) < 1e-9 and math.isnan(rows["reward_score"][1]), rows
assert "bad_input: line 2: image: the picture is not a PNG" in rows["errors"][1], rows
all = pandas.read_parquet(kept)
assert len(all) == 112 and all["reward_score"].notna().all() and all["outcome"].eq("scored").all(), all
assert pandas.to_datetime(all["finished"], format="ISO8601").dt.year.min() >= 2026 and all["step"].dtype == "int64", all.dtypes
`
	said, err := exec.CommandContext(t.Context(), python, "-c", script, out, fmt.Sprint(want), kept).CombinedOutput()
	require.NoError(t, err, "%s", said)
}

func TestAReportShowsBestWorstFailuresGroupsAndPicturesAndEscapesTexts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const n = 40
	var lines []string
	var low, high string
	least, most := 1e9, -1e9
	for i := range n {
		file, reward := drawing(t, i)
		put(t, dir, fmt.Sprintf("%d.png", i), file)
		id := fmt.Sprintf("sample-%d", i)
		if reward < least {
			low, least = id, reward
		}
		if reward > most {
			high, most = id, reward
		}
		lines = append(lines, fmt.Sprintf(`{"id": %q, "uid": "group-%d", "group_size": 4, "prompt": "<script>alert(%d)</script>", "image": "%d.png"}`, id, i/4, i, i))
	}
	lines = append(lines, `{"id": "gone", "image": "missing.png"}`)
	in := put(t, dir, "in.jsonl", []byte(strings.Join(lines, "\n")))
	out := filepath.Join(dir, "report.html")
	got := call(t, "", "score", "-c", two(t, dir), "-i", in, "-o", out)
	require.Equal(t, exitFailure, got.code, got.stderr)
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	page := string(data)
	require.NotContains(t, page, "<script")
	require.Contains(t, page, "&lt;script&gt;alert(")
	require.Contains(t, page, "40 of 41 samples have a reward.")
	_, best, _ := strings.Cut(page, "<h2>Best</h2>")
	best, worst, _ := strings.Cut(best, "<h2>Worst</h2>")
	worst, rest, _ := strings.Cut(worst, "<h2>Failures by reason</h2>")
	require.Contains(t, best[:strings.Index(best, "</article>")], high)
	require.Contains(t, worst[:strings.Index(worst, "</article>")], low)
	require.Equal(t, reportSamples, strings.Count(best, `src="data:image/jpeg;base64,`))
	require.Equal(t, reportSamples, strings.Count(worst, `src="data:image/jpeg;base64,`))
	require.Contains(t, rest, "missing.png")
	require.Contains(t, rest, "group-9")
	require.Contains(t, rest, "<h2>Correlation between components</h2>")
	require.Contains(t, rest, ">1.00<", "the two components are the same")
	require.NotContains(t, page, "was told to end")
}

// The pictures of the best are read again from the file that has them.
func TestAReportShowsPicturesThatLieInAParquetFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var rows []pictureRow
	for i := range 20 {
		file, _ := drawing(t, i)
		rows = append(rows, pictureRow{ID: int64(i), Image: &pictureStruct{Bytes: file}})
	}
	out := filepath.Join(dir, "report.html")
	got := call(t, "", "score", "-c", "testdata/cfg.yaml", "-i", putParquet(t, filepath.Join(dir, "in.parquet"), rows), "-o", out)
	require.Equal(t, exitOK, got.code, got.stderr)
	page, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, 20, strings.Count(string(page), `src="data:image/jpeg;base64,`))
	require.NotContains(t, string(page), "cannot be read again")
}

func TestFiguresFitInto80ColumnsAndLeaveOutImputedValues(t *testing.T) {
	t.Parallel()
	var f figures
	require.Empty(t, f.String())
	for i := range 50 {
		v := -1.23456e+05 * float64(i)
		f.add(&outputLine{RewardScore: &v, ExtraInfo: map[string]any{
			"reward/a component with a very long name": v * 1e200, "reward/a component with a very long name/imputed": false,
			"reward/lost": 99.0, "reward/lost/imputed": i%2 == 0, "reward/right": i%2 == 0, "reward/right/imputed": false, "reward/combined": 1.0,
		}})
	}
	text := f.String()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	require.Len(t, lines, 5, text)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 80, text)
	}
	require.Equal(t, 25, f.components["lost"].Count())
	require.InDelta(t, 0.5, f.components["right"].Mean(), 1e-12)
	require.Contains(t, text, "  right             0.5        0      0.5        1        0 █        █ 1\n")
}

func TestFiguresAreShownOnATerminalOnly(t *testing.T) {
	t.Parallel()
	for _, bar := range []bool{false, true} {
		var stderr lockedBuffer
		p := newProgress(&env{stderr: &stderr}, false)
		p.bar = bar
		p.done(&item{number: 1}, &outputLine{Outcome: rewards.Scored, RewardScore: new(0.5)})
		p.summary()
		require.Contains(t, stderr.String(), "scored 1 of 1 samples")
		require.Equal(t, bar, strings.Contains(stderr.String(), "median"), stderr.String())
	}
}
