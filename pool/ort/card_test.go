//go:build cgo

package ort_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/executable"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

// fakeLibrary is the runtime with two files beside it that stand for the CUDA provider.
func fakeLibrary(tb testing.TB) string {
	tb.Helper()
	dir, lib := tb.TempDir(), onnx.Library(tb)
	require.NoError(tb, os.Symlink(lib.Path, filepath.Join(dir, "libonnxruntime.so.1")))
	for _, name := range []string{"libonnxruntime_providers_cuda.so", "libonnxruntime_providers_shared.so"} {
		require.NoError(tb, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	return dir
}

// quick has a device go into quarantine and come back fast enough for a test.
func quick(cfg *subprocess.Config) {
	cfg.BackoffMin, cfg.BackoffMax = time.Millisecond, 20*time.Millisecond
	cfg.Device.Rest, cfg.Device.RestMax = 300*time.Millisecond, time.Second
}

// fakeOpener opens the fake cards of a configuration.
func fakeOpener(tb testing.TB, cfg ort.Config, cards ...ort.FakeCard) *ort.Opener {
	tb.Helper()
	if cfg.Library == "" {
		cfg.Library = fakeLibrary(tb)
	}
	for _, card := range cards {
		cfg.Cards = append(cfg.Cards, string(card))
	}
	o, err := ort.NewOpener(cfg)
	require.NoError(tb, err)
	ort.Tune(o, quick)
	return o
}

// openCard opens cuda:0, a fake card.
func openCard(tb testing.TB, cfg ort.Config, card ort.FakeCard) *device {
	tb.Helper()
	o := fakeOpener(tb, cfg, card)
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	r, err := o.Open(ctx, "cuda:0")
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		assert.NoError(tb, r.Close(ctx))
	})
	require.Equal(tb, 1, r.Slots())
	return &device{r, o}
}

func (d *device) card() subprocess.Stats { return d.opener.Stats()["cuda:0"] }

// on is a model on the fake card.
func on(m infer.Model) infer.Model {
	m.Device = "cuda:0"
	return m
}

// echoes runs a batch of n rows of v and returns the first number of every row.
func echoes(d pool.Runner, ctx context.Context, n int, v float32) ([]float32, error) {
	out, err := d.Run(ctx, on(model("echo")), rowsOf(n, v))
	if err != nil {
		return nil, err
	}
	var got []float32
	for i := range n {
		got = append(got, out[0].F32[6*i])
	}
	return got, nil
}

func requireEcho(tb testing.TB, d *device, v float32) {
	tb.Helper()
	got, err := echoes(d, tb.Context(), 1, v)
	require.NoError(tb, err)
	require.Equal(tb, []float32{v}, got)
}

// quarantined waits until a card is in quarantine.
func quarantined(t *testing.T, d *device) *subprocess.Quarantine {
	t.Helper()
	require.Eventually(t, func() bool { return d.card().Quarantine != nil }, 30*time.Second, time.Millisecond)
	return d.card().Quarantine
}

func TestEverySessionOfACardIsOpenedRunAndClosedOnOneThread(t *testing.T) {
	t.Parallel()
	card := ort.NewFakeCard(t)
	d := openCard(t, ort.Config{}, card)
	for _, name := range []string{"echo", "scalar", "log"} {
		_, err := d.Load(t.Context(), on(model(name)))
		require.NoError(t, err)
	}
	for i := range 20 {
		requireEcho(t, d, float32(i))
	}
	lack := "text:Failed to allocate memory for requested buffer of size 1"
	card.Next(t, "session run", lack, "ok", lack) // with the canary between: the session is closed, and opened with the next run
	for i := range 3 {
		_, err := echoes(d, t.Context(), 1, float32(i))
		assert.Equal(t, i < 2, err != nil, "%v", err)
	}
	threads := make(map[string]bool)
	done := make(map[string]int)
	for _, line := range card.Log(t) {
		if line[1] == "session" {
			threads[line[0]+" "+line[3]+" "+line[4]] = true
			done[line[2]]++
		}
	}
	require.Len(t, threads, 1, "one process, and one thread of it")
	require.Equal(t, 5, done["open"], "the canary, three models, and one of them again")
	require.Equal(t, 1, done["close"])
	require.Greater(t, done["run"], 23)
}

