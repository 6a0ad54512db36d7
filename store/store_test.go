package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/store"
	"github.com/rewardloop/rewardloop/wire"
)

// open opens a store of its own folder, or of the file at path.
func open(t *testing.T, cfg store.Config, path string) *store.Store {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "a.db")
	}
	s, err := store.Open(t.Context(), cfg, store.Options{Path: path})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// kept is a record of a sample; with says what else it has.
func kept(t *testing.T, run string, step int64, n int, with func(*rewards.Sample, *wire.Result)) (store.Record, *wire.Frame) {
	t.Helper()
	score := float64(n) / 100
	s := &rewards.Sample{ID: fmt.Sprintf("%s/%d/%d", run, step, n), Step: step, UID: fmt.Sprint("g", n/4), GroupSize: 4, Prompt: fmt.Sprint("prompt ", n), Response: "a \"quoted\" answer"}
	index := int64(n)
	s.Index = &index
	r := &wire.Result{
		Type: "result", ID: s.ID, Outcome: rewards.Scored, RewardScore: &score, Worker: "w0", Attempts: 1, TimingMS: map[string]float64{"total": float64(n)},
		ExtraInfo: map[string]any{"reward/combined": score, "reward/ocr": score, "reward/clip": -score, "reward/ocr/distance": 3.0},
	}
	if with != nil {
		with(s, r)
	}
	m, err := wire.Encode(s, wire.Options{})
	require.NoError(t, err)
	f, err := wire.NewFrame(m, nil)
	require.NoError(t, err)
	return store.Record{Run: run, Epoch: 1, Split: rewards.Train, Step: step, Reward: "default", Header: f.Header(), Result: r, Finished: time.Now()}, f
}

// await waits until the store has written so many rows.
func await(t *testing.T, s *store.Store, rows int64) {
	t.Helper()
	require.Eventually(t, func() bool { return s.State().Rows >= rows }, 30*time.Second, 5*time.Millisecond)
}

func results(t *testing.T, s *store.Store, q store.Query) []*store.Row {
	t.Helper()
	rows, _, err := s.Reader().Results(t.Context(), q)
	require.NoError(t, err)
	return rows
}

func ids(rows []*store.Row) (out []string) {
	for _, r := range rows {
		out = append(out, r.ID)
	}
	return out
}

