package wire_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/race"
	"github.com/rewardloop/rewardloop/wire"
)

// typical is a raw 512x512 picture as a FlowGRPO trainer sends it.
func typical() *rewards.Sample {
	index := int64(17)
	return &rewards.Sample{
		ID: "flowgrpo/120/train/8f6c2f0e_0_17", Run: "flowgrpo", Step: 120, Split: rewards.Train, Index: &index, UID: "8f6c2f0e", GroupSize: 16, DataSource: "ocr",
		Prompt:      `New York skyline at night with "Hello World" written with fireworks on the sky` + strings.Repeat(", highly detailed", 5),
		GroundTruth: json.RawMessage(`{"target":"Hello World"}`), ExtraInfo: json.RawMessage(`{"num_turns":1,"seed":42,"guidance":4.5}`),
		Media: []*rewards.Media{raw(rewards.Image, rewards.CHW, "U8", make([]byte, 3*512*512), 3, 512, 512)},
	}
}

func BenchmarkEncode(b *testing.B) {
	s := typical()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.Encode(s, wire.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadHeader(b *testing.B) {
	head := mustEncode(b, typical()).Head
	r := bytes.NewReader(head)
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(head)
		if _, err := wire.ReadHeader(r, wire.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReceive is header, body, checksum, one view and release of 786 KB.
func BenchmarkReceive(b *testing.B) {
	frame := mustEncode(b, typical()).Bytes()
	var pool wire.Buffers
	r := bytes.NewReader(frame)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if err := receive(r, frame, &pool); err != nil {
			b.Fatal(err)
		}
	}
}

func receive(r *bytes.Reader, frame []byte, pool *wire.Buffers) error {
	r.Reset(frame)
	h, err := wire.ReadHeader(r, wire.Limits{})
	if err != nil {
		return err
	}
	f, err := h.ReadBody(r, pool)
	if err != nil {
		return err
	}
	f.Sample()
	f.Release()
	return nil
}

func BenchmarkDecodeResult(b *testing.B) {
	text, err := wire.EncodeControl(&wire.Result{
		ID: "flowgrpo/120/train/8f6c2f0e_0_17", Seq: 9, Outcome: rewards.Scored, RewardScore: new(0.5), Attempts: 1, Worker: "w1",
		ExtraInfo: map[string]any{"reward/ocr": 0.5, "rewardloop/valid": true}, TimingMS: map[string]float64{"queue": 1, "score": 20},
	})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.DecodeControl(text); err != nil {
			b.Fatal(err)
		}
	}
}

func TestReceivingARawPictureAllocatesLittle(t *testing.T) { //nolint:paralleltest // it counts allocations
	frame := mustEncode(t, typical()).Bytes()
	var pool wire.Buffers
	r := bytes.NewReader(frame)
	require.NoError(t, receive(r, frame, &pool))
	const runs = 100
	before := allocated()
	allocs := testing.AllocsPerRun(runs, func() {
		if err := receive(r, frame, &pool); err != nil {
			t.Error(err)
		}
	})
	perRun := (allocated() - before) / runs
	t.Logf("%d B in %v allocations", perRun, allocs)
	if !race.Enabled {
		assert.Less(t, perRun, uint64(20<<10))
		assert.Less(t, allocs, 60.0)
	}
}