func TestAModelOfACardHasRunEverySizeOfBatchBeforeItIsUsed(t *testing.T) {
	t.Parallel()
	card := ort.NewFakeCard(t)
	d := openCard(t, ort.Config{MaxBatch: 6}, card)
	info, err := d.Load(t.Context(), on(model("log"))) // x F32[-1 2]
	require.NoError(t, err)
	require.Zero(t, info.MaxBatch)
	require.Equal(t, []string{"[2", "[1", "[2", "[4", "[6"}, sessionRuns(t, card), "the canary, and then the sizes")
	_, err = d.Load(t.Context(), on(model("echo"))) // of any height and width
	require.NoError(t, err)
	require.Len(t, sessionRuns(t, card), 5, "what shapes it will have is not known")

	cpu := openCPU(t, ort.Config{WarmCPU: true})
	_, err = cpu.Load(t.Context(), model("log"))
	require.NoError(t, err, "the CPU does it too where it is told to")
}

// sessionRuns are the first axes of what sessions ran.
func sessionRuns(t *testing.T, card ort.FakeCard) []string {
	t.Helper()
	var all []string
	for _, line := range card.Log(t) {
		if line[1] == "session" && line[2] == "run" {
			all = append(all, line[5])
		}
	}
	return all
}

func TestMemoryThatIsLackingInTheWarmUpLowersTheLargestBatch(t *testing.T) {
	t.Parallel()
	card := ort.NewFakeCard(t)
	d := openCard(t, ort.Config{MaxBatch: 16}, card)
	card.Next(t, "session run", "ok", "ok", "ok", "text:Failed to allocate memory for requested buffer of size 9")
	info, err := d.Load(t.Context(), on(model("log")))
	require.NoError(t, err)
	require.Equal(t, 4, info.MaxBatch)
	require.Equal(t, []string{"[2", "[1", "[2", "[4", "[8", "[1", "[2", "[4"}, sessionRuns(t, card), "in a new session once memory was lacking")
	require.Zero(t, d.card().Crashes)
}

func TestAPoolMakesNoLargerBatchThanTheCardHadMemoryFor(t *testing.T) {
	t.Parallel()
	card := ort.NewFakeCard(t)
	p, err := pool.New(pool.Config{}, fakeOpener(t, ort.Config{}, card))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	m, err := p.Model(on(model("log")), pool.ModelOptions{})
	require.NoError(t, err)
	require.Equal(t, 64, m.Concurrency())
	card.Next(t, "session run", "ok", "ok", "ok", "text:Failed to allocate memory for requested buffer of size 9")
	info, err := m.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, info.MaxBatch)
	require.Equal(t, 4, m.Concurrency(), "two that run, and two that are made ready")
}

func TestASingleItemThatLacksMemoryInTheWarmUpFailsTheLoad(t *testing.T) {
	t.Parallel()
	card := ort.NewFakeCard(t)
	d := openCard(t, ort.Config{}, card)
	card.Next(t, "session run", "text:CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED")
	_, err := d.Load(t.Context(), on(model("log")))
	require.ErrorIs(t, err, infer.ErrMemory)
	_, err = d.Load(t.Context(), on(model("log")))
	require.NoError(t, err, "once there is memory")
	require.Zero(t, d.card().Crashes)
}

func TestTheWarmUpEndsWithTheTimeOfTheLoad(t *testing.T) {
	t.Parallel()
	card := ort.NewFakeCard(t)
	d := openCard(t, ort.Config{LoadTimeout: 6 * time.Second}, card)
	card.Always(t, "session run", "slow:1600ms") // three come to more than three quarters of it
	info, err := d.Load(t.Context(), on(model("log")))
	require.NoError(t, err)
	require.Zero(t, info.MaxBatch, "it is not known what there is memory for")
	require.Less(t, len(sessionRuns(t, card)), 1+6, "the canary, and not every size")
	require.Zero(t, d.card().Timeouts)
}

func TestAnyStickyErrorOfTheDeviceCostsItsChildAndTheBatchRunsOnTheNext(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; expr=cudaStreamSynchronize(stream)",
		"CUDA failure 719: unspecified launch failure",
		"CUDA failure 999: unknown error",
		"CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED",
		"CUDNN_STATUS_INTERNAL_ERROR",
		"cudaErrorIllegalAddress",
	} {
		card := ort.NewFakeCard(t)
		d := openCard(t, ort.Config{}, card)
		requireEcho(t, d, 1)
		pid := d.card().PIDs
		card.Next(t, "session run", "text:"+text)
		requireEcho(t, d, 2)
		require.NotEqual(t, pid, d.card().PIDs, text)
		require.EqualValues(t, 1, d.card().Crashes, text)
		require.Contains(t, d.card().LastError, text)
	}
}

