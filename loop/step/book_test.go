package step_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// somewhere is a sample in flight.
type somewhere struct{ since time.Time }

func (s somewhere) Whereabouts() (stage string, arrived time.Time, worker string) {
	return "running", s.since, "w1"
}

// sample is one that has come to a book.
type sample struct {
	id  string
	st  *step.Step
	row *step.Row
}

// gateway is a book with what its gateway keeps of it.
type gateway struct {
	*step.Book

	t       *testing.T
	now     time.Time
	alarms  map[*step.Step]time.Time
	over    map[*step.Step]int
	dropped []step.Key
}

func open(t *testing.T, l step.Limits) *gateway {
	t.Helper()
	l.OnDeadline, l.Timeout = wire.DeadlineMask, time.Hour
	if l.Bytes == 0 {
		l.Bytes = 1 << 20
	}
	return &gateway{Book: step.NewBook(l), t: t, now: time.Unix(1_000_000, 0), alarms: map[*step.Step]time.Time{}, over: map[*step.Step]int{}}
}

func (d *gateway) heed(ev step.Events) {
	for _, a := range ev.Alarms {
		d.alarms[a.Step] = a.At
		if a.At.IsZero() {
			delete(d.alarms, a.Step)
		}
	}
	for _, st := range ev.Over {
		d.over[st]++
	}
	for _, st := range ev.Dropped {
		d.dropped = append(d.dropped, st.Key())
	}
}

func (d *gateway) declare(n, expected int64, ids ...string) error {
	d.t.Helper()
	ev, err := d.Declare(d.now, "run", step.Client{}, &wire.Step{Step: n, Expected: expected, IDs: ids, DeadlineMS: 20_000})
	d.heed(ev)
	return err
}

// comes takes sample i of a step in whose groups have two members.
func (d *gateway) comes(n int64, i int) sample {
	d.t.Helper()
	id := fmt.Sprintf("s%d-%d", n, i)
	st, row, ev := d.Arrived(d.now, step.KeyOf("run", "", n), step.Arrival{
		ID: id, Index: new(int64(i)), UID: fmt.Sprint("g", i/2), Size: 2, Received: d.now, Arrived: d.now, Flight: somewhere{d.now},
	})
	d.heed(ev)
	return sample{id, st, row}
}

func (d *gateway) ends(s sample, outcome rewards.Outcome) {
	d.t.Helper()
	res := &wire.Result{ID: s.id, Outcome: outcome}
	if outcome == rewards.Scored {
		res.RewardScore = new(1.5)
	}
	d.heed(d.Finished(d.now, s.st, s.row, res, 100, 3))
}

func (d *gateway) fetch(t wire.Fetch) *wire.Rewards {
	d.t.Helper()
	res, err := d.Fetch(d.now, "run", t)
	require.NoError(d.t, err)
	return res
}

func TestAStepIsOverOnceEverythingDeclaredHasItsResult(t *testing.T) {
	t.Parallel()
	d := open(t, step.Limits{})
	require.NoError(t, d.declare(1, 2))
	a := d.comes(1, 0)
	assert.Equal(t, map[*step.Step]time.Time{a.st: d.now.Add(20 * time.Second)}, d.alarms)
	assert.Equal(t, a.st.Closes(), d.alarms[a.st])
	assert.False(t, a.st.Whole())
	d.ends(a, rewards.Scored)
	news := d.News("run")
	b := d.comes(1, 1)
	assert.True(t, b.st.Whole())
	assert.Empty(t, d.over)
	d.ends(b, rewards.Failed)
	assert.Equal(t, map[*step.Step]int{a.st: 1}, d.over)
	assert.Empty(t, d.alarms, "nothing has to end it")
	select {
	case <-news:
	default:
		t.Error("whoever waits for rewards was not told")
	}
	res := d.fetch(wire.Fetch{Step: 1})
	assert.True(t, res.Done)
	assert.Equal(t, []string{"s1-0", "s1-1"}, res.IDs)
	assert.Equal(t, []bool{true, false}, res.Valid)
	assert.Equal(t, res, d.fetch(wire.Fetch{Step: 1}), "asked again, the same")
}

func TestADeadlineEndsAStepInTwoSteps(t *testing.T) {
	t.Parallel()
	d := open(t, step.Limits{})
	require.NoError(t, d.declare(1, 3, "s1-0", "s1-1", "s1-2"))
	a := d.comes(1, 0)
	d.now = d.now.Add(20 * time.Second)
	ends, ev := d.Due(a.st)
	d.heed(ev)
	require.True(t, ends)
	assert.True(t, a.st.Closed(), "before its samples expire")
	assert.Empty(t, d.over)
	require.ErrorIs(t, d.declare(1, 3), rewards.Expired)
	d.ends(a, rewards.OutcomeExpired)
	d.heed(d.Short(d.now, a.st))
	assert.Equal(t, map[*step.Step]int{a.st: 1}, d.over)
	res := d.fetch(wire.Fetch{Step: 1})
	assert.Equal(t, wire.StepShort, res.State)
	assert.Equal(t, []string{"s1-0", "s1-1", "s1-2"}, res.IDs, "a row for each")
	require.Len(t, res.Without, 3)
	ends, _ = d.Due(a.st)
	assert.False(t, ends, "it has ended")
}

