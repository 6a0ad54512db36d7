package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
)

// scored runs score on lines in dir with the test's configuration and returns what it
// wrote.
func scored(t *testing.T, dir string, lines []string, args ...string) (outcome, []outputLine) {
	t.Helper()
	in := put(t, dir, "in.jsonl", []byte(strings.Join(lines, "\n")+"\n"))
	out := filepath.Join(dir, "out.jsonl")
	got := call(t, "", append([]string{"score", "-c", "testdata/cfg.yaml", "-i", in, "-o", out}, args...)...)
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	return got, parseOutput(t, string(text))
}

func parseOutput(t *testing.T, text string) []outputLine {
	t.Helper()
	var all []outputLine
	for line := range strings.Lines(text) {
		var r outputLine
		dec := json.NewDecoder(strings.NewReader(line))
		dec.DisallowUnknownFields()
		require.NoError(t, dec.Decode(&r), line)
		all = append(all, r)
	}
	return all
}

func TestScoresComeInTheOrderOfTheInputEachOfItsOwnPicture(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	dir := t.TempDir()
	const n = 500
	lines, want := make([]string, n), make([]float64, n)
	for i := range n {
		var file []byte
		file, want[i] = drawing(t, i)
		put(t, dir, fmt.Sprintf("p/%d.png", i), file)
		lines[i] = fmt.Sprintf(`{"id": "s%d", "uid": "u%d", "group_size": 5, "index": %d, "step": 3, "image": "p/%d.png", "prompt": null}`, i, i/5, i, i)
	}
	got, out := scored(t, dir, lines)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Len(t, out, n)
	for i, r := range out {
		require.Equal(t, fmt.Sprintf("s%d", i), r.ID)
		require.Equal(t, rewards.Scored, r.Outcome)
		require.InDelta(t, want[i], *r.RewardScore, 1e-12, r.ID)
		require.Contains(t, r.TimingMS, "total")
		require.Equal(t, true, r.ExtraInfo["rewardloop/valid"])
	}
	require.Contains(t, got.stderr, "scored 500 of 500 samples")
	require.Contains(t, got.stderr, "groups: 100, ")
}

func TestEveryKeyOfTheOutputIsThereEvenIfEmpty(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := put(t, dir, "in.jsonl", []byte("7\n"))
	got := call(t, "", "score", "-c", "testdata/cfg.yaml", "-i", in, "-o", "-")
	require.Equal(t, exitFailure, got.code)
	require.JSONEq(t, `{"id": "line-1", "outcome": "rejected", "reward_score": null, "reward_extra_info": {}, "details": {},
		"errors": [{"class": "malformed", "message": "line 1: want a JSON object, found 7"}], "timing_ms": {}}`, got.stdout)
}