func TestAChildThatDiesOrAnswersGarbageCostsNoBatch(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"die", "garbage", "frame"} {
		card := ort.NewFakeCard(t)
		d := openCard(t, ort.Config{}, card)
		requireEcho(t, d, 1)
		card.Next(t, "run", fault)
		requireEcho(t, d, 2)
		require.EqualValues(t, 1, d.card().Crashes, fault)
		card.Next(t, "run", fault, fault)
		_, err := echoes(d, t.Context(), 1, 3)
		require.ErrorIs(t, err, infer.ErrCrashed, fault)
		requireEcho(t, d, 4)
		require.Nil(t, d.card().Quarantine)
	}
}

func TestAChildOfACardThatHangsIsKilledAtTheDeadlineAndReplaced(t *testing.T) {
	t.Parallel()
	card := ort.NewFakeCard(t)
	d := openCard(t, ort.Config{RunTimeout: 200 * time.Millisecond, Grace: 200 * time.Millisecond}, card)
	_, err := d.Load(t.Context(), on(model("echo")))
	require.NoError(t, err)
	card.Next(t, "run", "hang")
	_, err = echoes(d, t.Context(), 1, 1)
	require.ErrorIs(t, err, infer.ErrTimeout)
	require.EqualValues(t, 1, d.card().Timeouts)
	requireEcho(t, d, 2)
}

func TestALackOfMemoryIsToldAndTheCanaryIsAskedBeforeTheNextBatch(t *testing.T) {
	t.Parallel()
	card := ort.NewFakeCard(t)
	d := openCard(t, ort.Config{}, card)
	requireEcho(t, d, 1)
	asked := card.Count(t, "canary")
	card.Next(t, "run", "text:CUDA failure 2: out of memory ; GPU=0")
	_, err := echoes(d, t.Context(), 4, 2)
	require.ErrorIs(t, err, infer.ErrMemory)
	requireEcho(t, d, 3)
	require.Equal(t, asked+1, card.Count(t, "canary"))
	require.Zero(t, d.card().Crashes)

	card.Next(t, "run", "text:CUDA failure 2: out of memory ; GPU=0")
	card.Next(t, "canary", "text:CUDA failure 999: unknown error")
	_, err = echoes(d, t.Context(), 4, 4)
	require.ErrorIs(t, err, infer.ErrMemory)
	requireEcho(t, d, 5)
	require.EqualValues(t, 1, d.card().Crashes, "a child whose device does not answer the canary is replaced")
}

func TestACardThatKeepsFailingIsInQuarantineAndThenUsedAgain(t *testing.T) {
	t.Parallel()
	card := ort.NewFakeCard(t)
	d := openCard(t, ort.Config{}, card)
	requireEcho(t, d, 1)
	card.Always(t, "run", "text:CUDA failure 719: unspecified launch failure")
	for i := range 3 { // five children
		_, err := echoes(d, t.Context(), 1, float32(2+i))
		require.Error(t, err)
	}
	q := quarantined(t, d)
	require.Contains(t, q.Why, "failed 5 times within 10m0s")
	require.Contains(t, q.Why, "CUDA failure 719")
	_, err := echoes(d, t.Context(), 1, 9)
	require.ErrorIs(t, err, infer.ErrUnavailable)
	require.NotErrorIs(t, err, infer.ErrMissing, "it will be tried again")
	require.ErrorContains(t, err, "cuda:0 is in quarantine until "+q.Until.UTC().Format(time.TimeOnly))
	err = localmodel.Classify(t.Context(), err)
	blame, permanent := rewards.BlameOf(err)
	require.Equal(t, rewards.Unavailable, rewards.ClassOf(err))
	require.Equal(t, rewards.BlameWorker, blame, "another worker may have its samples")
	require.False(t, permanent)
	card.Cure(t, "run")
	require.Eventually(t, func() bool {
		got, err := echoes(d, t.Context(), 1, 7)
		return err == nil && got[0] == 7
	}, 30*time.Second, 5*time.Millisecond)
	require.Nil(t, d.card().Quarantine)
}

