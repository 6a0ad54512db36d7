package stream

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// maxAnswerBytes is what goes into a connection's outbox, of 8 MiB, beside results.
const maxAnswerBytes = 6 << 20

// maxFetches bounds the questions that one connection may have open.
const maxFetches = 64

// fetches are the questions for rewards that one connection has open.
type fetches struct {
	gateway Gateway
	conn    Conn
	ctx     context.Context //nolint:containedctx // of Serve; those that wait end with it
	running sync.WaitGroup  // goroutines that wait for rewards
	open    atomic.Int32    // how many of them
}

// fetch answers a client's question when its chunk is there.
func (q *fetches) fetch(s *Session, t *wire.Fetch) error {
	if q.open.Add(1) > maxFetches {
		q.open.Add(-1)
		return q.refuse(t, fmt.Errorf("%w: %d fetches are open on this connection", rewards.Unavailable, maxFetches))
	}
	q.running.Go(func() { // ends with its wait or with the connection
		defer q.open.Add(-1)
		res, err := q.gateway.Rewards(q.ctx, s, t)
		if res == nil && err == nil {
			return
		}
		var b []byte
		if err == nil {
			b, err = wire.EncodeControl(res)
		}
		if len(b) > maxAnswerBytes { // one group alone is as large
			err = fmt.Errorf("%w: chunk %d has %d bytes, but an answer has at most %d: read the chunk over HTTP", rewards.TooLarge, t.Chunk, len(b), maxAnswerBytes)
		}
		if err != nil {
			if q.ctx.Err() == nil {
				_ = q.refuse(t, err) // the reader sees a connection that ends
			}
			return
		}
		_ = q.conn.Send(b) // likewise
	})
	return nil
}

// phase answers that a phase has begun when what it asks for is done.
func (q *fetches) phase(s *Session, p *wire.Phase) error {
	if q.open.Add(1) > maxFetches {
		q.open.Add(-1)
		return q.phased(p, fmt.Errorf("%w: %d questions are open on this connection", rewards.Unavailable, maxFetches))
	}
	q.running.Go(func() { // ends with what the phase asks for, or with the connection
		defer q.open.Add(-1)
		if err := q.gateway.Phase(q.ctx, s, p.Name); q.ctx.Err() == nil {
			_ = q.phased(p, err) // the reader sees a connection that ends
		}
	})
	return nil
}

func (q *fetches) phased(p *wire.Phase, why error) error {
	answer := &wire.Phased{Req: p.Req, Name: p.Name}
	if why != nil {
		answer.Why = rewards.MessageOf(why)
	}
	b, err := wire.EncodeControl(answer)
	if err != nil {
		return err
	}
	return q.conn.Send(b)
}

// refuse answers a question that has no answer.
func (q *fetches) refuse(t *wire.Fetch, err error) error {
	class := rewards.ClassOf(err)
	if class == rewards.Internal {
		class = rewards.Unavailable
	}
	b, encErr := wire.EncodeControl(&wire.Error{Code: class, Message: rewards.MessageOf(err), Req: t.Req})
	if encErr != nil {
		return encErr
	}
	return q.conn.Send(b)
}
