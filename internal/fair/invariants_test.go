package fair

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sound holds a queue's parts to each other.
func sound(t *testing.T, q *Queue[int], now time.Time, waits, runs []*Call[int]) {
	t.Helper()
	at := q.book.seconds(now)
	held, weights, waiting, places := 0, 0.0, 0, 0
	for k, a := range q.book.accounts {
		require.Equal(t, k, a.name)
		require.Equal(t, a.Data.first != nil, a.Data.place.Taken())
		if a.holds > 0 {
			held++
			weights += a.weight
		} else if a != q.book.kept {
			require.Same(t, a, q.book.resting[a.index], "it rests")
		}
		n, running := 0, 0
		for c := a.Data.first; c != nil; c = c.next {
			n++
		}
		for _, c := range runs {
			if c.account == a {
				running++
			}
		}
		require.Equal(t, n+running, a.holds)
		require.InDelta(t, float64(running), a.running, 1e-9)
		waiting += n
		if a.Data.place.Taken() {
			places++
			require.LessOrEqual(t, a.Data.place.due, a.due(at)+1e-9, "the line would serve it too late")
			require.Same(t, &a.Data.place, q.line.waiting[a.Data.place.index])
		}
	}
	require.Equal(t, held, q.book.held)
	require.InDelta(t, weights, q.book.weights, 1e-6)
	require.Equal(t, len(waits), waiting)
	require.Equal(t, waiting, q.Len())
	require.Len(t, q.line.waiting, places)
	for i := 1; i < len(q.line.waiting); i++ {
		require.False(t, q.line.waiting[i].less(q.line.waiting[(i-1)/2]), "the heap is one")
	}
	for i := 1; i < len(q.book.resting); i++ {
		require.False(t, q.book.resting[i].less(q.book.resting[(i-1)/2]), "the heap is one")
	}
}

// first is First as it is meant, by looking at everybody.
func first(q *Queue[int], executors int, now time.Time) *Account[calls[int]] {
	var all []*Account[calls[int]]
	for _, p := range q.line.waiting {
		all = append(all, p.account)
	}
	at := q.book.seconds(now)
	slices.SortFunc(all, func(a, b *Account[calls[int]]) int {
		switch {
		case a.due(at) != b.due(at):
			return map[bool]int{true: -1, false: 1}[a.due(at) < b.due(at)]
		case a.Data.place.came < b.Data.place.came:
			return -1
		}
		return 1
	})
	for i, a := range all {
		if executors > 1 && i < executors && !q.book.served(a, float64(executors)) {
			return a
		}
	}
	return all[0]
}

func TestAQueueStaysSoundAndServesWhoseTurnItIsWhateverHappens(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		q, now := NewQueue[int](), time.Unix(1e9, 0)
		executors, tenants := 1+r.IntN(5), 1+r.IntN(8)
		var waits, runs []*Call[int]
		for range 400 {
			tenant := Tenant{Run: strconv.Itoa(r.IntN(tenants)), Weight: float64(1 + r.IntN(3))}
			switch k := r.IntN(10); {
			case k < 3:
				waits = append(waits, q.Push(tenant, 0, now))
			case k == 3 && len(waits) > 0:
				i := r.IntN(len(waits))
				require.True(t, q.Remove(waits[i]))
				waits = slices.Delete(waits, i, i+1)
			case k < 7 && len(waits) > 0 && len(runs) < executors:
				want := first(q, executors, now)
				c := q.First(executors, now)
				require.Same(t, want, c.account, "seed %d", seed)
				require.Same(t, want.Data.first, c)
				q.Take(c, now)
				q.Begin(c, now)
				waits = slices.DeleteFunc(waits, func(o *Call[int]) bool { return o == c })
				runs = append(runs, c)
			case k == 7 && len(runs) < executors:
				runs = append(runs, q.Start(tenant, 0, now))
			case len(runs) > 0:
				i := r.IntN(len(runs))
				if r.IntN(5) == 0 {
					q.Charge(runs[i], r.Float64(), now)
				}
				q.End(runs[i], now)
				runs = slices.Delete(runs, i, i+1)
			}
			now = now.Add(time.Duration(r.IntN(50)) * time.Millisecond)
			sound(t, q, now, waits, runs)
		}
		for _, c := range waits {
			q.Remove(c)
		}
		for _, c := range runs {
			q.End(c, now)
		}
		require.Zero(t, q.Tenants())
		require.LessOrEqual(t, len(q.book.accounts), 1)
	}
}
