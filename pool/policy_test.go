package pool

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
)

const ms = time.Millisecond

// table is a policy on a clock that is moved by hand.
type table struct {
	*policy
	now time.Time
	n   int
}

func newTable(cfg Config) *table {
	return &table{policy: newPolicy(cfg.WithDefaults(), "cuda:0"), now: time.Unix(1e9, 0)}
}

// come submits n items of the key "k", one every gap; the clock ends at the last.
func (x *table) come(a *account, n int, gap time.Duration) []*item {
	var out []*item
	for i := range n {
		if i > 0 {
			x.now = x.now.Add(gap)
		}
		out = append(out, x.one(a, "k", 0, 0))
	}
	return out
}

func (x *table) one(a *account, key string, bytes int, deadline time.Duration) *item {
	x.n++
	it := &item{req: infer.Request{Name: strconv.Itoa(x.n)}, account: a, key: key, bytes: bytes, done: make(chan struct{})}
	if deadline != 0 {
		it.deadline = x.now.Add(deadline)
	}
	x.add(it, x.now)
	return it
}

// learned gives the batch queue of the key "k" the cost S(b) = a + c·b, and arrivals as near as gap.
func (x *table) learned(acct *account, a, c float64, gap time.Duration) *batchQueue {
	l := x.batchQueue(&item{account: acct, key: "k"})
	l.fit = *measured(a, c, 32, 2)
	for range gapMemory + 1 {
		l.gaps[l.arrived%gapMemory] = gap
		l.arrived++
	}
	l.last = x.now
	return l
}

// finish ends a batch well.
func (x *table) finish(b *batch, took time.Duration) {
	x.ended(b, outcome{rows: make([][]infer.Tensor, len(b.items)), faults: make([]error, len(b.items)), took: took}, x.now)
}

func (x *table) fail(b *batch, err error) { x.ended(b, outcome{err: err}, x.now) }

// partOf is the part of a model of the tenant that waits.
func (x *table) partOf(m *account) *part {
	return x.turns.First(0, x.now).Data.parts[m]
}

// batch takes the next batch, which must be there.
func (x *table) batch(t *testing.T, idle int) *batch {
	t.Helper()
	b, _ := x.next(x.now, idle)
	require.NotNil(t, b, "no batch")
	return b
}

func answered(it *item) bool {
	select {
	case <-it.done:
		return true
	default:
		return false
	}
}

func TestSizesAreTriedOneDoublingAtATimeAndTwiceEach(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	x.come(m, 200, 0)
	var sizes []int
	for range 13 {
		b := x.batch(t, 1)
		sizes = append(sizes, len(b.items))
		x.finish(b, 15*ms+ms*time.Duration(len(b.items)))
	}
	assert.Equal(t, []int{1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 32, 32}, sizes)
}

func TestARestThatIsNotWorthABatchGoesWithTheOthers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		queued, limit int
		longest       float64
		want          []int
	}{
		"nothing is left over":           {100, 512, 0, []int{100}},
		"a quarter":                      {125, 512, 0, []int{125}},
		"half":                           {150, 512, 0, []int{100, 50}},
		"half for two":                   {250, 512, 0, []int{125, 125}},
		"one for ten":                    {1001, 512, 0, []int{100, 100, 100, 100, 100, 100, 100, 101, 100, 100}},
		"no more than the bound":         {125, 110, 0, []int{100, 25}},
		"no longer than a batch may run": {125, 512, 0.25, []int{100, 25}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, m := newTable(Config{MaxBatch: tt.limit}), &account{}
			l := x.learned(m, 0.020, 0.002, 40*ms)
			l.fit, l.longest = *measured(0.020, 0.002, 64, 2), tt.longest
			x.come(m, tt.queued, 0)
			var sizes []int
			for l.n > 0 {
				b := x.batch(t, 1)
				sizes = append(sizes, len(b.items))
				x.now = x.now.Add(20*ms + 2*ms*time.Duration(len(b.items)))
				x.finish(b, 20*ms+2*ms*time.Duration(len(b.items)))
			}
			assert.Equal(t, tt.want, sizes)
		})
	}
}

func TestABatchQueueWhereBatchingDoesNotPayRunsItemsOneByOneAndNeverWaits(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	x.learned(m, 0.002, 0.090, ms)
	for range 3 {
		x.come(m, 3, ms)
		for range 3 {
			assert.Len(t, x.batch(t, 1).items, 1)
		}
		b, wait := x.next(x.now, 1)
		assert.Nil(t, b)
		assert.Negative(t, wait, "nothing to wait for")
	}
}