func TestABadLineIsReportedWithItsNumberAndTheOthersAreScored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	picture, want := drawing(t, 7)
	put(t, dir, "a.png", picture)
	put(t, dir, "empty.png", nil)
	put(t, dir, "broken.png", picture[:60])
	put(t, dir, "anim.gif", []byte("GIF89a and so on"))
	put(t, dir, "film.mp4", []byte("\x00\x00\x00\x20ftypisom and so on"))
	put(t, dir, "text.txt", []byte("this is no picture"))
	put(t, dir, "nothing/.hidden", nil)
	put(t, dir, "mixed/1.png", picture)
	put(t, dir, "mixed/notes.txt", []byte("no frame"))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	bad := []struct {
		line, says string
		class      rewards.Class
	}{
		{`{"id": "b", "image": `, "not JSON", rewards.Malformed},
		{`{"id": "b"} {}`, "not JSON", rewards.Malformed},
		{`"b"`, "want a JSON object", rewards.Malformed},
		{"{\"id\": \"\xff\"}", "UTF-8", rewards.Malformed},
		{`{"imgae": "a.png", "id": "b"}`, `unknown key "imgae"`, rewards.Malformed},
		{`{"id": "b", "Image": "a.png"}`, `unknown key "Image"`, rewards.Malformed},
		{`{"id": "b", "image": "a.png", "image": "a.png"}`, "duplicate key", rewards.Malformed},
		{`{"id": 7, "image": "a.png"}`, "id: want a string, found 7", rewards.Malformed},
		{`{"id": "b", "image": ["a.png"]}`, "image: want a string", rewards.Malformed},
		{`{"id": "b", "images": []}`, "images: want a list", rewards.Malformed},
		{`{"id": "b", "images": ["a.png", 1]}`, "[1]: want a string", rewards.Malformed},
		{`{"id": "b", "image": "a.png", "video": "mixed"}`, "one of image, images and video", rewards.Malformed},
		{`{"id": "b", "group_size": 2.5}`, "group_size: want an integer", rewards.Malformed},
		{`{"id": "b", "index": -1}`, "index: want an integer", rewards.Malformed},
		{`{"id": "b", "split": "test"}`, "want train or val", rewards.Malformed},
		{`{"id": "b", "extra_info": []}`, "extra_info: want an object", rewards.Malformed},
		{`{"id": "b", "image": "a.png", "reward": "beauty"}`, `no reward named "beauty"`, rewards.UnknownReward},
		{`{"id": "b", "image": "missing.png"}`, "no such file", rewards.BadInput},
		{`{"id": "b", "image": ""}`, "an empty path", rewards.BadInput},
		{`{"id": "b", "image": "empty.png"}`, "not a PNG, JPEG or WebP picture (0 bytes", rewards.BadInput},
		{`{"id": "b", "image": "anim.gif"}`, "is a GIF", rewards.BadInput},
		{`{"id": "b", "image": "film.mp4"}`, "is an MP4 video", rewards.BadInput},
		{`{"id": "b", "image": "text.txt"}`, "not a PNG, JPEG or WebP picture (18 bytes, beginning 74 68", rewards.BadInput},
		{`{"id": "b", "image": "mixed"}`, "is a folder", rewards.BadInput},
		{`{"id": "b", "video": "nothing"}`, "is empty", rewards.BadInput},
		{`{"id": "b", "video": "mixed"}`, "notes.txt is not a PNG", rewards.BadInput},
		{`{"id": "b", "video": "a.png"}`, "is neither a folder nor a video", rewards.BadInput},
		{`{"id": "b", "image": "pipe"}`, "not a regular file", rewards.BadInput},
		{`{"id": "b", "video": "pipe"}`, "is neither a folder nor a video", rewards.BadInput},
	}
	var lines []string
	for i, b := range bad {
		lines = append(lines, b.line, fmt.Sprintf(`{"id": "good%d", "image": "a.png"}`, i))
	}
	got, out := scored(t, dir, lines)
	require.Equal(t, exitFailure, got.code)
	require.Len(t, out, len(lines))
	for i, b := range bad {
		r, good := out[2*i], out[2*i+1]
		require.Equal(t, rewards.Rejected, r.Outcome, b.line)
		require.Nil(t, r.RewardScore)
		require.Len(t, r.Errors, 1)
		require.Equal(t, b.class, r.Errors[0].Class, b.line)
		require.Contains(t, r.Errors[0].Message, fmt.Sprintf("line %d: ", 2*i+1))
		require.Contains(t, r.Errors[0].Message, b.says, b.line)
		require.Contains(t, got.stderr, fmt.Sprintf("line %d (", 2*i+1))
		require.Equal(t, fmt.Sprintf("good%d", i), good.ID)
		require.InDelta(t, want, *good.RewardScore, 1e-12)
	}
	require.Contains(t, got.stderr, fmt.Sprintf("scored %d of %d", len(bad), 2*len(bad)))
}

func TestAPictureThatCannotBeDecodedFailsAloneAndIsNoZero(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	picture, _ := drawing(t, 7)
	put(t, dir, "broken.png", picture[:60])
	put(t, dir, "a.png", picture)
	got, out := scored(t, dir, []string{`{"id": "a", "image": "broken.png"}`, `{"id": "b", "image": "a.png"}`, `{"id": "c"}`})
	require.Equal(t, exitFailure, got.code)
	require.Equal(t, rewards.Failed, out[0].Outcome)
	require.Nil(t, out[0].RewardScore)
	require.Equal(t, rewards.BadInput, out[0].Errors[0].Class)
	require.Equal(t, rewards.Scored, out[1].Outcome)
	require.Equal(t, rewards.Failed, out[2].Outcome)
	require.Contains(t, got.stderr, "not scored: 2 failed, by reason: bad_input 2")
}

