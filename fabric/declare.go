package fabric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rewardloop/rewardloop/wire"
)

// settle declares what this process needs. A cluster that has just begun has no leader for
// some seconds.
func (f *Fabric) settle(ctx context.Context) error {
	var said error // by the engine, the last time
	for {
		err := f.declareAll(ctx)
		if said != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return said // that the time was up in the middle of a question tells nobody anything
		}
		if err == nil || f.server != nil || refused(err) {
			return err
		}
		said = err
		f.cfg.Log.WarnContext(ctx, "the engine is not ready; trying again", "error", err)
		t := time.NewTimer(retryAfter)
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-t.C:
		}
	}
}

// declareAll makes the stream and what the workers of this process need.
func (f *Fabric) declareAll(ctx context.Context) error {
	if err := f.declare(ctx); err != nil {
		return err
	}
	return f.consumer(ctx, consumerOfPool(f.cfg.Pool), poolSubject+f.cfg.Pool)
}

// What JetStream says of a stream that it will not make; its client has no names for these.
const (
	otherStream jetstream.ErrorCode = 10052 // there is one of the name that cannot become this one
	noCluster   jetstream.ErrorCode = 10074 // replicas, of a server that is alone
)

// refused reports an answer that will not change by asking again.
func refused(err error) bool {
	code := codeOf(err)
	return code == otherStream || code == noCluster ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || errors.Is(err, nats.ErrPermissionViolation)
}

// codeOf is what kind of answer of JetStream an error is; 0: none.
func codeOf(err error) jetstream.ErrorCode {
	var answer *jetstream.APIError
	if !errors.As(err, &answer) {
		return 0
	}
	return answer.ErrorCode
}

// advised adds to a stream's refusal what to do about it.
func advised(err error) error {
	switch code := codeOf(err); {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: no server of the engine has JetStream, or not yet: nats-server needs -js", err)
	case code == otherStream:
		return fmt.Errorf("%w: gateways of one engine need the same fabric.durable; if none runs any more, remove the stream %s", err, streamName)
	case code == noCluster:
		return fmt.Errorf("%w: fabric.replicas of more than 1 needs a cluster of as many servers", err)
	}
	return err
}

// declare makes the stream.
func (f *Fabric) declare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	storage := jetstream.MemoryStorage
	if f.cfg.Durable {
		storage = jetstream.FileStorage
	}
	_, err := f.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: streamName, Subjects: []string{allTickets}, Storage: storage, Replicas: f.cfg.Replicas,
		Retention: jetstream.WorkQueuePolicy, MaxMsgs: f.cfg.MaxTickets, Discard: jetstream.DiscardNew,
		// A ticket that is published again within 2 s is the same one. The ids of that
		// time are what the window costs, in memory that the garbage collector walks:
		// 20,000 at 10,000 tickets/s. A later repetition is refused at the claim.
		Duplicates: 2 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("fabric: stream: %w", advised(err))
	}
	return nil
}

// consumer makes what hands out the tickets of a subject.
func (f *Fabric) consumer(ctx context.Context, name, subject string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := f.js.CreateOrUpdateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: subject, AckPolicy: jetstream.AckExplicitPolicy, AckWait: f.cfg.Lease, MemoryStorage: !f.cfg.Durable,
		MaxAckPending: -1, // what is out is bounded by the slots that asked
		MaxDeliver:    -1, // the gateway counts attempts
		MaxWaiting:    1 << 14,
		// Requests say themselves whether they wait at the front or at the back.
		PriorityPolicy: jetstream.PriorityPolicyPrioritized, PriorityGroups: []string{pullGroup},
	})
	if err != nil {
		return fmt.Errorf("fabric: consumer %s: %w", name, err)
	}
	return nil
}

// subjectFor is where a ticket goes.
func subjectFor(t wire.Ticket) string {
	return poolSubject + cmp.Or(t.Pool, poolAny)
}

func consumerOfPool(pool string) string { return "pool-" + pool }
