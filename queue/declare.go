package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// settle declares what this process needs. A cluster that has just begun has no leader for
// some seconds.
func (f *Queue) settle(ctx context.Context) error {
	var said error // by NATS, the last time
	for {
		err := f.declare(ctx)
		if said != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return said // that the time was up in the middle of a question tells nobody anything
		}
		if err == nil || f.server != nil || refused(err) {
			return err
		}
		said = err
		f.cfg.Log.WarnContext(ctx, "NATS is not ready; retrying", "error", err)
		t := time.NewTimer(retryAfter)
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-t.C:
		}
	}
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
		return fmt.Errorf("%w: no NATS server has JetStream ready: start nats-server with -js", err)
	case code == otherStream:
		return fmt.Errorf("%w: gateways of one NATS need the same queue.durable; if none runs any more, remove the stream %s", err, streamName)
	case code == noCluster:
		return fmt.Errorf("%w: queue.replicas of more than 1 needs a cluster of as many servers", err)
	}
	return err
}

// declare makes the stream.
func (f *Queue) declare(ctx context.Context) error {
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
		return fmt.Errorf("queue: stream: %w", advised(err))
	}
	return nil
}

const (
	// unused is how long a queue may be that nobody takes from before NATS forgets it.
	// Its tickets stay.
	unused = time.Hour
	// sure is for how long after a queue was made it is certainly there.
	sure = unused / 2
)

// consumer makes what hands out the tickets of a queue.
func (f *Queue) consumer(ctx context.Context, queue string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := f.js.CreateOrUpdateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		Durable: consumerOf(queue), FilterSubject: ticketSubjects + queue, AckPolicy: jetstream.AckExplicitPolicy, AckWait: f.cfg.Lease,
		MemoryStorage: !f.cfg.Durable,
		MaxAckPending: -1, // what is out is bounded by the places that asked
		MaxDeliver:    -1, // the gateway counts attempts
		MaxWaiting:    1 << 14,
		// Requests say themselves whether they wait at the front or at the back.
		PriorityPolicy: jetstream.PriorityPolicyPrioritized, PriorityGroups: []string{pullGroup},
		InactiveThreshold: unused,
	})
	if err != nil {
		return fmt.Errorf("queue: queue %s: %w", queue, err)
	}
	return nil
}

// consumerOf is the consumer that has a queue's tickets.
func consumerOf(queue string) string { return "q-" + queue }

// queues are those that this gateway has made, and when.
type queues struct {
	mu   sync.Mutex
	made map[string]time.Time // guarded by mu
}

// mostQueues bounds how many queues a gateway makes: workers name them.
const mostQueues = 10_000

// lacks reports whether a queue is to be made.
func (q *queues) lacks(queue string, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, there := q.made[queue]
	return !there || now.Sub(at) > sure
}

func (q *queues) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.made) >= mostQueues
}

func (q *queues) note(queue string, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.made[queue] = now
}

// lost returns the queues that there were, and takes none for made any more.
func (q *queues) lost() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := slices.Collect(maps.Keys(q.made))
	clear(q.made)
	return all
}

// ensure makes a queue that is not there.
func (f *Queue) ensure(ctx context.Context, queue string) error {
	now := time.Now()
	if !f.queues.lacks(queue, now) {
		return nil
	}
	if err := f.consumer(ctx, queue); err != nil {
		return err
	}
	f.queues.note(queue, now)
	return nil
}
