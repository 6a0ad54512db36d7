package node

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
)

// selfTestProfile is the reward that /readyz sends its picture through: the whole
// path of a sample, from the gateway's queue to a worker and back. Its run begins
// with "_", which no client may use.
const (
	selfTestProfile = "_selftest"
	selfTestRun     = loop.Hidden + "selftest"
)

// The picture and what it must score: the size in kB of a 64×48 gradient as a JPEG
// of quality 95, as PIL writes it.
const (
	selfTestWidth, selfTestHeight = 64, 48
	selfTestScore                 = 1.214
)

type selfTest struct {
	manager *rewards.Manager
	count   atomic.Uint64
}

func newSelfTest(s *Scorers) (*selfTest, error) {
	scorer, err := s.Registry.Build("jpeg_incompressibility", nil)
	if err != nil {
		return nil, fmt.Errorf("self-test: %w", err)
	}
	m, err := rewards.NewManager(rewards.ManagerConfig{
		Components: []rewards.Component{{Key: "jpeg", Weight: 1, Required: true, Scorer: scorer}}, Single: true, Timeout: 10 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("self-test: %w", err)
	}
	return &selfTest{manager: m}, nil
}

// picture is a gradient: red grows to the right, green downwards.
func picture() *rewards.Media {
	rgb := make([]byte, 0, selfTestWidth*selfTestHeight*3)
	for y := range selfTestHeight {
		for x := range selfTestWidth {
			rgb = append(rgb, byte(4*x), byte(5*y), 128)
		}
	}
	return &rewards.Media{
		Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8",
		Shape: []int{selfTestHeight, selfTestWidth, 3}, Data: rgb,
	}
}

// run sends the picture through the loop and compares.
func (t *selfTest) run(ctx context.Context, m *loop.Manager) error {
	f, err := m.Submit(ctx, loop.Submission{
		Run: selfTestRun, Timeout: 20 * time.Second,
		Sample: &rewards.Sample{
			ID: strconv.FormatUint(t.count.Add(1), 10), Reward: selfTestProfile, Media: []*rewards.Media{picture()},
		},
	})
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	res, err := f.Wait(ctx)
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	if res.RewardScore == nil {
		return fmt.Errorf("self-test: the test picture was not scored, its outcome is %s: %v", res.Outcome, res.Errors)
	}
	if math.Abs(*res.RewardScore-selfTestScore) > 1e-9 {
		return fmt.Errorf("self-test: the score of the test picture is %v, want %v", *res.RewardScore, selfTestScore)
	}
	return nil
}