func TestTheOldestStepMakesRoomForTheSixtyFifth(t *testing.T) {
	t.Parallel()
	d := open(t, step.Limits{})
	running := d.comes(0, 0)
	for n := range int64(step.Kept + 1) {
		d.ends(d.comes(n+1, 0), rewards.Scored)
	}
	assert.Equal(t, []step.Key{step.KeyOf("run", rewards.Train, 1), step.KeyOf("run", rewards.Train, 2)}, d.dropped, "not the one with a sample in flight")
	assert.True(t, d.Has(running.st))
	again := d.comes(1, 0)
	assert.NotEqual(t, running.st, again.st)
	assert.True(t, d.Has(again.st))
	assert.Len(t, slices.Collect(d.Steps("run")), step.Kept)
	newest := slices.Collect(d.Newest("run"))
	assert.Equal(t, again.st, newest[0])
}

func TestARunThatBeginsAnewHasNoneOfItsSteps(t *testing.T) {
	t.Parallel()
	d := open(t, step.Limits{})
	require.NoError(t, d.declare(1, 4, "a", "b"))
	s := d.comes(1, 0)
	news := d.News("run")
	d.heed(d.Drop("run"))
	<-news
	assert.Nil(t, d.Step(s.st.Key()))
	assert.False(t, d.Has(s.st))
	assert.Zero(t, d.Bytes())
	assert.Empty(t, slices.Collect(s.st.Records()))
	assert.NotEmpty(t, s.st.Forgotten())
	s.row.Tried(step.Attempt{Worker: "w1"}) // whoever still holds it does no harm
	s.row.Counted("w1", d.now, d.now)
	assert.NotEqual(t, s.st, d.comes(1, 0).st)
	d.heed(d.Drop("nobody"))
}

func TestASampleThatNobodyReadsInItsStepHasNoRow(t *testing.T) {
	t.Parallel()
	d := open(t, step.Limits{})
	st, row, ev := d.Arrived(d.now, step.KeyOf("run", "", 1), step.Arrival{ID: "a", Received: d.now, Arrived: d.now})
	d.heed(ev)
	require.Nil(t, row)
	row.Tried(step.Attempt{})
	row.Counted("w1", d.now, d.now)
	row.Scored(d.now)
	d.heed(d.EndStep(d.now, "run", &wire.EndOfStep{Step: 1}))
	d.ends(sample{"a", st, row}, rewards.Scored)
	assert.Empty(t, d.over, "there is nothing to measure")
	assert.Zero(t, d.Bytes())
	assert.Equal(t, 1, st.Summary().Outcomes[rewards.Scored])
}

func TestOnlyTheFirstSamplesOfAStepAreExamined(t *testing.T) {
	t.Parallel()
	d := open(t, step.Limits{Examine: 2})
	a, b := d.comes(1, 0), d.comes(2, 0)
	for want := range slices.Values([]bool{true, true, false}) {
		assert.Equal(t, want, d.Examine(a.st))
	}
	assert.True(t, d.Examine(b.st))
}

// Whatever happens to a book: it stays within its bytes, a step is over once, no sample is
// handed out twice, and nothing is left of a run that has ended.
func TestABookAddsUpAfterEveryDrawnHistory(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		draw := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // the same in every run
		d := open(t, step.Limits{Bytes: []int64{8 << 10, 1 << 20}[draw.IntN(2)], Age: time.Minute})
		var flying []sample
		given, next, came := map[string]bool{}, map[int64]int64{}, map[int64]int{}
		for range 300 {
			n := draw.Int64N(4)
			switch draw.IntN(8) {
			case 0:
				_ = d.declare(n, 1+draw.Int64N(20), fmt.Sprintf("s%d-%d", n, draw.IntN(20))) // refused where it is over
			case 1, 2, 3:
				if st := d.Step(step.KeyOf("run", "", n)); st == nil || !st.Closed() { // perhaps more than was declared
					flying = append(flying, d.comes(n, came[n]))
					came[n]++
				}
			case 4, 5:
				if len(flying) > 0 {
					at := draw.IntN(len(flying))
					d.ends(flying[at], []rewards.Outcome{rewards.Scored, rewards.Failed}[draw.IntN(2)])
					flying = slices.Delete(flying, at, at+1)
				}
			case 6:
				res, err := d.Fetch(d.now, "run", wire.Fetch{Step: n, Chunk: next[n], Groups: draw.Int64N(3), Order: []string{wire.ByCompletion, wire.ByIndex}[draw.IntN(2)]})
				if err != nil {
					require.ErrorIs(t, err, rewards.Expired)
				}
				if res != nil && res.State != wire.StepShort {
					next[n]++
					for _, id := range res.IDs {
						require.False(t, given[id], "%s was handed out before", id)
						given[id] = true
					}
				}
			default:
				d.now = d.now.Add(time.Duration(draw.IntN(5000)) * time.Millisecond)
				d.heed(d.Age(d.now, "run"))
				for st, at := range d.alarms {
					if at.After(d.now) {
						continue
					}
					ends, ev := d.Due(st)
					d.heed(ev)
					if !ends {
						continue
					}
					for _, s := range flying {
						if s.st == st {
							d.ends(s, rewards.OutcomeExpired)
						}
					}
					flying = slices.DeleteFunc(flying, func(s sample) bool { return s.st == st })
					d.heed(d.Short(d.now, st))
				}
			}
			require.LessOrEqual(t, d.Bytes(), int64(1<<20))
		}
		for _, n := range d.over {
			require.Equal(t, 1, n)
		}
		d.heed(d.Drop("run"))
		require.Zero(t, d.Bytes(), "history %d", seed)
	}
}