func TestSamplesWithTheSameIDAreScoredIndependently(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var lines []string
	var want []float64
	for i := range 20 {
		file, reward := drawing(t, i)
		put(t, dir, fmt.Sprintf("%d.png", i), file)
		lines = append(lines, fmt.Sprintf(`{"id": "same", "uid": "u", "group_size": 20, "image": "%d.png"}`, i))
		want = append(want, reward)
	}
	got, out := scored(t, dir, lines)
	require.Equal(t, exitOK, got.code, got.stderr)
	for i, r := range out {
		require.Equal(t, "same", r.ID)
		require.InDelta(t, want[i], *r.RewardScore, 1e-12)
	}
	require.Contains(t, got.stderr, "groups: 1, 0 of them")
}

func TestAGroupWhoseMembersAllScoreTheSameIsCountedAsFlat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	picture, _ := drawing(t, 2)
	put(t, dir, "a.png", picture)
	line := `{"id": "x", "uid": "u", "group_size": 3, "image": "a.png"}`
	got, _ := scored(t, dir, []string{line, line, line, strings.Replace(line, `"u"`, `"v"`, 1)})
	require.Equal(t, exitOK, got.code)
	require.Contains(t, got.stderr, "groups: 2, 1 of them with zero std")
	require.Contains(t, got.stderr, "1 with fewer members in the input than their group_size")
}

func TestTheScoresOfStepsAreInTheOutput(t *testing.T) {
	t.Parallel()
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		score := "0.25"
		if bytes.Contains(body, []byte("look here")) {
			score = "0.5"
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices": [{"message": {"role": "assistant", "content": "<score>%s</score>"}, "finish_reason": "stop"}]}`, score)
	}))
	t.Cleanup(engine.Close)
	dir := t.TempDir()
	cfg := put(t, dir, "steps.yaml", fmt.Appendf(nil, `
engines: {big: {base_urls: [%q], model: m}}
reward:
  num_workers: 1
  reward_functions:
    turns: {path: "builtin://judge", engine: big, template: "Rate: {response}", min: 0, max: 1, steps: ["<|im_end|>"]}
`, engine.URL))
	in := put(t, dir, "in.jsonl", []byte(`{"id": "a", "prompt": "p", "response": "look here<|im_end|>and answer<|im_end|>"}`))
	got := call(t, "", "score", "-c", cfg, "-i", in, "-o", "-")
	require.Equal(t, exitOK, got.code, got.stderr, got.stdout)
	require.Contains(t, got.stdout, `"step_scores":[0.5,0.25]`)
}

func TestALineOver16MiBIsRejectedAndTheNextOneRead(t *testing.T) {
	t.Parallel()
	r := newLineReader(io.MultiReader(
		strings.NewReader("\ufeff{}\r\n \n"), io.LimitReader(endless('x'), maxLine+1), strings.NewReader("\n"),
		io.LimitReader(endless('y'), maxLine-1), strings.NewReader("\nlast"),
	))
	var got []inputLine
	for {
		line, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		got = append(got, line)
	}
	require.Len(t, got, 4)
	require.Equal(t, "{}", string(got[0].text))
	require.Equal(t, 3, got[1].number)
	require.True(t, got[1].long)
	require.Empty(t, got[1].text)
	require.Len(t, got[2].text, maxLine-1)
	require.Equal(t, "last", string(got[3].text))
	require.Equal(t, int64(2*maxLine+3+4+2+1+1+4), got[3].end)

	s := &scoring{encode: encode}
	it := s.accept(t.Context(), got[1])
	require.ErrorIs(t, it.err, rewards.TooLarge)
}

// endless yields one byte for ever.
type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

// imputing is a configuration whose component "picky" fails for one reward, the first
// picture's, and then takes the mean of its group.
func imputing(t *testing.T, dir string, fails float64, more string) string {
	t.Helper()
	return put(t, dir, "imputing.yaml", fmt.Appendf(nil, `
reward:
  num_workers: 1
  reward_functions:
    plain: {path: builtin://jpeg_incompressibility}
    picky: {path: builtin://jpeg_incompressibility, invalid_values: [%v]}
%s`, fails, more))
}