func TestAResultIsReadAsItWasTaken(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{}, "")
	rec, _ := kept(t, "a", 3, 50, func(sample *rewards.Sample, r *wire.Result) {
		sample.GroundTruth, sample.ExtraInfo = json.RawMessage(`{"text":"Yes"}`), json.RawMessage(`{"k":[1,2]}`)
		sample.DataSource = "prompts"
		r.Details = map[string]any{"ocr": map[string]any{"text": "Yes", "lines": []any{"Yes"}}}
		r.Errors = []rewards.ComponentError{{Component: "clip", Class: rewards.Timeout, Blame: rewards.BlameReward, Message: "slow", Attempts: 2}}
		r.Config = "abcd"
		r.StepScores = []float64{0.25, 0.25}
	})
	s.Describe(store.Described{Digest: "abcd", Reward: "default", Version: "v1", YAML: "reward: {}", Hashes: map[string]string{"my_reward.py": "00"}})
	s.Put(rec)
	await(t, s, 1)
	list := results(t, s, store.Query{})
	require.Len(t, list, 1)
	row, err := s.Reader().Result(t.Context(), list[0].Key)
	require.NoError(t, err)
	assert.Equal(t, "a", row.Run)
	assert.Equal(t, int64(3), row.Step)
	assert.Equal(t, rewards.Train, row.Split)
	assert.Equal(t, "1", row.Epoch)
	assert.Equal(t, "prompt 50", row.Prompt)
	assert.Equal(t, `a "quoted" answer`, row.Response)
	assert.Equal(t, "prompts", row.DataSource)
	assert.Equal(t, new(int64(50)), row.Index)
	assert.InDelta(t, 0.5, *row.Score, 0)
	assert.Equal(t, map[string]*float64{"ocr": new(0.5), "clip": new(-0.5)}, row.Components)
	assert.Equal(t, "slow", row.Error.Message)
	assert.JSONEq(t, `{"text":"Yes"}`, string(row.GroundTruth))
	assert.JSONEq(t, `{"k":[1,2]}`, string(row.ExtraInfo))
	assert.Equal(t, map[string]any{"ocr": map[string]any{"text": "Yes", "lines": []any{"Yes"}}}, row.Details)
	assert.Equal(t, []float64{0.25, 0.25}, row.StepScores)
	require.NotNil(t, row.Code)
	assert.Equal(t, map[string]string{"my_reward.py": "00"}, row.Code.Hashes)
	js, err := json.Marshal(row)
	require.NoError(t, err)
	assert.Contains(t, string(js), `"media":[]`)
	_, err = s.Reader().Result(t.Context(), 99)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestQueriesSelectAndSort(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{}, "")
	for n := range 8 {
		rec, _ := kept(t, "a", int64(n/4), n, func(sample *rewards.Sample, r *wire.Result) {
			r.ExtraInfo["reward/clip"] = r.ExtraInfo["reward/ocr"]
			switch n {
			case 2:
				r.RewardScore, r.Outcome = nil, rewards.Failed
				r.Errors = []rewards.ComponentError{{Component: "ocr", Class: rewards.Crashed, Message: "it died"}}
			case 5:
				r.TimingMS["total"] = 900
				sample.Prompt = "a LIGHTHOUSE at \"night\""
			case 6:
				r.ExtraInfo["reward/ocr"] = -1.0
			}
		})
		s.Put(rec)
	}
	other, _ := kept(t, "b", 0, 1, nil)
	s.Put(other)
	await(t, s, 9)
	at := func(list ...int) (out []string) {
		for _, n := range list {
			out = append(out, fmt.Sprintf("a/%d/%d", n/4, n))
		}
		return out
	}
	run := new("a")
	for _, c := range []struct {
		q    store.Query
		want []string
	}{
		{store.Query{Run: run, Step: new(int64(1))}, at(7, 6, 5, 4)},
		{store.Query{Run: run, Step: new(int64(1)), Sort: store.Oldest, Limit: 2, Offset: 1}, at(5, 6)},
		{store.Query{Run: run, Sort: store.Best, Limit: 2}, at(7, 6)},
		{store.Query{Run: run, Sort: store.Worst, Limit: 2}, at(0, 1)},
		{store.Query{Run: run, Sort: store.Slowest, Limit: 1}, at(5)},
		{store.Query{Run: run, Sort: store.Disagreeing, Limit: 1}, at(6)},
		{store.Query{Run: run, Failed: true}, at(2)},
		{store.Query{Run: run, Outcome: "failed"}, at(2)},
		{store.Query{Run: run, UID: "g1", Sort: store.Oldest}, at(4, 5, 6, 7)},
		{store.Query{Text: "lighthouse at \"n"}, at(5)},
		{store.Query{Run: new("nobody")}, nil},
		{store.Query{Run: run, Reward: new("nothing")}, nil},
		{store.Query{Split: rewards.Val}, nil},
	} {
		assert.Equal(t, c.want, ids(results(t, s, c.q)), "%+v", c.q)
	}
	_, total, err := s.Reader().Results(t.Context(), store.Query{Run: run, Limit: 1})
	require.NoError(t, err)
	assert.Equal(t, 8, total)
}

func TestAStepThatIsDoneAgainReplacesItsCurveAndKeepsTheOldRows(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{}, "")
	for _, epoch := range []uint64{1, 2} {
		for n := range 4 {
			for step := range 3 - int64(epoch) { // the second life has come to step 0
				rec, _ := kept(t, "a", step, n, func(_ *rewards.Sample, r *wire.Result) { r.RewardScore = new(float64(epoch)) })
				rec.Epoch = epoch
				s.Put(rec)
			}
		}
	}
	await(t, s, 12)
	steps, err := s.Reader().History(t.Context(), "a", rewards.Train)
	require.NoError(t, err)
	require.Len(t, steps, 2)
	assert.Equal(t, "2", steps[0].Epoch)
	assert.InDelta(t, 2, *steps[0].Mean, 0)
	assert.Equal(t, "1", steps[1].Epoch)
	assert.Equal(t, int64(4), steps[0].Samples)
	assert.Len(t, results(t, s, store.Query{Run: new("a"), Step: new(int64(0))}), 4)
	assert.Len(t, results(t, s, store.Query{Run: new("a"), Step: new(int64(0)), Epoch: new(uint64(1))}), 4, "the old rows are there")
	assert.Len(t, results(t, s, store.Query{Run: new("a"), AllEpochs: true}), 12)
}

