package payload

import (
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// payload is what a claim confirm, with a reference to every frame.
type payload struct {
	frames []wire.ClaimFrame
	refs   []*wire.Frame
	group  *wire.Group // of a group's claim, without its members
}

func payloadOf(f *wire.Frame, kept []rewards.ComponentResult) *payload {
	return &payload{frames: []wire.ClaimFrame{{Sum: f.Sum(), Partial: kept}}, refs: []*wire.Frame{f}}
}

func payloadOfGroup(g *wire.Group) *payload {
	p := &payload{group: &wire.Group{UID: g.UID, Size: g.Size, LastMeanStd: g.LastMeanStd, Absent: g.Absent}}
	for _, m := range g.Members {
		p.frames = append(p.frames, wire.ClaimFrame{Sum: m.Frame.Sum(), Partial: m.Partial})
		p.refs = append(p.refs, m.Frame)
	}
	return p
}

func (p *payload) retain() *payload {
	for _, f := range p.refs {
		f.Retain()
	}
	return p
}

func (p *payload) release() {
	if p != nil {
		for _, f := range p.refs {
			f.Release()
		}
	}
}