// Of every group the first member waits for the last one, which comes after a member
// of each other group: more wait than the loop's queue takes.
func TestGroupsInterleavedWiderThanTheQueueDoNotStopTheRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const groups, size = 150, 4
	var rewardOf [size]float64
	for i := range size {
		var file []byte
		file, rewardOf[i] = drawing(t, i)
		put(t, dir, fmt.Sprintf("%d.png", i), file)
	}
	cfg := imputing(t, dir, rewardOf[0], "")
	var lines []string
	for member := range size {
		for g := range groups {
			lines = append(lines, fmt.Sprintf(`{"id": "g%d_%d", "uid": "g%d", "group_size": %d, "image": "%d.png"}`, g, member, g, size, member))
		}
	}
	in := put(t, dir, "in.jsonl", []byte(strings.Join(lines, "\n")))
	begun := time.Now()
	got := call(t, "", "score", "-c", cfg, "-i", in, "-o", "-")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Less(t, time.Since(begun), 60*time.Second) // and not the deadline of 900 s
	out := parseOutput(t, got.stdout)
	require.Len(t, out, groups*size)
	mean := (rewardOf[1] + rewardOf[2] + rewardOf[3]) / 3
	for i, r := range out[:groups] {
		require.Equal(t, fmt.Sprintf("g%d_0", i), r.ID)
		require.InDelta(t, mean, r.ExtraInfo["reward/picky"], 1e-9)
		require.Equal(t, true, r.ExtraInfo["reward/picky/imputed"])
		require.InDelta(t, rewardOf[0]+mean, *r.RewardScore, 1e-9)
	}
}

// The first line's group is short of one member, which is rejected.
func TestAGroupThatTheInputDoesNotCompleteIsClosedAtItsEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var rewardOf [2]float64
	for i := range rewardOf {
		var file []byte
		file, rewardOf[i] = drawing(t, i)
		put(t, dir, fmt.Sprintf("%d.png", i), file)
	}
	cfg := imputing(t, dir, rewardOf[0], "")
	in := put(t, dir, "in.jsonl", []byte(strings.Join([]string{
		`{"id": "a", "uid": "u", "group_size": 3, "image": "0.png"}`,
		`{"id": "b", "uid": "u", "group_size": 3, "image": "1.png"}`,
		`{"id": "c", "uid": "u", "group_size": 3, "image": "missing.png"}`,
	}, "\n")))
	begun := time.Now()
	got := call(t, "", "score", "-c", cfg, "-i", in, "-o", "-")
	require.Less(t, time.Since(begun), 60*time.Second)
	require.Equal(t, exitFailure, got.code)
	out := parseOutput(t, got.stdout)
	require.InDelta(t, rewardOf[0]+rewardOf[1], *out[0].RewardScore, 1e-9)
	require.Equal(t, rewards.Rejected, out[2].Outcome)
}

// Reading ahead is bounded: a group that is spread wider closes at its deadline.
func TestAGroupSpreadWiderThanTheReadAheadClosesAtItsDeadline(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const members = 12
	var lines []string
	first, fails := drawing(t, 0)
	other, _ := drawing(t, 1)
	put(t, dir, "0.png", first)
	put(t, dir, "1.png", other)
	for i := range members {
		lines = append(lines, fmt.Sprintf(`{"id": "%d", "uid": "u", "group_size": %d, "image": "%d.png"}`, i, members, min(i, 1)))
	}
	cfg, err := config.Load(imputing(t, dir, fails, "loop: {sample_timeout: 1s}\n"), nil, nil)
	require.NoError(t, err)
	n, err := node.New(node.Options{Config: cfg, NoServer: true})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	defer n.Stop()
	var out, stderr lockedBuffer
	s := &scoring{
		encode: encode,
		loop:   n.Loop, show: newProgress(&env{stderr: &stderr}, false), depth: 4, bytes: 1 << 20, patient: time.Second,
		media: &mediaFiles{dir: dir, maxBytes: 1 << 20, maxFrames: 1}, items: make(chan *item, 3),
	}
	require.NoError(t, s.run(t.Context(), newLineReader(strings.NewReader(strings.Join(lines, "\n"))), &out))
	all := parseOutput(t, out.String())
	require.Len(t, all, members)
	for _, r := range all {
		require.Equal(t, rewards.Scored, r.Outcome)
	}
	require.Equal(t, true, all[0].ExtraInfo["reward/picky/imputed"])
}