func TestWhatCameWhileTheSlotWasBusyGoesAtOnce(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	x.learned(m, 0.150, 0.012, 40*ms)
	x.come(m, 5, 40*ms)
	x.now = x.now.Add(30 * ms) // the slot becomes free long after the newest arrival
	assert.Len(t, x.batch(t, 1).items, 5)
}

func TestAFreeSlotWaitsForTheGapThatPays(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		a, c   float64
		gap    time.Duration // between arrivals so far
		queued int
		idle   int
		window time.Duration
		wait   time.Duration
	}{
		"the last slot waits S(n)/(n+1)":                      {0.015, 0.0015, ms, 2, 1, time.Second, 6 * ms},
		"the last slot waits MaxWait at most":                 {0.150, 0.0150, ms, 2, 1, 5 * ms, 4 * ms}, // of which one has passed
		"arrivals are too rare for it":                        {0.015, 0.0015, 40 * ms, 2, 1, time.Second, 0},
		"with another slot idle only for the rest of a burst": {0.015, 0.0015, ms, 2, 2, time.Second, 1500 * time.Microsecond},
		"which has to be nearer then":                         {0.015, 0.0015, 3 * ms, 2, 2, time.Second, 0},
		"a wait not worth a timer":                            {0.0005, 0.00005, 10 * time.Microsecond, 2, 2, time.Second, 0},
		"waiting switched off":                                {0.015, 0.0015, ms, 2, 1, -1, 0},
		"the batch is as large as it pays":                    {0.001, 0.005, ms, 2, 1, time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, m := newTable(Config{MaxWait: tt.window}), &account{}
			l := x.learned(m, tt.a, tt.c, tt.gap)
			x.come(m, tt.queued, min(tt.gap, ms))
			b, wait := x.next(x.now, tt.idle)
			if tt.wait == 0 {
				require.NotNil(t, b)
				return
			}
			require.Nil(t, b)
			assert.InDelta(t, tt.wait, wait, float64(10*time.Microsecond))
			assert.EqualValues(t, 1, l.counts.Waits)
			x.now = x.now.Add(wait)
			assert.Len(t, x.batch(t, tt.idle).items, tt.queued, "then it goes")
		})
	}
}

func TestAWaitEndsInTimeForADeadline(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{MaxWait: time.Second}), &account{}
	x.learned(m, 0.100, 0.010, ms)
	x.one(m, "k", 0, 130*ms)
	_, wait := x.next(x.now, 1)
	assert.InDelta(t, 10*ms, wait, float64(100*time.Microsecond), "130 ms less S(2)")
}

func TestAFlushEndsAllWaitingForASecond(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{MaxWait: time.Second}), &account{}
	x.learned(m, 0.015, 0.0015, ms)
	x.come(m, 2, ms)
	b, _ := x.next(x.now, 1)
	require.Nil(t, b)
	x.flush(x.now)
	require.Len(t, x.batch(t, 1).items, 2)
	x.now = x.now.Add(900 * ms)
	x.come(m, 1, 0)
	require.Len(t, x.batch(t, 1).items, 1, "what comes out of the model before this one")
	x.now = x.now.Add(200 * ms)
	x.come(m, 6, ms)
	b, _ = x.next(x.now, 1)
	require.Nil(t, b, "the next step")
}

func TestAStepsEndSplitsWhatIsLeftOverIdleSlots(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		queued, idle int
		flush        bool
		a, c         float64
		sizes        []int
	}{
		"evenly":                         {10, 4, true, 0.015, 0.0015, []int{3, 3, 2, 2}},
		"one each if there are that few": {3, 4, true, 0.015, 0.0015, []int{1, 1, 1}},
		"never above the size that pays": {40, 2, true, 0.010, 0.010, []int{10, 10}},
		"before it, not below a/c":       {16, 4, false, 0.015, 0.0015, []int{10, 6}},
		"before it, evenly if a/c is 1":  {8, 4, false, 0.010, 0.010, []int{2, 2, 2, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, m := newTable(Config{}), &account{}
			x.learned(m, tt.a, tt.c, time.Hour)
			x.come(m, tt.queued, 0)
			x.batchQueues[batchQueueKey{m, "k"}].gaps = [gapMemory]time.Duration{0: time.Hour, 1: time.Hour, 2: time.Hour, 3: time.Hour, 4: time.Hour}
			if tt.flush {
				x.flush(x.now)
			}
			var sizes []int
			for i := range tt.sizes {
				sizes = append(sizes, len(x.batch(t, tt.idle-i).items))
			}
			assert.Equal(t, tt.sizes, sizes)
		})
	}
}

