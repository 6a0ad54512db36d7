package claim

import (
	"encoding/binary"
	"sync"

	"github.com/rewardloop/rewardloop/wire"
)

// stageBytes is the most that goes through one staging file at a time.
const stageBytes = 1 << 20

// pusher sends the payloads of a connection: one piece of each in turn.
type pusher struct {
	p      *peer
	serial int           // of the connection, in the names of its staging files
	wake   chan struct{} // capacity 1: something was added

	mu    sync.Mutex
	queue []*push // guarded by mu
	ended bool    // guarded by mu
	ring  *ring   // nil: nothing goes through shared memory; guarded by mu

	// Owned by the pusher's goroutine.
	head  [wire.ClaimChunkHead]byte
	parts [][]byte
}

// push is a payload on its way.
type push struct {
	n       uint64
	held    *held
	payload *payload
	plain   bool
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

// end gives back what is left and removes the staging files. It is called once, when nobody
// adds any more.
func (q *pusher) end() {
	q.mu.Lock()
	left, ring := q.queue, q.ring
	q.queue, q.ring, q.ended = nil, nil, true
	q.mu.Unlock()
	for _, x := range left {
		x.payload.release()
	}
	ring.close()
}

// piece sends the next bytes of a payload, straight from the frames' buffers.
func (q *pusher) piece(x *push) error {
	ring := q.ringFor(x)
	if ring != nil {
		if file := ring.take(); file >= 0 {
			n := q.gather(x, stageBytes)
			if err := ring.write(file, q.parts[1:]); err == nil {
				x.advance(n)
				q.p.srv.metrics.bytes.WithLabelValues(overShm).Add(float64(n))
				q.p.send(&wire.ClaimStaged{N: x.n, File: file, Bytes: n})
				return nil
			}
			q.p.srv.seldom.warn("shared", "shared memory could not be written; payloads go over the websocket", "dir", ring.share.dir)
			q.unshare()
		}
	}
	n := q.gather(x, q.p.srv.cfg.ChunkBytes)
	if err := q.p.conn.SendBinary(q.p.ctx, q.parts...); err != nil {
		return err
	}
	x.advance(n)
	q.p.srv.metrics.bytes.WithLabelValues(overWS).Add(float64(n))
	return nil
}

// gather sets parts to the claim's number and its next bytes, at most so many, and returns
// how many.
func (q *pusher) gather(x *push, most int) (n int) {
	binary.LittleEndian.PutUint64(q.head[:], x.n)
	q.parts = append(q.parts[:0], q.head[:])
	frame, at := x.frame, x.at
	for ; frame < len(x.payload.refs) && n < most; frame, at = frame+1, 0 {
		b := x.payload.refs[frame].Bytes()[at:]
		b = b[:min(len(b), most-n)]
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

// share turns shared memory on for a worker that sees it.
func (q *pusher) share(marker string) {
	s := q.p.srv.share
	if !s.proves(marker) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ring == nil && !q.ended {
		q.ring = s.ring(q.serial)
	}
}

// unshare turns it off.
func (q *pusher) unshare() {
	q.mu.Lock()
	ring := q.ring
	q.ring = nil
	q.mu.Unlock()
	ring.close()
}

// ringFor returns the staging files for a payload, nil where it goes over the socket.
func (q *pusher) ringFor(x *push) *ring {
	if x.plain || x.payload.bytes() < q.p.srv.cfg.SharedBytes {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ring
}

// copied takes a staging file back and reports whether it was on its way.
func (q *pusher) copied(file int) bool {
	q.mu.Lock()
	ring := q.ring
	q.mu.Unlock()
	return ring == nil || ring.free(file)
}
