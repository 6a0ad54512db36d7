package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
)

func TestWithoutMemoryABatchIsHalvedAndTheBatchQueueGrowsBackSlowly(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	l := x.learned(m, 0.015, 0.0015, ms)
	items := x.come(m, 32, 0)
	b := x.batch(t, 1)
	require.Len(t, b.items, 32)
	x.fail(b, fmt.Errorf("%w: arena", infer.ErrMemory))
	assert.Equal(t, 16, l.limit)
	one, two := x.batch(t, 1), x.batch(t, 1)
	require.Len(t, one.items, 16)
	require.Len(t, two.items, 16)
	assert.Same(t, items[0], one.items[0])
	x.finish(one, ms)
	x.fail(two, infer.ErrMemory)
	assert.Equal(t, 8, l.limit)
	for range 2 {
		b := x.batch(t, 1)
		require.Len(t, b.items, 8)
		x.finish(b, ms)
	}
	for _, it := range items {
		require.True(t, answered(it))
		require.NoError(t, it.err)
	}
	good := l.good
	for range growAfter - good {
		x.come(m, 1, 0)
		x.flush(x.now)
		x.finish(x.batch(t, 1), 17*ms)
	}
	assert.Equal(t, 9, l.limit)
	assert.EqualValues(t, 2, l.counts.Splits)
}

func TestWithoutMemoryABatchOfWhichOneIsLeftRunsForThatOne(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	x.learned(m, 0.015, 0.0015, ms)
	items := x.come(m, 2, 0)
	x.flush(x.now)
	b := x.batch(t, 1)
	require.Len(t, b.items, 2)
	x.cancel(items[0], infer.ErrTimeout, x.now)
	x.fail(b, infer.ErrMemory)
	require.Len(t, x.partOf(m).redo, 1)
	assert.Equal(t, []*item{items[1]}, x.batch(t, 1).items)
}

func TestWithoutMemoryForASingleItemItFails(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	it := x.one(m, "k", 0, 0)
	x.fail(x.batch(t, 1), infer.ErrMemory)
	require.True(t, answered(it))
	require.ErrorIs(t, it.err, infer.ErrMemory)
}

func TestABatchOfOneKeepsItsCallerUntilItIsRead(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	it := x.one(m, "k", 0, 0)
	b := x.batch(t, 1)
	ended := false
	b.cancel = func() { ended = true }
	x.cancel(it, infer.ErrTimeout, x.now)
	assert.True(t, ended, "nobody waits for the run")
	assert.False(t, answered(it), "but it reads the caller's tensors")
	x.fail(b, infer.ErrFault)
	assert.True(t, answered(it))
	assert.ErrorIs(t, it.err, infer.ErrTimeout)
}

func TestABatchOfSeveralLetsGoOnceItsTensorsAreCopied(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	x.learned(m, 0.015, 0.0015, time.Hour)
	items := x.come(m, 3, 0)
	x.flush(x.now)
	b := x.batch(t, 1)
	ended := false
	b.cancel = func() { ended = true }
	x.cancel(items[0], infer.ErrTimeout, x.now)
	assert.False(t, answered(items[0]))
	b.release()
	assert.True(t, answered(items[0]))
	x.cancel(items[1], infer.ErrTimeout, x.now)
	assert.True(t, answered(items[1]))
	assert.False(t, ended, "one still waits")
	x.cancel(items[2], infer.ErrTimeout, x.now)
	assert.True(t, ended)
	x.cancel(items[2], infer.ErrTimeout, x.now) // twice is harmless
	x.finish(b, ms)
	assert.EqualValues(t, 3, b.batchQueue.counts.Left)
	assert.Zero(t, b.batchQueue.counts.Items)
}

func TestTheEndAnswersWhatWaitsToBeRunAgain(t *testing.T) {
	t.Parallel()
	x, m := newTable(Config{}), &account{}
	l := x.learned(m, 0.015, 0.0015, ms)
	items := x.come(m, 8, 0)
	x.flush(x.now)
	x.fail(x.batch(t, 1), infer.ErrMemory) // two halves wait
	x.cancel(items[0], infer.ErrTimeout, x.now)
	x.clear(infer.ErrUnavailable, x.now)
	for i, it := range items {
		require.True(t, answered(it), i)
	}
	require.ErrorIs(t, items[7].err, infer.ErrUnavailable)
	require.ErrorIs(t, items[0].err, infer.ErrTimeout, "who had left keeps his answer")
	assert.Zero(t, l.open)
	assert.Zero(t, x.turns.Len())
	assert.EqualValues(t, 7, l.counts.Failed)
}