func TestASplitLeavesSlotsToOtherBatchQueues(t *testing.T) {
	t.Parallel()
	x, a, b := newTable(Config{}), &account{}, &account{}
	x.learned(a, 0.015, 0.0015, ms)
	x.learned(b, 0.015, 0.0015, ms)
	x.come(a, 8, 0)
	x.now = x.now.Add(ms)
	x.come(b, 8, 0)
	x.flush(x.now)
	for i, want := range []*account{a, b, a, b} {
		got := x.batch(t, 4-i)
		assert.Same(t, want, got.batchQueue.account)
		assert.Len(t, got.items, 4)
	}
}

func TestModelsShareADeviceByTimeNotByItems(t *testing.T) {
	t.Parallel()
	x := newTable(Config{})
	slow, fast := &account{}, &account{}
	x.learned(slow, 0, 1.000, time.Hour)
	x.learned(fast, 0, 0.010, time.Hour)
	x.come(slow, 100, 0)
	start := x.now
	came := make(map[*item]time.Time)
	served, longest := 0, time.Duration(0)
	for next := start; x.now.Sub(start) < time.Minute; {
		for ; !next.After(x.now); next = next.Add(100 * ms) { // a fast item every 100 ms
			came[x.one(fast, "k", 0, 0)] = next
		}
		b := x.batch(t, 1)
		took := time.Duration(len(b.items)) * 10 * ms
		if b.batchQueue.account == slow {
			took = time.Second
			served++
		}
		x.now = x.now.Add(took)
		x.finish(b, took)
		if b.batchQueue.account == fast {
			longest = max(longest, x.now.Sub(came[b.items[0]]))
		}
	}
	assert.LessOrEqual(t, longest, 1200*ms, "it waits for one slow batch, and for those that waited with it")
	assert.GreaterOrEqual(t, served, 50, "and the slow model has all the rest")
}

func TestTheLastSlotGoesToWhoseTurnItIsAndNotToAnotherBecauseItWaits(t *testing.T) {
	t.Parallel()
	x := newTable(Config{})
	waits, other := &account{}, &account{}
	x.learned(waits, 0.015, 0.0015, ms)
	x.learned(other, 0, 1.000, time.Hour)
	x.come(other, 2, 0)
	x.partOf(other).used = 1
	x.come(waits, 2, ms)
	require.Same(t, other, x.batch(t, 2).batchQueue.account, "one slot stays free")
	require.Same(t, waits, x.batch(t, 1).batchQueue.account)
	assert.Zero(t, waits.past.Waits)
}

func TestAnIdleModelSavesUpNothing(t *testing.T) {
	t.Parallel()
	x := newTable(Config{})
	busy, late := &account{}, &account{}
	x.learned(busy, 0, 0.1, time.Hour)
	x.learned(late, 0, 0.1, time.Hour)
	x.come(busy, 200, 0)
	for range 100 {
		x.finish(x.batch(t, 1), 100*ms)
	}
	x.come(late, 20, 0)
	turns := 0
	for range 10 {
		b := x.batch(t, 1)
		if b.batchQueue.account == busy {
			turns++
		}
		x.finish(b, 100*ms)
	}
	assert.InDelta(t, 5, turns, 1, "from now on they take turns")
}

func TestBatchQueuesOfAModelAreServedInTheOrderTheyAreDue(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	var want []string
	for i := range 5 {
		key := fmt.Sprintf("width %d", i%3)
		it := x.one(m, key, 0, 0)
		x.now = x.now.Add(ms)
		want = append(want, it.req.Name)
	}
	pressing := x.one(m, "pressing", 0, 100*ms)
	want = append([]string{pressing.req.Name}, want...)
	var got []string
	for range want {
		b := x.batch(t, 1)
		got = append(got, b.items[0].req.Name)
		x.fail(b, infer.ErrInput)
	}
	assert.Equal(t, want, got)
}

func TestADeadlineOvertakesOnlyItemsOfTheLastSecond(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	old := x.one(m, "k", 0, 0)
	x.now = x.now.Add(2 * time.Second)
	young := x.one(m, "k", 0, 0)
	pressing := x.one(m, "k", 0, 10*ms)
	for _, want := range []*item{old, pressing, young} {
		b := x.batch(t, 1)
		assert.Same(t, want, b.items[0])
		x.fail(b, infer.ErrInput)
	}
}