func TestTheHistoryHasTheStepsOfARunWithTheirComponentsAndGroups(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{}, "")
	for n := range 8 {
		rec, _ := kept(t, "a", 7, n, func(_ *rewards.Sample, r *wire.Result) {
			if n < 4 {
				r.RewardScore = new(1.0) // a group without a difference
			}
			if n == 7 {
				r.RewardScore, r.Outcome, r.ExtraInfo = nil, rewards.Failed, map[string]any{"reward/ocr": nil, "reward/clip": -0.07}
			}
		})
		s.Put(rec)
	}
	s.EndStep(store.StepEnd{Run: "a", Epoch: 1, Split: rewards.Train, Step: 7, Expected: 8, Exposed: new(1.5), Rollout: new(20.0)})
	await(t, s, 8)
	steps, err := s.Reader().History(t.Context(), "a", rewards.Train)
	require.NoError(t, err)
	require.Len(t, steps, 1)
	st := steps[0]
	assert.Equal(t, int64(8), st.Samples)
	assert.Equal(t, int64(7), st.Scored)
	assert.Equal(t, int64(1), st.Failed)
	assert.InDelta(t, (4+0.04+0.05+0.06)/7, *st.Mean, 1e-12)
	assert.InDelta(t, 1, *st.Max, 0)
	assert.InDelta(t, 0.04, *st.Min, 0)
	assert.Equal(t, 2, st.Groups)
	assert.Equal(t, 1, st.ZeroStdGroups)
	assert.Equal(t, int64(1), st.Components["ocr"].Failed)
	assert.Equal(t, int64(8), st.Components["clip"].N)
	assert.InDelta(t, 1.5, *st.Exposed, 0)
	assert.Nil(t, st.Makespan)

	groups, err := s.Reader().Groups(t.Context(), store.Query{Run: new("a"), Step: new(int64(7))})
	require.NoError(t, err)
	require.Len(t, groups, 2)
	assert.True(t, groups[0].ZeroStd)
	assert.Equal(t, 4, groups[1].Size)
	assert.Nil(t, groups[1].Members[3].Score)
	assert.InDelta(t, 0.05, *groups[1].Mean, 1e-12)

	h, err := s.Reader().Histograms(t.Context(), store.Query{Run: new("a"), Step: new(int64(7))})
	require.NoError(t, err)
	assert.Equal(t, 7, h["reward"].N)
	assert.Equal(t, 1, h["reward"].Failed)
	assert.Equal(t, 4, h["reward"].Counts[len(h["reward"].Counts)-1])
	assert.InDelta(t, -0.07, h["clip"].Lo, 0)

	runs, err := s.Reader().Runs(t.Context())
	require.NoError(t, err)
	require.Len(t, runs, 1)
	assert.Equal(t, int64(8), runs[0].Samples)
	assert.Equal(t, []rewards.Split{rewards.Train}, runs[0].Splits)
	assert.Equal(t, []string{"default"}, runs[0].Rewards)
	none, err := s.Reader().History(t.Context(), "nobody", rewards.Val)
	require.NoError(t, err)
	assert.Empty(t, none)
}

// photo is a JPEG.
func photo(t *testing.T, w, h int, c color.Color) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.Set(x, y, c)
		}
	}
	var out bytes.Buffer
	require.NoError(t, jpeg.Encode(&out, img, nil))
	return out.Bytes()
}

