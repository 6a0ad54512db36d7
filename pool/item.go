package pool

import (
	"context"
	"errors"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/infer"
)

// item is one request on its way through a device. The fields up to done are set
// before it is submitted and stay; the others are guarded by the device's mutex.
// The caller reads out and err after done was closed.
type item struct {
	req      infer.Request
	tenant   fair.Tenant
	account  *account
	key      string        // of its batch queue
	bytes    int           // of its inputs
	deadline time.Time     // of the caller's context; zero: none
	begun    chan struct{} // closed when what runs it has begun
	done     chan struct{}
	read     chan struct{} // of a message: closed when no run reads it any more; else nil
	mobile   bool          // its model has other devices, to which it may move

	state      state
	at         time.Time   // when it came into its batch queue
	began      time.Time   // when its latest batch was handed out
	due        time.Time   // by which its place in the batch queue is chosen
	seq        uint64      // order of arrival
	batchQueue *batchQueue // nil until there was room
	queue      *queue      // of its batch queue; nil: it is not there
	holder     *holder     // held until it is answered, and in no batch that runs
	use        fair.Use    // while it runs
	charged    float64     // seconds that its part was charged for it in advance
	batch      *batch      // the newest it was in
	prev, next *item       // in the list it is in
	running    bool        // begun is closed
	retried    bool        // it ran once and gave NaN, or its process hung
	out        []infer.Tensor
	err        error
}

// state is where an item is.
type state uint8

const (
	outside state = iota // the queue is full, it waits for room
	queued               // in its batch queue
	parked               // in a batch that is to be run again
	running              // in a batch that was handed out
	settled              // answered, or given up by its caller
)

// late marks the error of an item whose deadline passed, where no run of it had begun.
func (it *item) late(err error) error {
	if !it.running && errors.Is(err, infer.ErrTimeout) {
		return infer.Marked(infer.ErrWaiting, err)
	}
	return err
}

// moved is the answer to an item that another device is to have.
type moved struct {
	why error // how the device failed it; nil: it only waited there
}

// Error is for those who do not know what to do about it.
func (*moved) Error() string { return "the item moves to another device" }

// again makes of an item that was answered with moved the one for the next device.
func (it *item) again(mobile bool) *item {
	return &item{
		req: it.req, tenant: it.tenant, key: it.key, bytes: it.bytes, deadline: it.deadline,
		begun: it.begun, running: it.running, done: make(chan struct{}), read: unread(it.req), mobile: mobile,
	}
}

// unread is item.read of an item of a request.
func unread(req infer.Request) chan struct{} {
	if req.Message == nil {
		return nil
	}
	return make(chan struct{})
}

// answer settles an item. Its caller is let go as soon as nothing reads its
// inputs any more: now, or when its batch lets go of them. That of a message is let go now.
func (it *item) answer(out []infer.Tensor, err error) {
	it.state, it.out, it.err = settled, out, err
	reading := it.batch != nil && it.batch.reading
	if it.read != nil || !reading {
		close(it.done)
	}
	if it.read != nil && !reading {
		close(it.read)
	}
}

// batch is items of one batch queue that run together.
type batch struct {
	batchQueue *batchQueue
	items      []*item
	// live is the number of items whose callers still wait.
	live int
	// began is when it was handed out, cost what it was expected to take then.
	began time.Time
	cost  time.Duration
	// reading says that the run still reads the callers' tensors: until they have
	// been copied into a batch of several, and to the end of a batch of one, which
	// is not copied.
	reading bool
	cancel  context.CancelFunc // ends the run; nil before it begins
}

// release lets go of the callers' tensors.
func (b *batch) release() {
	if !b.reading {
		return
	}
	b.reading = false
	for _, it := range b.items {
		if it.state != settled {
			continue
		}
		if it.read != nil { // its caller left during the run
			close(it.read)
		} else {
			close(it.done)
		}
	}
}

// begin notes when the batch is handed out, of items that are all waited for.
func (b *batch) begin(now time.Time) {
	b.began = now
	for _, it := range b.items {
		it.began = now
	}
}

// runs lets the items know that what runs the batch has begun.
func (b *batch) runs() {
	for _, it := range b.items {
		if it.state != settled && !it.running {
			it.running = true
			close(it.begun)
		}
	}
}

// waiting are the batch's items whose callers still wait.
func (b *batch) waiting() []*item {
	out := make([]*item, 0, b.live)
	for _, it := range b.items {
		if it.state != settled {
			out = append(out, it)
		}
	}
	return out
}

// list is a queue of items from which any can be taken out at once.
type list struct {
	head, tail *item
	n          int
}

// push adds an item at the end.
func (l *list) push(it *item) { l.insertAfter(l.tail, it) }

// insertDue adds an item behind the last that is due no later: at the end, unless
// its deadline presses.
func (l *list) insertDue(it *item) {
	after := l.tail
	for after != nil && it.due.Before(after.due) {
		after = after.prev
	}
	l.insertAfter(after, it)
}

// insertAfter adds an item behind another, nil: as the first.
func (l *list) insertAfter(after, it *item) {
	it.prev = after
	if after == nil {
		it.next, l.head = l.head, it
	} else {
		it.next, after.next = after.next, it
	}
	if it.next == nil {
		l.tail = it
	} else {
		it.next.prev = it
	}
	l.n++
}

func (l *list) remove(it *item) {
	if it.prev == nil {
		l.head = it.next
	} else {
		it.prev.next = it.next
	}
	if it.next == nil {
		l.tail = it.prev
	} else {
		it.next.prev = it.prev
	}
	it.prev, it.next = nil, nil
	l.n--
}
