package ppocr_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/ocr/ppocr"
)

// witness remembers all that models are given.
type witness struct {
	mu   sync.Mutex
	seen []string
}

func (w *witness) watch(m inferer) inferer {
	return func(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
		var all []byte
		for _, t := range req.Inputs {
			for _, v := range t.F32 {
				all = binary.LittleEndian.AppendUint32(all, math.Float32bits(v))
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen = append(w.seen, fmt.Sprintf("%s %s %08x", req.Name, req.Key(), crc32.ChecksumIEEE(all)))
		return m(ctx, req)
	}
}

// given are the requests so far, in an order that does not depend on goroutines.
func (w *witness) given() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := slices.Sorted(slices.Values(w.seen))
	w.seen = nil
	return seen
}

// decoder gives every picture the same pixels.
type decoder struct{ px *rewards.Pixels }

func (d decoder) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) { return d.px, nil }

func decoded(px *rewards.Pixels) *rewards.Media {
	m := &rewards.Media{Kind: rewards.Image}
	m.SetDecoder(decoder{px})
	return m
}

func TestTheModelsNeverSeeAPromptOrATargetAndReadTheSameWhateverWasAskedFor(t *testing.T) {
	t.Parallel()
	for _, mode := range []ppocr.Mode{ppocr.Parity, ppocr.Fast} {
		w := &witness{}
		r := open(t, ppocr.Config{Mode: mode, Profile: ppocr.Paddle2, FastSide: 64}, ppocr.Models{Det: w.watch(words), Rec: described{w.watch(letters), alphabet}})
		options, err := ocr.Preset(ocr.FlowGRPO)
		require.NoError(t, err)
		scorer, err := ocr.New(r, options)
		require.NoError(t, err)
		pictures := []*rewards.Pixels{bars(200, 150, 1), bars(200, 150, 3), bars(160, 128, 2), bars(150, 100, 0)}
		prompts := []string{`a sign "ab"`, `a door "SECRETWORD"`, `"bb" and "aa"`, `"x"`}
		var requests, texts [][]string
		for shift := range prompts { // every picture with every prompt
			var values, lines []string
			for i, px := range pictures {
				prompt := prompts[(i+shift)%len(prompts)]
				s := &rewards.Sample{
					ID: "SECRETID", Prompt: prompt, GroundTruth: []byte(`"` + strings.ReplaceAll(prompt, `"`, `\"`) + `"`),
					Media: []*rewards.Media{decoded(px)},
				}
				score, err := scorer.Score(t.Context(), s)
				require.NoError(t, err)
				lines = append(lines, fmt.Sprint(score.Details["lines"]))
				values = append(values, w.given()...)
			}
			requests, texts = append(requests, values), append(texts, lines)
		}
		for i := range requests {
			require.Equal(t, requests[0], requests[i], "%s", mode)
			require.Equal(t, texts[0], texts[i], "%s", mode)
		}
		all := strings.Join(requests[0], "\n")
		require.NotContains(t, all, "SECRET")
		require.NotEmpty(t, texts[0][1])
	}
}
