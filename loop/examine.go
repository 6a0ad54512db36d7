package loop

import (
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Examined is a sample with its result, for people to look at. Its media are described
// and have no bytes.
type Examined struct {
	Sample *rewards.Sample
	Result *wire.Result
}

// examine keeps what a sample was, before its frame goes, if it is one of the first of
// its step.
func (c *core) examine(e *entry, res *wire.Result) {
	if e.frame == nil || res.Outcome == rewards.OutcomeCancelled || !c.book.Examine(e.step) {
		return
	}
	s := e.frame.Sample()
	s.Run = e.key.run
	s.GroundTruth, s.ExtraInfo = slices.Clone(s.GroundTruth), slices.Clone(s.ExtraInfo)
	for i, m := range s.Media {
		own := rewards.Media{Kind: m.Kind, Layout: m.Layout, Encoding: m.Encoding, DType: m.DType, Shape: slices.Clone(m.Shape), FPS: m.FPS, SampleRate: m.SampleRate}
		own.Frames = make([][]byte, len(m.Frames)) // their number
		s.Media[i] = &own
	}
	e.examined = s
}