func TestRowsThatNobodyAskedForGoAMinuteAfterTheirStep(t *testing.T) {
	t.Parallel()
	d := open(t, step.Limits{Age: time.Hour})
	for n := range int64(5) {
		if n == 3 {
			require.NoError(t, d.declare(n, 2))
		}
		d.ends(d.comes(n, 0), rewards.Scored)
		d.ends(d.comes(n, 1), rewards.Scored)
	}
	assert.True(t, d.fetch(wire.Fetch{Step: 1, Chunk: step.All}).Ready)
	kept := func() (list []int64) {
		for st := range d.Steps("run") {
			if st.Forgotten() == "" {
				list = append(list, st.Key().Step)
			}
		}
		return list
	}
	d.heed(d.Age(d.now.Add(time.Minute), "run"))
	require.Equal(t, []int64{0, 1, 2, 3, 4}, kept())
	d.heed(d.Age(d.now.Add(time.Minute+1), "run"))
	require.Equal(t, []int64{1, 3, 4}, kept(), "one was fetched, one was declared, and samples of the latest may still come")
	_, err := d.Fetch(d.now, "run", wire.Fetch{Step: 2})
	require.ErrorIs(t, err, rewards.Expired)
	require.ErrorContains(t, err, "no client has declared or fetched the step within 1m0s")
	d.heed(d.Age(d.now.Add(time.Hour+1), "run"))
	assert.Zero(t, d.Bytes())
}

func TestRowsThatNobodyAskedForTakeAnEighthOfTheirLimit(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	d := open(t, step.Limits{Bytes: limit, Age: time.Hour})
	for n := range int64(3) {
		for i := range 500 {
			d.ends(d.comes(n, i), rewards.Scored)
			require.LessOrEqual(t, d.Bytes(), int64(limit/8))
		}
	}
	st := d.Step(step.KeyOf("run", "", 2))
	assert.Equal(t, 500, st.Summary().Outcomes[rewards.Scored], "the results count all the same")
	assert.Contains(t, st.Forgotten(), "an eighth of loop.step_bytes")
	require.NoError(t, d.declare(3, 500))
	for i := range 500 {
		d.ends(d.comes(3, i), rewards.Scored)
	}
	assert.Greater(t, d.Bytes(), int64(limit/8))
	assert.Len(t, d.fetch(wire.Fetch{Step: 3}).IDs, 500)
}

func TestTheRunThatHasMostRowsLosesThem(t *testing.T) {
	t.Parallel()
	d := open(t, step.Limits{Bytes: 64 << 10, Age: time.Hour})
	come := func(run string, n int64, samples int) *step.Step {
		ev, err := d.Declare(d.now, run, step.Client{}, &wire.Step{Step: n, Expected: int64(samples)})
		require.NoError(t, err)
		d.heed(ev)
		for i := range samples {
			id := fmt.Sprint(run, n, i)
			st, row, ev := d.Arrived(d.now, step.KeyOf(run, "", n), step.Arrival{ID: id, Received: d.now, Arrived: d.now, Flight: somewhere{d.now}})
			d.heed(ev)
			d.ends(sample{id, st, row}, rewards.Scored)
		}
		return d.Step(step.KeyOf(run, "", n))
	}
	small := come("small", 0, 4) // the oldest of all
	d.now = d.now.Add(time.Second)
	for n := range int64(20) {
		come("large", n, 10)
		d.now = d.now.Add(time.Second)
	}
	assert.Empty(t, small.Forgotten())
	assert.LessOrEqual(t, d.Bytes(), int64(64<<10))
	assert.Empty(t, d.Step(step.KeyOf("large", "", 19)).Forgotten())
	assert.Contains(t, d.Step(step.KeyOf("large", "", 0)).Forgotten(), "is full")
}
