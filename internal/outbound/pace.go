package outbound

import "time"

const (
	// paceCount is how many answers an endpoint must have given before it can be called slow.
	paceCount = 8
	// paceWeight is what the latest answer counts in the mean of the pace.
	paceWeight = 0.2
	// slowFactor is how many times longer than the fastest endpoint one may take. Engines that batch
	// take up to twice as long under load as without.
	slowFactor = 2.5
	// exploreEvery is of how many calls one goes to an endpoint without a look at its pace, so that one
	// that is fast again is found: half of a percent keeps p99 that of the others.
	exploreEvery = 200
)

// pace is how long an endpoint takes for an answer, in a mean in which the latest count most. It has no
// lock and no clock; the upstream's mutex guards it.
type pace struct {
	answers int
	mean    float64 // nanoseconds
}

// took notes an answer.
func (p *pace) took(d time.Duration) {
	p.answers++
	if p.answers == 1 {
		p.mean = float64(d)
		return
	}
	p.mean += paceWeight * (float64(d) - p.mean)
}

// known reports whether the endpoint has given enough answers.
func (p *pace) known() bool { return p.answers >= paceCount }

// faster is the lesser of two times; 0 stands for one that is not known.
func (p *pace) faster(than time.Duration) time.Duration {
	if mine := time.Duration(p.mean); p.known() && (than == 0 || mine < than) {
		return mine
	}
	return than
}

// slow reports whether the endpoint takes clearly longer than the fastest one.
func (p *pace) slow(fastest time.Duration) bool {
	return p.known() && fastest > 0 && p.mean > slowFactor*float64(fastest)
}