func TestOutputThatCannotBeWrittenEndsTheRun(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skipf("SKIPPED: no full device here: %v", err)
	}
	dir := t.TempDir()
	picture, _ := drawing(t, 2)
	put(t, dir, "a.png", picture)
	in := put(t, dir, "in.jsonl", []byte(strings.Repeat(`{"id": "x", "image": "a.png"}`+"\n", 300)))
	got := call(t, "", "score", "-c", "testdata/cfg.yaml", "-i", in, "-o", "/dev/full")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "no space left")
}

func TestTheInputIsNeverTheOutputAndAMistakeLeavesAnOldOutputAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := put(t, dir, "in.jsonl", []byte(`{"id": "x"}`))
	require.NoError(t, os.Link(in, filepath.Join(dir, "same.jsonl")))
	got := call(t, "", "score", "-c", "testdata/cfg.yaml", "-i", in, "-o", filepath.Join(dir, "same.jsonl"))
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "is the input")
	kept, err := os.ReadFile(in)
	require.NoError(t, err)
	require.Len(t, kept, len(`{"id": "x"}`))

	old := put(t, dir, "old.jsonl", []byte("scores of yesterday"))
	got = call(t, "", "score", "-c", "testdata/five_faults.yaml", "-i", in, "-o", old)
	require.Equal(t, exitUsage, got.code)
	kept, err = os.ReadFile(old)
	require.NoError(t, err)
	require.Equal(t, "scores of yesterday", string(kept))
}

func TestAnEmptyInputIsAllScored(t *testing.T) {
	t.Parallel()
	got := call(t, "\n\n", "score", "-c", "testdata/cfg.yaml", "-i", "-", "-o", "-")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Empty(t, got.stdout)
	require.Contains(t, got.stderr, "scored 0 of 0 samples")
}

// Standard input stays open, and a sample waits for its group, when the run is told to
// end.
func TestARunThatIsToldToEndWritesWhatThereIsInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, fails := drawing(t, 0)
	other, reward := drawing(t, 1)
	held, fine := put(t, dir, "0.png", first), put(t, dir, "1.png", other)
	cfg := imputing(t, dir, fails, "")
	ctx, cancel := context.WithCancel(t.Context())
	stdin, feed := io.Pipe()
	defer feed.Close() // ends the goroutine that reads
	done := make(chan outcome)
	go func() { done <- callWith(ctx, stdin, "score", "-c", cfg, "-i", "-", "-o", "-") }()
	for _, line := range []string{
		fmt.Sprintf(`{"id": "early", "image": %q}`, fine),
		fmt.Sprintf(`{"id": "held", "uid": "u", "group_size": 3, "image": %q}`, held),
		fmt.Sprintf(`{"id": "late", "uid": "u", "group_size": 3, "image": %q}`, fine),
		`{"id": "bad`,
		"{}", "{}", // read only when the lines before the last have been taken
	} {
		_, err := io.WriteString(feed, line+"\n")
		require.NoError(t, err)
	}
	cancel()
	got := <-done
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "stopped after line")
	out := parseOutput(t, got.stdout)
	require.GreaterOrEqual(t, len(out), 4)
	for i, id := range []string{"early", "held", "late", "line-4"} {
		require.Equal(t, id, out[i].ID)
		if i != 1 && out[i].Outcome == rewards.Scored { // else it was cut off
			require.InDelta(t, 2*reward, *out[i].RewardScore, 1e-9)
		}
	}
	// What its group has by then must not become its score.
	require.Equal(t, rewards.OutcomeCancelled, out[1].Outcome)
	require.Nil(t, out[1].RewardScore)
}

func TestCtrlCEndsARunWithExitCode1(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	picture, _ := drawing(t, 1)
	put(t, dir, "1.png", picture)
	cfg, err := filepath.Abs("testdata/cfg.yaml")
	require.NoError(t, err)
	stdin, feed, err := os.Pipe()
	require.NoError(t, err)
	defer stdin.Close()
	defer feed.Close()
	stdout := watched()
	p := start(t, dir, stdin, stdout, "score", "-c", cfg, "-i", "-", "-o", "-")
	_, err = feed.WriteString(`{"id": "early", "image": "1.png"}` + "\n")
	require.NoError(t, err)
	stdout.await(t, `"early"`) // written as soon as it is there
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	require.Equal(t, exitFailure, p.code(t))
	require.Contains(t, p.stderr.String(), "stopped after line 1")
	require.Equal(t, rewards.Scored, parseOutput(t, stdout.String())[0].Outcome)
}

