package dispatch_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/wire"
)

// sound are breakers that are all closed.
type sound struct{}

func (sound) Any() bool { return false }

func (sound) Places(_, _ string, capacity int) int { return capacity }

// step is one whose end is known.
type step struct{ closes time.Time }

func (s *step) Closes() time.Time { return s.closes }
func (s *step) Whole() bool       { return true }
func (s *step) Expected() int     { return 0 }
func (s *step) Arrived() int      { return 1 }
func (s *step) Last() time.Time   { return time.Time{} }
func (s *step) InFlight() int     { return 1 }

// sample is one that nobody has tried.
type sample struct {
	item dispatch.Item
	id   string
	run  string
}

func (s *sample) Item() *dispatch.Item { return &s.item }
func (s *sample) Avoids(string) bool   { return false }
func (s *sample) HeldBy(string) bool   { return false }
func (s *sample) Tried() int           { return 0 }
func (s *sample) Published() time.Time { return time.Time{} }
func (s *sample) Claimed() time.Time   { return time.Time{} }

// worker serves these profiles with so many places each.
func worker(id string, places map[string]int) wire.WorkerInfo {
	w := wire.WorkerInfo{ID: id, State: wire.WorkerReady}
	for name, n := range places {
		w.Profiles = append(w.Profiles, wire.ProfileInfo{Name: name, Queue: name, Capacity: n, Narrow: n})
	}
	return w
}

func board(profiles ...string) *dispatch.Board {
	queues := map[string]string{}
	for _, p := range profiles {
		queues[p] = p
	}
	return dispatch.NewBoard("gw", dispatch.Config{}.WithDefaults(), queues, sound{})
}

var now = time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)

// fill queues n samples of a profile's run.
func fill(b *dispatch.Board, profile, run string, weight float64, n int) {
	p := b.Profile(profile)
	st := &step{closes: now.Add(time.Hour)}
	for i := range n {
		s := &sample{id: fmt.Sprint(profile, run, i), run: run}
		s.item = dispatch.NewItem(p, p.Run(run, weight), st, uint64(i+1), now) //nolint:gosec // a count
		p.Add(s)
	}
}

// publish publishes what may be, and returns how many tickets of each profile that were.
func publish(b *dispatch.Board) map[string]int {
	out := map[string]int{}
	for {
		d, found, _ := b.Next(now)
		if !found {
			return out
		}
		p := d.Sample.Item().Profile()
		p.Serve(d.Sample)
		p.Offered(d.Sample, nil)
		out[p.Name()]++
	}
}

// What a profile has queued, published and running takes nothing from another.
func TestAProfileHasTicketsForItsOwnPlacesWhateverOthersHave(t *testing.T) {
	t.Parallel()
	b := board("a", "b", "nobody")
	b.Survey([]wire.WorkerInfo{worker("w1", map[string]int{"a": 4, "b": 256}), worker("w2", map[string]int{"a": 2})})
	fill(b, "nobody", "r", 1, 1000)
	fill(b, "a", "r", 1, 1000)
	fill(b, "b", "r", 1, 1000)
	require.Equal(t, map[string]int{"a": 6 + 2, "b": 256 + 1}, publish(b), "one for each free place, and one more for each worker")
	require.Empty(t, publish(b))
	require.Contains(t, b.Profile("nobody").Unserved(), `no worker serves the profile "nobody"`)
}

// Places that others use are not free: this gateway counts its own, and workers tell those of
// other gateways.
func TestPlacesThatOtherGatewaysUseAreNotFree(t *testing.T) {
	t.Parallel()
	b := board("a")
	w := worker("w1", map[string]int{"a": 10})
	w.Profiles[0].Used = map[string]int{"gw": 7, "other": 3, "third": 2}
	b.Survey([]wire.WorkerInfo{w})
	p := b.Profile("a")
	require.Equal(t, 5, p.Free(), "what it says of this gateway's own is not counted twice")
	p.Enter("w1")
	p.Enter("w1")
	require.Equal(t, 3, p.Free())
	p.Leave("w1")
	require.Equal(t, 4, p.Free())
}

// A sample occupies the component with the fewest executors first: no more samples begin
// than it has.
func TestTheNarrowestComponentBoundsWhatIsPublished(t *testing.T) {
	t.Parallel()
	b := board("ocr and judge")
	w := worker("w1", map[string]int{"ocr and judge": 256})
	w.Profiles[0].Narrow = 2
	b.Survey([]wire.WorkerInfo{w})
	fill(b, "ocr and judge", "r", 1, 100)
	require.Equal(t, map[string]int{"ocr and judge": 2 + 1}, publish(b))
}