func TestThumbnailsOfPicturesAndVideosAreKept(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{}, "")
	file := photo(t, 640, 320, color.RGBA{255, 0, 0, 255})
	raw := bytes.Repeat([]byte{0, 0, 255}, 20*32*48)
	rec, f := kept(t, "a", 1, 1, func(sample *rewards.Sample, _ *wire.Result) {
		sample.Media = []*rewards.Media{
			{Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{len(file)}, Data: file},
			{Kind: rewards.Video, Encoding: rewards.Raw, Layout: rewards.THWC, DType: "U8", Shape: []int{20, 32, 48, 3}, Data: raw},
			{Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Shape: []int{7}, Data: []byte("garbage")},
		}
	})
	s.Media(store.SampleKey{Run: "a", Epoch: 1, ID: rec.Result.ID}, f.Sample().Media, f.Data(), false)
	s.Put(rec)
	var row *store.Row
	require.Eventually(t, func() bool {
		list := results(t, s, store.Query{})
		if len(list) == 0 {
			return false
		}
		row = list[0]
		return row.Media[0].Thumbnail != nil && row.Media[1].Thumbnail != nil
	}, 30*time.Second, 10*time.Millisecond)
	assert.Equal(t, fmt.Sprintf("/v1/results/%d/media/1", row.Key), *row.Media[1].Thumbnail)
	assert.Equal(t, 20, row.Media[1].Frames)
	assert.Equal(t, 640, *row.Media[0].Width)
	assert.Nil(t, row.Media[2].Thumbnail)
	assert.Nil(t, row.Media[0].Full)
	for n, want := range []image.Point{{256, 128}, {8 * 48, 32}} {
		data, err := s.Reader().Thumbnail(t.Context(), row.Key, n)
		require.NoError(t, err)
		img, err := jpeg.Decode(bytes.NewReader(data))
		require.NoError(t, err)
		assert.Equal(t, want, img.Bounds().Size())
		r, _, b, _ := img.At(want.X-5, 5).RGBA()
		assert.Equal(t, n == 0, r > b, "the colour of the picture")
	}
	_, err := s.Reader().Thumbnail(t.Context(), row.Key, 2)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, _, err = s.Reader().Kept(t.Context(), row.Key)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestFullMediaAreTheBytesOfTheSample(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{Keep: store.KeepFull}, "")
	raw := make([]byte, 8*8*3)
	for i := range raw {
		raw[i] = byte(i)
	}
	rec, f := kept(t, "a", 1, 1, func(sample *rewards.Sample, _ *wire.Result) {
		sample.Media = []*rewards.Media{{Kind: rewards.Image, Encoding: rewards.Raw, Layout: rewards.HWC, DType: "U8", Shape: []int{8, 8, 3}, Data: raw}}
	})
	s.Media(store.SampleKey{Run: "a", Epoch: 1, ID: rec.Result.ID}, f.Sample().Media, f.Data(), false)
	s.Put(rec)
	await(t, s, 1)
	row := results(t, s, store.Query{})[0]
	require.NotNil(t, row.Media[0].Full)
	_, got, err := s.Reader().Kept(t.Context(), row.Key)
	require.NoError(t, err)
	want := f.Sample()
	require.Len(t, got.Media, 1)
	assert.Equal(t, want.Media[0].Data, got.Media[0].Data)
	assert.Equal(t, want.Media[0].Shape, got.Media[0].Shape)
	assert.Equal(t, want.ID, got.ID)
}

func TestKeepResultsKeepsNoMedia(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{Keep: store.KeepResults}, "")
	file := photo(t, 64, 64, color.White)
	rec, f := kept(t, "a", 1, 1, func(sample *rewards.Sample, _ *wire.Result) {
		sample.Media = []*rewards.Media{{Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{len(file)}, Data: file}}
	})
	s.Media(store.SampleKey{Run: "a", Epoch: 1, ID: rec.Result.ID}, f.Sample().Media, f.Data(), true)
	s.Put(rec)
	await(t, s, 1)
	require.NoError(t, s.Close()) // whatever was to come has come
	r, err := store.OpenReader(s.State().File)
	require.NoError(t, err)
	defer r.Close()
	list, _, err := r.Results(t.Context(), store.Query{})
	require.NoError(t, err)
	assert.Nil(t, list[0].Media[0].Thumbnail)
	assert.Nil(t, list[0].Media[0].Full)
}

func TestTheFileIsBoundedAndTheOldestResultsGoFirst(t *testing.T) {
	t.Parallel()
	const limit = 4 << 20
	s := open(t, store.Config{Bytes: limit}, "")
	long := string(bytes.Repeat([]byte("x"), 8<<10))
	const n = 3000
	for i := range n {
		rec, _ := kept(t, "a", int64(i/100), i, func(sample *rewards.Sample, _ *wire.Result) { sample.Prompt = long })
		s.Put(rec)
		if i%500 == 499 {
			await(t, s, 1)
		}
	}
	require.Eventually(t, func() bool { return len(results(t, s, store.Query{Text: "a/29/2999"})) == 1 }, 30*time.Second, 10*time.Millisecond, "the newest is there")
	require.NoError(t, s.Close())
	again := open(t, store.Config{Bytes: limit}, s.State().File)
	for i := range 16 { // a batch looks at the size now and then
		rec, _ := kept(t, "b", 1, i, nil)
		again.Put(rec)
		await(t, again, 1)
	}
	require.Eventually(t, func() bool { return again.State().Bytes <= limit*3/2 }, 30*time.Second, 10*time.Millisecond, "%d", again.State().Bytes)
	assert.Empty(t, results(t, again, store.Query{Text: "a/0/0\""}), "the oldest has gone")
	steps, err := again.Reader().History(t.Context(), "a", rewards.Train)
	require.NoError(t, err)
	assert.Len(t, steps, 30, "curves stay")
}

