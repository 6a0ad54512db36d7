package payload

import (
	"encoding/binary"
	"sync"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// pusher sends the payloads of a connection: one piece of each in turn.
type pusher struct {
	p    *peer
	wake chan struct{} // capacity 1: something was added

	mu    sync.Mutex
	queue []*push // guarded by mu
	ended bool    // guarded by mu

	// Owned by the pusher's goroutine.
	head  [wire.ClaimChunkHead]byte
	parts [][]byte
}

// push is a payload on its way.
type push struct {
	n       uint64
	held    *held
	payload *payload
	frame   int // the one that is next
	at      int // how much of it has gone
}

func (q *pusher) add(x *push) {
	q.mu.Lock()
	ended := q.ended
	if !ended {
		q.queue = append(q.queue, x)
	}
	q.mu.Unlock()
	if ended {
		x.payload.release()
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run is the pusher's goroutine. It ends with the connection.
func (q *pusher) run() {
	ctx := q.p.ctx
	for {
		x := q.next()
		if x == nil {
			select {
			case <-q.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		more := false
		if !q.p.sess.isDropped(x.held) {
			err := q.piece(x)
			more = err == nil && x.frame < len(x.payload.refs)
		}
		if !more {
			x.payload.release()
			continue
		}
		q.mu.Lock()
		q.queue = append(q.queue, x)
		q.mu.Unlock()
	}
}

func (q *pusher) next() *push {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		return nil
	}
	x := q.queue[0]
	q.queue[0] = nil
	q.queue = q.queue[1:]
	return x
}

// end gives back what is left. It is called once, when nobody adds any more.
func (q *pusher) end() {
	q.mu.Lock()
	left := q.queue
	q.queue, q.ended = nil, true
	q.mu.Unlock()
	for _, x := range left {
		x.payload.release()
	}
}

// piece sends the next bytes of a payload, straight from the frames' buffers.
func (q *pusher) piece(x *push) error {
	n := q.gather(x)
	if err := q.p.conn.SendBinary(q.p.ctx, q.parts...); err != nil {
		return err
	}
	x.advance(n)
	q.p.srv.metrics.bytes.Add(float64(n))
	return nil
}

// gather sets parts to the claim's number and its next bytes, at most wire.MaxClaimChunk, and
// returns how many.
func (q *pusher) gather(x *push) (n int) {
	binary.LittleEndian.PutUint64(q.head[:], x.n)
	q.parts = append(q.parts[:0], q.head[:])
	frame, at := x.frame, x.at
	for ; frame < len(x.payload.refs) && n < wire.MaxClaimChunk; frame, at = frame+1, 0 {
		b := x.payload.refs[frame].Bytes()[at:]
		b = b[:min(len(b), wire.MaxClaimChunk-n)]
		q.parts = append(q.parts, b)
		n += len(b)
	}
	return n
}

// advance notes that n bytes more have gone.
func (x *push) advance(n int) {
	for n > 0 {
		left := int(x.payload.refs[x.frame].Size()) - x.at
		if n < left {
			x.at += n
			return
		}
		n -= left
		x.frame, x.at = x.frame+1, 0
	}
}

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
