package loop

import (
	"time"

	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about who keeps what becomes of samples. Nothing of the gateway waits for it.

// Recorder records the media and results of samples. A Manager calls the methods from several
// goroutines and without holding its mutex. The methods must return at once, and discard what they
// cannot record.
type Recorder interface {
	// Media is called when a sample's own scoring has ended and the sample's bytes are still in
	// memory. The frame is valid until Media returns.
	Media(of Recorded, frame *wire.Frame, failed bool)
	// Result is called with each final result, before or after Media.
	Result(r FinalResult)
	// Step is called with the report of a finished step; r is nil if the step has nothing to
	// measure.
	Step(key step.Key, epoch uint64, expected int, r *trace.Report)
}

// Recorded identifies a sample to a Recorder.
type Recorded struct {
	Run   string
	Epoch uint64
	ID    string
}

// FinalResult is a sample with its final result. The sample and the result do not change any more.
type FinalResult struct {
	Recorded

	Step    step.Key
	Profile string // name for display: "default" for the default profile
	Header  *wire.Header
	Result  *wire.Result
	Message []byte // Result as JSON, as sent to the client; nil: the result was not sent
	At      time.Time
}

// seen is a sample whose media a Recorder may look at.
type seen struct {
	of     Recorded
	frame  *wire.Frame
	failed bool
}

func (c *core) keeps(e *entry) bool {
	return c.recorded && e.unit == nil && e.header != nil && !hidden(e.key.run)
}

// noteMedia has the recorder look at a sample whose frame goes.
func (c *core) noteMedia(e *entry, res *wire.Result, fx *effects) {
	if c.keeps(e) && e.frame != nil && len(e.header.Sample.Media) > 0 && res.Outcome != rewards.OutcomeCancelled {
		fx.seen = append(fx.seen, seen{Recorded{e.key.run, e.key.epoch, e.key.id}, e.frame, res.Outcome != rewards.Scored})
	}
}

// noteFinal has the recorder take a final result. It returns the result's place among those, from 1; 0: it is not taken.
func (c *core) noteFinal(now time.Time, e *entry, res *wire.Result, fx *effects) int {
	if !c.keeps(e) {
		return 0
	}
	fx.final = append(fx.final, FinalResult{Recorded{e.key.run, e.key.epoch, e.key.id}, e.step.Key(), shown(e.profile), e.header, res, nil, now})
	return len(fx.final)
}

// record tells the recorder, while the frames are still here.
func (m *Manager) record(fx effects) {
	if m.recorder == nil {
		return
	}
	for _, s := range fx.seen {
		m.recorder.Media(s.of, s.frame, s.failed)
	}
	for _, f := range fx.final {
		m.recorder.Result(f)
	}
}
