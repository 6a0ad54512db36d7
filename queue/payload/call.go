package payload

import (
	"errors"
	"io"
	"sync/atomic"

	"github.com/rewardloop/rewardloop/wire"
)

// call is a question that waits for its answer. Where it is a claim its drafts belong to the
// reader until done is closed, unless dropped is set while it is not busy with them.
type call struct {
	done  chan struct{} // closed when the answer is complete
	err   error         // written before done is closed
	limit int64         // bytes that a payload may have; 0: none is asked for
	moved atomic.Int64  // counts bytes and answers, to see that something moves

	payload *wire.ClaimPayload
	drafts  []*wire.Draft
	at      int  // the draft that is being filled
	busy    bool // the reader is at the drafts; guarded by link.mu
	dropped bool // nobody waits any more; guarded by link.mu
}

func (x *call) releaseDrafts() {
	for _, d := range x.drafts {
		d.Release()
	}
	x.drafts = nil
}

// fill reads to the end of a chunk.
func (x *call) fill(r io.Reader) (moved int, err error) {
	for {
		var rest []byte
		if x.at < len(x.drafts) {
			rest = x.drafts[x.at].Rest()
		}
		if len(rest) == 0 {
			var one [1]byte
			n, err := io.ReadFull(r, one[:])
			switch {
			case n > 0:
				return moved, violation("more bytes than the claim has")
			case errors.Is(err, io.EOF):
				return moved, nil
			}
			return moved, err
		}
		n, err := io.ReadFull(r, rest)
		x.filled(n)
		moved += n
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return moved, nil
		case err != nil:
			return moved, err
		}
	}
}

// filled notes that bytes have come, and goes on to the next draft.
func (x *call) filled(n int) {
	d := x.drafts[x.at]
	d.Filled(n)
	if len(d.Rest()) == 0 {
		x.at++
	}
}

// full reports whether the whole payload has come.
func (x *call) full() bool { return x.payload != nil && x.at == len(x.drafts) }