func TestOldResultsAreDeleted(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{Age: time.Hour}, "")
	old, _ := kept(t, "a", 1, 1, nil)
	old.Finished = time.Now().Add(-2 * time.Hour)
	s.Put(old)
	rec, _ := kept(t, "a", 1, 2, nil)
	s.Put(rec)
	require.Eventually(t, func() bool { list := results(t, s, store.Query{}); return len(list) == 1 && list[0].ID == "a/1/2" }, 30*time.Second, 10*time.Millisecond)
}

func TestASecondProcessIsRefusedAndAReaderIsNot(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{}, "")
	_, err := store.Open(t.Context(), store.Config{}, store.Options{Path: s.State().File})
	require.ErrorIs(t, err, store.ErrInUse)
	rec, _ := kept(t, "a", 1, 1, nil)
	s.Put(rec)
	await(t, s, 1)
	r, err := store.OpenReader(s.State().File)
	require.NoError(t, err)
	defer r.Close()
	list, _, err := r.Results(t.Context(), store.Query{})
	require.NoError(t, err)
	assert.Len(t, list, 1)
}

func TestFilesThatAreNoStoresAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	require.NoError(t, os.WriteFile(garbage, bytes.Repeat([]byte("garbage "), 1000), 0o600))
	_, err := store.OpenReader(garbage)
	require.Error(t, err)
	_, err = store.Open(t.Context(), store.Config{}, store.Options{Path: garbage})
	require.ErrorContains(t, err, "garbage.db")
	_, err = store.OpenReader(filepath.Join(dir, "none.db"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = store.Open(t.Context(), store.Config{}, store.Options{Path: filepath.Join(garbage, "a.db")})
	require.Error(t, err, "its folder is a file")
}

func TestWhatWasTakenAndNotWrittenIsSaidByTheNextProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	var said bytes.Buffer
	lost := crash(t, path, 70)
	s, err := store.Open(t.Context(), store.Config{}, store.Options{Path: path, Log: logTo(&said)})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	rows := s.State().Rows
	assert.Equal(t, int64(70), rows+int64(lost(said.String())), said.String())
}

func TestManyPutAtOnceAndAllIsWritten(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{}, "")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for n := range 250 {
				rec, _ := kept(t, fmt.Sprint("run", g), int64(n/50), n, nil)
				s.Put(rec)
			}
		})
	}
	wg.Wait()
	await(t, s, 2000)
	assert.Zero(t, s.State().Dropped)
	for g := range 8 {
		steps, err := s.Reader().History(t.Context(), fmt.Sprint("run", g), rewards.Train)
		require.NoError(t, err)
		require.Len(t, steps, 5)
		assert.Equal(t, int64(50), steps[4].Samples)
	}
}

func TestPutAfterCloseIsLeftOut(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{}, "")
	require.NoError(t, s.Close())
	rec, f := kept(t, "a", 1, 1, nil)
	s.Put(rec)
	s.Media(store.SampleKey{}, f.Sample().Media, f.Data(), false)
	assert.Equal(t, uint64(1), s.State().Dropped)
	require.NoError(t, s.Close())
}

// BenchmarkPut writes results through the store, text without media.
func BenchmarkPut(b *testing.B) {
	s, err := store.Open(context.Background(), store.Config{}, store.Options{Path: filepath.Join(b.TempDir(), "a.db")})
	require.NoError(b, err)
	m, err := wire.Encode(&rewards.Sample{ID: "a", UID: "g", GroupSize: 8, Prompt: "a sign that says hello", Response: strings.Repeat("word ", 200)}, wire.Options{})
	require.NoError(b, err)
	f, err := wire.NewFrame(m, nil)
	require.NoError(b, err)
	v := 0.5
	r := &wire.Result{ID: "a", Outcome: rewards.Scored, RewardScore: &v, Worker: "w", TimingMS: map[string]float64{"total": 1, "queue": 1, "score": 1}, ExtraInfo: map[string]any{"acc": 1.0, "rewardloop/valid": true}}
	n := int64(0)
	for b.Loop() {
		for s.Put(store.Record{Run: "a", Epoch: 1, Step: n / 512, Header: f.Header(), Result: r, Finished: time.Now()}); n-s.State().Rows > 20_000; {
			time.Sleep(time.Millisecond)
		}
		n++
	}
	require.NoError(b, s.Close())
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "results/s")
}
