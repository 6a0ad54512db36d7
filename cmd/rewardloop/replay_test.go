package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
)

// replayAll says that as many samples are replayed as make test-replay says.
func replayAll() bool { return os.Getenv("REWARDLOOP_REPLAY") == "full" }

// replayedSet is a set of samples that is scored by a server that keeps them, and again by replay.
type replayedSet struct {
	reward        []string
	samples, full int // with make test-replay
	sample        func(n int) *rewards.Sample
	before, now   []string // how much goes on at a time
}

// again scores a set twice and requires the same rewards to the last bit.
func (s replayedSet) again(t *testing.T) {
	t.Helper()
	n := s.samples
	if replayAll() {
		n = s.full
	}
	file := filepath.Join(t.TempDir(), "kept.db")
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	begun := time.Now()
	args := append([]string{"loop.deterministic=true", "store.path=" + file, "store.bytes=8GiB"}, s.reward...)
	p, addr := serving(t, append(append(args, "store.keep=full"), s.before...)...)
	p.stderr.await(t, "results are kept")
	scoreAll(ctx, t, addr, n, s.sample)
	require.NotContains(t, p.stderr.String(), "level=WARN")
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Equal(t, exitOK, p.code(t), p.stderr.String())
	served := time.Since(begun)
	begun = time.Now()
	moved := filepath.Join(t.TempDir(), "moved.jsonl")
	out := watched()
	again := start(t, "", nil, out, append(append([]string{"replay", "--store", file, "--verify", "-o", moved, "loop.deterministic=true"}, s.reward...), s.now...)...)
	select {
	case <-again.exited:
	case <-ctx.Done():
		t.Fatal(again.stderr)
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	t.Logf("%s: served and kept in %v, replayed in %v, %d MB\n%s", t.Name(), served.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond), info.Size()>>20, out)
	require.Equal(t, exitOK, again.code(t), "%s\n%s", out, again.stderr)
	require.Contains(t, out.String(), fmt.Sprintf("%d samples scored again, %d with a reward before and now, %d identical to the last bit\n", n, n, n))
	pairs, err := os.ReadFile(moved)
	require.NoError(t, err)
	require.Equal(t, n, bytes.Count(pairs, []byte("\n")))
}

// scoreAll has four clients of two runs score samples, in steps of 512.
func scoreAll(ctx context.Context, t *testing.T, addr string, n int, sample func(int) *rewards.Sample) {
	t.Helper()
	const clients, ahead = 4, 128
	var open [clients]*client.Client
	for k := range open {
		cfg := client.Config{URL: "ws://" + addr, Run: "run" + strconv.Itoa(k%2), Client: "c" + strconv.Itoa(k)}
		c, err := client.Dial(ctx, cfg)
		require.NoError(t, err)
		defer c.Close()
		if k >= 2 {
			require.Equal(t, open[k-2].Epoch(), c.Epoch(), "it joins the run")
		}
		open[k] = c
	}
	var all sync.WaitGroup
	for k, c := range open {
		all.Go(func() {
			var under []*client.Future
			wait := func(most int) bool {
				for len(under) > most {
					res, err := under[0].Wait(ctx)
					if err != nil || res.Outcome != rewards.Scored {
						t.Errorf("%v: %v", err, res)
						return false
					}
					under = under[1:]
				}
				return true
			}
			for i := k; i < n; i += clients {
				s := sample(i)
				s.ID, s.Step = cmp.Or(s.ID, "s"+strconv.Itoa(i)), int64(i/512)
				f, err := c.Submit(ctx, s, 0)
				if err != nil {
					t.Error(err)
					return
				}
				if under = append(under, f); !wait(ahead) {
					return
				}
			}
			wait(0)
		})
	}
	all.Wait()
	require.False(t, t.Failed())
}

func TestTextsThatWereKeptAreScoredAgainToTheLastBit(t *testing.T) {
	t.Parallel()
	replayedSet{
		reward: []string{"reward.custom_reward_function.path=builtin://f1"}, samples: 100, full: 50_000,
		sample: func(n int) *rewards.Sample {
			return &rewards.Sample{
				Prompt: "which words", Response: strings.Repeat("one two ", n%7) + "three " + strconv.Itoa(n%11), GroundTruth: []byte(`"two three four ` + strconv.Itoa(n%5) + `"`),
			}
		},
		before: []string{"reward.num_workers=2"}, now: []string{"reward.num_workers=7"},
	}.again(t)
}

func TestPicturesThatWereKeptAreCompressedAgainToTheLastBit(t *testing.T) {
	t.Parallel()
	replayedSet{
		reward: []string{"reward.custom_reward_function.path=builtin://jpeg_compressibility"}, samples: 100, full: 50_000,
		sample: func(n int) *rewards.Sample {
			const side = 32
			px := make([]byte, 3*side*side)
			state := uint32(n)*2654435761 + 1 //nolint:gosec // any number does
			for i := range px {
				if i%(n%37+1) == 0 {
					state ^= state << 13
					state ^= state >> 17
					state ^= state << 5
				}
				px[i] = byte(state)
			}
			return &rewards.Sample{Prompt: "noise", Media: []*rewards.Media{{Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{side, side, 3}, Data: px}}}
		},
		before: []string{"reward.num_workers=3"}, now: []string{"reward.num_workers=8"},
	}.again(t)
}

func TestPicturesWithTextsThatWereKeptAreReadAgainToTheLastBit(t *testing.T) {
	t.Parallel()
	if _, err := ort.Find(""); err != nil && os.Getenv("REQUIRE_ORT") != "1" {
		t.Skipf("SKIPPED: no ONNX Runtime: %v", err)
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "golden", "ocr", "*.jpg"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	pictures := make([]image.Image, len(files))
	for i, name := range files {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		pictures[i], err = jpeg.Decode(bytes.NewReader(data))
		require.NoError(t, err)
	}
	replayedSet{
		reward:  []string{"reward.custom_reward_function.path=builtin://ocr", "+reward.custom_reward_function.reward_kwargs.reader=ppocr"},
		samples: 16, full: 2000,
		sample: func(n int) *rewards.Sample { // each one another picture
			var file bytes.Buffer
			if err := jpeg.Encode(&file, pictures[n%len(pictures)], &jpeg.Options{Quality: 40 + n/len(pictures)}); err != nil {
				t.Error(err)
			}
			return &rewards.Sample{
				Prompt: `a sign that says "open until late"`, UID: "p" + strconv.Itoa(n/16), GroupSize: 8, // every second one is of the other run
				Media: []*rewards.Media{{Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{file.Len()}, Data: file.Bytes()}},
			}
		},
		before: []string{"reward.num_workers=2", "pool.onnx.slots=1"}, now: []string{"reward.num_workers=8", "pool.onnx.slots=2"},
	}.again(t)
}