// Where samples are done fast there are tickets for the places of the next 10 ms.
func TestFastSamplesHaveTicketsAheadOfTheirPlaces(t *testing.T) {
	t.Parallel()
	b := board("a")
	b.Survey([]wire.WorkerInfo{worker("w1", map[string]int{"a": 64})})
	p := b.Profile("a")
	for range 64 {
		p.Enter("w1")
	}
	for i := range 20_000 { // 2,000 a second
		p.Done(now.Add(time.Duration(i) * 500 * time.Microsecond))
	}
	require.True(t, p.Room(now.Add(10*time.Second)))
	fill(b, "a", "r", 1, 100)
	n := 0
	for ; p.Room(now.Add(10 * time.Second)); n++ {
		p.Offered(&sample{id: fmt.Sprint(n)}, nil)
	}
	require.InDelta(t, 20, n, 2)
}

func TestAWorkerWithAnotherConfigurationIsNamed(t *testing.T) {
	t.Parallel()
	b := board("a")
	w := worker("w1", map[string]int{"a": 4})
	w.Profiles[0].Queue = "a-of-another-version"
	b.Survey([]wire.WorkerInfo{w})
	require.False(t, b.Profile("a").Served())
	require.Contains(t, b.Profile("a").Unserved(), "worker w1 serves a profile \"a\" of another configuration")
}

func TestAWorkerThatWaitsSaysForWhat(t *testing.T) {
	t.Parallel()
	b := board("a")
	w := worker("w1", map[string]int{"a": 0})
	w.Profiles[0].Waits = "waiting for judge"
	b.Survey([]wire.WorkerInfo{w})
	require.Contains(t, b.Profile("a").Unserved(), "waiting for judge")
}

// Two names of one profile share its queue and its places.
func TestTwoNamesOfAProfileAreOne(t *testing.T) {
	t.Parallel()
	b := dispatch.NewBoard("gw", dispatch.Config{}.WithDefaults(), map[string]string{"": "q", "default": "q"}, sound{})
	require.Same(t, b.Profile(""), b.Profile("default"))
	require.Len(t, b.Profiles(), 1)
}

// Runs of one profile share its places by weight.
func TestRunsOfAProfileAreServedByWeight(t *testing.T) {
	t.Parallel()
	b := board("a")
	b.Survey([]wire.WorkerInfo{worker("w1", map[string]int{"a": 1})})
	fill(b, "a", "one", 1, 1000)
	fill(b, "a", "three", 3, 1000)
	p := b.Profile("a")
	served := map[string]int{}
	for range 400 {
		d, found, _ := b.Next(now)
		require.True(t, found)
		p.Serve(d.Sample)
		run := d.Sample.Item().Run()
		charged := run.Charge()
		run.Refund(&charged, time.Second)
		run.Observe(time.Second)
		s, _ := d.Sample.(*sample)
		served[s.run]++
	}
	require.InDelta(t, 100, served["one"], 5)
	require.InDelta(t, 300, served["three"], 5)
}

// A word of a worker in which only counters have moved changes what is free, and nothing else.
func TestCountersAloneChangeNoPlaces(t *testing.T) {
	t.Parallel()
	b := board("a")
	before := worker("w1", map[string]int{"a": 4})
	before.Rev = 1
	require.True(t, b.Survey([]wire.WorkerInfo{before}))
	after := before
	after.Profiles = slices.Clone(before.Profiles)
	after.Profiles[0].Used = map[string]int{"other": 4}
	require.False(t, b.Survey([]wire.WorkerInfo{after}))
	require.Zero(t, b.Profile("a").Free())
	after.Rev = 2
	require.True(t, b.Survey([]wire.WorkerInfo{after}))
}

func TestAProfileWhoseQueueIsAnotherKnowsItsWorkersByTheNewOne(t *testing.T) {
	t.Parallel()
	b := board("a")
	at := func(queue string) []wire.WorkerInfo {
		return []wire.WorkerInfo{{ID: "w", State: wire.WorkerReady, Profiles: []wire.ProfileInfo{{Name: "a", Queue: queue, Capacity: 2, Narrow: 2}}}}
	}
	b.Survey(at("a"))
	require.Equal(t, 2, b.Profile("a").Capacity())
	b.Expect(map[string]string{"a": "b", "unknown": "c"})
	b.Survey(at("b"))
	require.Equal(t, 2, b.Profile("a").Capacity(), "a worker that is ahead is no stranger")
	require.Empty(t, b.Profile("a").Stranger())
	require.Len(t, b.Rename(map[string]string{"a": "b"}), 1)
	require.Zero(t, b.Profile("a").Capacity(), "nobody has been looked at")
	b.Survey(at("b"))
	require.Equal(t, "b", b.Profile("a").Queue())
	require.Equal(t, 2, b.Profile("a").Capacity())
	require.Empty(t, b.Rename(map[string]string{"a": "b"}), "it has that queue")
	b.Survey(at("a"))
	require.Equal(t, "w", b.Profile("a").Stranger())
}