func TestAChildThatDiesRightAfterItsStartIsStartedWithPausesAndThenItsCardRests(t *testing.T) {
	t.Parallel()
	card := ort.NewFakeCard(t)
	d := openCard(t, ort.Config{}, card)
	card.Always(t, "start", "flap:20ms") // which is soon after it has answered the canary
	card.Next(t, "run", "die")
	_, _ = echoes(d, t.Context(), 1, 1) // it may have come at the right time
	q := quarantined(t, d)
	require.Contains(t, q.Why, "the card fell off the bus")
	require.LessOrEqual(t, card.Count(t, "start"), 6, "the first, and five that failed")
	card.Cure(t, "start")
	require.Eventually(t, func() bool { // other rows: the first may have met two children at their end
		_, err := echoes(d, t.Context(), 1, 2)
		return err == nil
	}, 30*time.Second, 5*time.Millisecond)
}

func TestACardWhoseChildrenStartTooSlowlyOrWronglyIsNotOpenedAndSaysWhy(t *testing.T) {
	t.Parallel()
	for says, faults := range map[string][2]string{
		"deadline exceeded":         {"start", "slow:1h"},
		"the card fell off the bus": {"start", "die"},
		"no CUDA-capable device":    {"start", "text:CUDA failure 100: no CUDA-capable device is detected"},
		"canary":                    {"canary", "garbage"},
		"none of its nodes":         {"placement", "none of its nodes runs there"},
	} {
		card := ort.NewFakeCard(t)
		cfg := ort.Config{}
		if says == "deadline exceeded" {
			cfg.LoadTimeout = 300 * time.Millisecond
		}
		o := fakeOpener(t, cfg, card)
		card.Always(t, faults[0], faults[1])
		began := time.Now()
		_, err := o.Open(t.Context(), "cuda:0")
		require.ErrorIs(t, err, infer.ErrUnavailable, says)
		require.ErrorContains(t, err, says)
		require.Less(t, time.Since(began), time.Minute)
		st := o.Stats()["cuda:0"]
		require.Zero(t, st.Alive)
		require.Contains(t, st.LastError, says, "the state says why as well")
		require.ErrorContains(t, err, "not a shared library", "what is wrong with the provider's file is said, too")
		require.Equal(t, 3, card.Count(t, "start"), says)
	}
}

func TestACardInQuarantineLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	bad, good := ort.NewFakeCard(t), ort.NewFakeCard(t)
	o := fakeOpener(t, ort.Config{}, good, bad)
	var all []*device
	for _, name := range []string{"cuda:0", "cuda:1"} {
		r, err := o.Open(t.Context(), name)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
		all = append(all, &device{r, o})
	}
	bad.Always(t, "start", "die")
	second := model("echo")
	second.Device = "cuda:1"
	bad.Next(t, "run", "die")
	_, err := all[1].Run(t.Context(), second, rowsOf(1, 1))
	require.Error(t, err)
	require.Eventually(t, func() bool { return o.Stats()["cuda:1"].Quarantine != nil }, 30*time.Second, time.Millisecond)
	for i := range 10 {
		requireEcho(t, all[0], float32(i))
	}
	require.Zero(t, o.Stats()["cuda:0"].Crashes)
	_, err = o.Open(t.Context(), "cuda:2")
	require.ErrorIs(t, err, infer.ErrMissing)
	require.ErrorContains(t, err, "this process has 2 cards")
}

func TestAChildOfACardFindsTheLibrariesOfAPythonEnvironment(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	library := fakeLibrary(t)
	stub(t, filepath.Join(library, providerFile), "libcublas.so.13")
	python := filepath.Join(dir, "bin", "python")
	cublas := filepath.Join(dir, "lib", "python3.12", "site-packages", "nvidia", "cu13", "lib")
	stub(t, filepath.Join(cublas, "libcublas.so.13"))
	require.NoError(t, os.MkdirAll(filepath.Dir(python), 0o700))
	executable.Write(t, python, "#!/bin/false")
	card := ort.NewFakeCard(t)
	openCard(t, ort.Config{Library: library, Python: python}, card)
	started := card.Log(t)[0]
	require.Equal(t, "loader", started[1])
	require.Contains(t, filepath.SplitList(started[2]), cublas)
}

func TestACardOnWhichNothingOfAModelRunsIsAnErrorOfTheLoad(t *testing.T) {
	t.Parallel()
	lib := onnx.Library(t)
	_, err := ort.OpenOnCPUAsCard(lib, on(model("log")))
	require.ErrorIs(t, err, infer.ErrModel)
	require.ErrorContains(t, err, "cuda:0 can run none of its "+strconv.Itoa(1)+" nodes")
	require.ErrorContains(t, err, "device: cpu")
}