func TestItemsBeyondTheQueuesBoundsWaitForRoomInOrder(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{QueueItems: 3, QueueBytes: 100}), &account{}
	first := x.one(m, "k", 60, 0)
	big := x.one(m, "big", 300, 0)
	small := x.one(m, "k", 10, 0)
	assert.Equal(t, []state{queued, outside, outside}, []state{first.state, big.state, small.state}, "nobody overtakes who waits for room")
	x.finish(x.batch(t, 1), ms)
	assert.Equal(t, []state{settled, queued, outside}, []state{first.state, big.state, small.state}, "larger than the bound: in when nothing else is")
	x.finish(x.batch(t, 1), ms)
	more := []*item{x.one(m, "k", 1, 0), x.one(m, "k", 1, 0), x.one(m, "k", 1, 0)}
	assert.Equal(t, []state{queued, queued, outside}, []state{more[0].state, more[1].state, more[2].state})
	x.cancel(more[0], infer.ErrTimeout, x.now)
	assert.Equal(t, queued, more[2].state, "who leaves makes room")
	x.cancel(small, infer.ErrTimeout, x.now)
	x.cancel(more[1], infer.ErrTimeout, x.now)
	x.cancel(more[2], infer.ErrTimeout, x.now)
	assert.Zero(t, x.items)
	assert.Zero(t, x.bytes)
	assert.Zero(t, x.turns.Len())
}

func TestABatchHasNoMoreBytesThanTheBound(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{BatchBytes: 100}), &account{}
	for range 10 {
		x.one(m, "k", 30, 0)
		x.one(m, "big", 300, 0)
	}
	assert.Equal(t, 3, x.batchQueues[batchQueueKey{m, "k"}].limit)
	assert.Equal(t, 1, x.batchQueues[batchQueueKey{m, "big"}].limit)
}

func TestAForgottenBatchQueueLeavesItsCountsToItsModel(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	waits := x.one(m, "waits", 0, 0)
	runs := x.one(m, "runs", 0, 0)
	x.now = x.now.Add(time.Second)
	x.finish(x.batch(t, 1), ms)
	b := x.batch(t, 1)
	again := x.one(m, "waits", 0, 0)
	require.Same(t, runs, b.items[0])
	require.True(t, answered(waits))
	for i := range 2 * maxBatchQueues {
		x.one(m, strconv.Itoa(i), 0, 0)
		x.now = x.now.Add(ms)
		if i > 0 {
			x.finish(x.batch(t, 2), ms)
		}
	}
	assert.LessOrEqual(t, len(x.batchQueues), maxBatchQueues+1)
	assert.Contains(t, x.batchQueues, batchQueueKey{m, "runs"}, "it has a batch that runs")
	x.finish(b, ms)
	for x.turns.Len() > 0 {
		x.finish(x.batch(t, 1), ms)
	}
	assert.True(t, answered(again))
	total := m.past
	for _, l := range x.batchQueues {
		total.add(l.counts)
	}
	assert.EqualValues(t, 2*maxBatchQueues+3, total.Items)
	assert.EqualValues(t, 2*maxBatchQueues+3, total.Sizes[1])
}

func TestAModelThatOnlyFailsLeavesTheOthersTheirTime(t *testing.T) {
	t.Parallel()
	x := newTable(Config{})
	bad, good := &account{}, &account{}
	x.learned(bad, 0.150, 0.012, time.Hour)
	x.learned(good, 0, 0.100, time.Hour)
	x.come(bad, 32, 0)
	b := x.batch(t, 1)
	require.Len(t, b.items, 32)
	x.ended(b, outcome{err: infer.ErrTimeout, took: time.Minute}, x.now) // now 32 batches of one wait to run again
	x.come(good, 300, 0)
	turns := 0
	for b := x.batch(t, 1); b.batchQueue.account == good; b = x.batch(t, 1) {
		x.finish(b, 100*ms)
		turns++
	}
	assert.InDelta(t, 10*debt, turns, 2, "of the minute it had, ten seconds are made up for")
}

func TestItemsWhoseTimeIsOverAreDroppedWhenTheirTurnComes(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	l := x.learned(m, 0.015, 0.0015, time.Hour)
	late := x.one(m, "k", 0, 10*ms)
	x.now = x.now.Add(20 * ms)
	fine := x.one(m, "k", 0, time.Second)
	b := x.batch(t, 1)
	assert.Equal(t, []*item{fine}, b.items)
	require.True(t, answered(late))
	require.ErrorIs(t, late.err, infer.ErrTimeout)
	assert.EqualValues(t, 1, l.counts.Expired)
	x.fail(b, infer.ErrInput)
	lone := x.one(m, "k", 0, 10*ms)
	x.now = x.now.Add(20 * ms)
	b, wait := x.next(x.now, 1)
	assert.Nil(t, b)
	assert.Negative(t, wait)
	assert.True(t, answered(lone))
	assert.Zero(t, l.open)
}

func TestALongQueueTriesALargerSizeNowAndThen(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	x.learned(m, 0.002, 0.090, time.Hour)
	x.come(m, 300, 0)
	sizes := make(map[int]int)
	for range 200 {
		b := x.batch(t, 1)
		sizes[len(b.items)]++
		x.finish(b, 2*ms+time.Duration(len(b.items))*90*ms)
	}
	assert.Equal(t, map[int]int{1: 197, 2: 3}, sizes)
}