func TestGoldenPicturesScoreOfflineAsPILWritesThem(t *testing.T) {
	t.Parallel()
	root := os.Getenv("REWARDLOOP_GOLDEN")
	if root == "" {
		root = filepath.Join("..", "..", "testdata", "golden")
	}
	index, err := os.ReadFile(filepath.Join(root, "images", "index.jsonl"))
	if os.IsNotExist(err) {
		t.Skipf("SKIPPED: no golden images: %v", err)
	}
	require.NoError(t, err)
	var lines []string
	var want []float64
	for line := range strings.Lines(string(index)) {
		var row struct {
			Image  string  `json:"image"`
			Reward float64 `json:"jpeg_incompressibility"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		lines = append(lines, fmt.Sprintf(`{"id": %q, "image": %q}`, row.Image, row.Image))
		want = append(want, row.Reward)
	}
	got, out := scored(t, t.TempDir(), lines, "--media-root", filepath.Join(root, "images"))
	require.Equal(t, exitOK, got.code, got.stderr)
	for i, r := range out {
		require.InDelta(t, want[i], *r.RewardScore, 1e-12, r.ID)
	}
}

// rows reads a CSV file into a map for each row.
func rows(t *testing.T, path string) []map[string]string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	var out []map[string]string
	for _, cells := range all[1:] {
		row := map[string]string{}
		for i, c := range cells {
			row[all[0][i]] = c
		}
		out = append(out, row)
	}
	return out
}

func TestAFolderOfPicturesIsScoredInTheOrderOfTheirNamesIntoCSV(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := map[string]float64{}
	for i, name := range []string{"a2.png", "a10.png", "b.PNG"} {
		picture, reward := drawing(t, i+1)
		put(t, dir, name, picture)
		want[name] = reward
	}
	put(t, dir, "notes.txt", []byte("no picture\n"))
	out := filepath.Join(t.TempDir(), "scores.csv")
	got := call(t, "", "score", "testdata/cfg.yaml", "-i", dir, "-o", out)
	require.Equal(t, exitOK, got.code, got.stderr)
	all := rows(t, out)
	require.Len(t, all, 3)
	for i, name := range []string{"a2.png", "a10.png", "b.PNG"} {
		require.Equal(t, name, all[i]["id"])
		require.Equal(t, "scored", all[i]["outcome"])
		score, err := strconv.ParseFloat(all[i]["reward_score"], 64)
		require.NoError(t, err)
		require.InDelta(t, want[name], score, 1e-12)
		require.True(t, json.Valid([]byte(all[i]["reward_extra_info"])))
		require.Empty(t, all[i]["errors"])
	}
	rooted := call(t, "", "score", "testdata/cfg.yaml", "-i", dir, "-o", "-", "--media-root", dir)
	require.Equal(t, exitUsage, rooted.code)
	require.Contains(t, rooted.stderr, "leave out --media-root")
}

func TestACSVWithTheNamesOfTheFieldsIsScoredAndItsBadRowsAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := put(t, dir, "samples.csv", []byte("\ufeffid,response,ground_truth,step,extra_info\n"+
		"right,\"it is\n#### 42\",42,7,\"{\"\"a\"\": 1}\"\n"+
		"wrong,#### 41,\"\"\"42\"\"\",,\n"+
		"short,#### 42\n"+
		"step,#### 42,42,x,\n"))
	out := filepath.Join(dir, "scores.jsonl")
	got := call(t, "", "score", "reward.custom_reward_function.path=builtin://gsm8k", "-i", in, "-o", out)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "line 5 (line-5): rejected: 2 cells, and the first row has 5 columns\n")
	require.Contains(t, got.stderr, `line 6 (step): rejected: step: want an integer`)
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	lines := parseOutput(t, string(text))
	require.Len(t, lines, 4)
	require.InDelta(t, 1, *lines[0].RewardScore, 0)
	require.InDelta(t, 0, *lines[1].RewardScore, 0)
	for says, text := range map[string]string{
		`unknown key "respons"; did you mean response?`: "id,respons\na,b\n",
		`duplicate column "id"`:                         "id,id\na,b\n",
		"is empty":                                      "",
	} {
		got := call(t, "", "score", "reward.custom_reward_function.path=builtin://gsm8k", "-i", put(t, dir, "x.csv", []byte(text)), "-o", "-")
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, says)
	}
}
