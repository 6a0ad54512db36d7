package vlm_test

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/vlm"
)

// bounded are networks for which so many pictures are made ready at a time.
type bounded struct {
	infer.Nets

	gate *fair.Gate
}

type boundedNet struct {
	infer.Net

	gate *fair.Gate
}

func (b bounded) Net(m infer.Model) (infer.Net, error) {
	n, err := b.Nets.Net(m)
	return boundedNet{n, b.gate}, err
}

func (n boundedNet) Enter(ctx context.Context) (func(), error) {
	turn, err := n.gate.Acquire(ctx, fair.Tenant{})
	return turn.Release, err
}

func TestNoPictureIsDecodedBeforeThereIsLeaveForIt(t *testing.T) {
	t.Parallel()
	folder := tiny(t, "tiny-idefics3")
	actual, err := media.New(media.Config{})
	require.NoError(t, err)
	gate := fair.NewGate(1)
	d := &within{Decoder: actual}
	nets := &scripted{vocabulary: 746, tokens: 16, says: func([]int64) []int64 { return nil }}
	registry := vlm.NewJudges(vlm.Deps{Nets: bounded{nets, gate}, Decoder: d})
	judge, err := registry.Judge(vlm.Options{Model: folder})
	require.NoError(t, err)
	require.NoError(t, judge.Warm(t.Context()))
	var file bytes.Buffer
	require.NoError(t, png.Encode(&file, image.NewNRGBA(image.Rect(0, 0, 64, 64))))
	video := func() *rewards.Sample {
		m := &rewards.Media{Kind: rewards.Video, Encoding: rewards.Frames, Frames: [][]byte{file.Bytes(), file.Bytes(), file.Bytes()}}
		m.SetDecoder(d)
		return &rewards.Sample{ID: "s", Prompt: `a "cat"`, Media: []*rewards.Media{m}}
	}
	reader, err := ocr.ParseOptions(nil)
	require.NoError(t, err)
	reads, err := ocr.New(judge, reader)
	require.NoError(t, err)
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{
		{Key: "asks", Weight: 1, Scorer: scorer(t, registry, map[string]any{"model": folder, "frames": 3})},
		{Key: "reads", Weight: 1, Scorer: reads},
		{Key: "chats", Weight: 1, Scorer: rewards.ScorerFunc(func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
			_, err := judge.Chat(ctx, &chat.Request{Messages: []chat.Message{
				{Role: chat.User, Parts: []chat.Part{{Image: file.Bytes(), MIME: "image/png"}, {Text: "?"}}},
			}})
			return rewards.Score{}, err
		})},
	}})
	require.NoError(t, err)
	held := gate.Join(fair.Tenant{})
	<-held.Granted()
	d.closed.Store(true)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			run := m.Run(t.Context(), video())
			<-run.Done()
			assert.Equal(t, rewards.Scored, run.Result.Outcome, "%v", run.Result.Errors)
		})
	}
	require.Eventually(t, func() bool { return gate.Waiting() == 24 }, 20*time.Second, time.Millisecond, "all components of all samples")
	d.closed.Store(false)
	held.Release()
	all.Wait()
	assert.Zero(t, d.early.Load())
	assert.Zero(t, actual.Booked())
}

// within counts what is decoded while nobody has leave.
type within struct {
	*media.Decoder

	closed atomic.Bool
	early  atomic.Int32
}

func (d *within) Decode(ctx context.Context, m *rewards.Media) (*rewards.Pixels, error) {
	if d.closed.Load() {
		d.early.Add(1)
	}
	return d.Decoder.Decode(ctx, m)
}
