package demo

import (
	"time"

	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/wire"
)

// EncodeRM and CheckRM are the tensors file's writer and reader.
var (
	EncodeRM = encodeRM
	CheckRM  = checkRM
)

// MeanScore is what calibration makes of its results.
var MeanScore = meanScore

// Seen is an observation of a sample.
func Seen(generated, returned time.Duration, res *wire.Result) observation {
	return observation{generated, returned, res}
}

// Observations makes room for n observations.
func Observations(n int) []observation { return make([]observation, n) }

// TraceOf places observations on the generator's clock.
func TraceOf(servers int, seen ...observation) (trace.Trace, error) { return newTrace(seen, servers) }

// Progress as a step drives it.
func (p *Progress) Begin(label string, total int) { p.begin(label, total) }
func (p *Progress) Finished()                     { p.finished() }
func (p *Progress) Result(scored bool)            { p.result(scored) }
func (p *Progress) End()                          { p.end() }
