package loop_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// rowOf is row i of a step whose groups have four members each.
func rowOf(step int64, i int) *rewards.Sample {
	s := rig.Sample(fmt.Sprintf("s%d-%d", step, i), 30)
	s.Step, s.Index = step, new(int64(i))
	s.UID, s.GroupSize = fmt.Sprintf("g%d", i/4), 4
	return s
}

// lasting scores samples by their own bytes; they take as long as by says, else a second.
func lasting(by map[string]time.Duration) rewards.ScorerFunc {
	return func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		d, ok := by[s.ID]
		if !ok {
			d = time.Second
		}
		return hashing(d)(ctx, s)
	}
}

// fetch asks once.
func (s *stage) fetch(t *testing.T, q wire.Fetch) *wire.Rewards {
	t.Helper()
	res, err := s.Manager.Rewards(t.Context(), "run", 0, q)
	require.NoError(t, err)
	return res
}

func indices(r *wire.Rewards) []int64 {
	list := []int64{}
	for _, at := range r.Indices {
		if at == nil {
			list = append(list, -1)
			continue
		}
		list = append(list, *at)
	}
	return list
}

func workersWith(places int) rig.Settings { return rig.Settings{Places: places} }

// patient gives components the time that these tests need.
func patient(t *testing.T, components ...rewards.Component) map[string]*rewards.Manager {
	t.Helper()
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: components, Timeout: time.Hour})
	require.NoError(t, err)
	return map[string]*rewards.Manager{"": m}
}

func TestGroupsAreHandedOutOnceInTheOrderOfTheirCompletion(t *testing.T) {
	t.Parallel()
	slow := map[string]time.Duration{"s1-1": 30 * time.Second, "s1-6": 10 * time.Second}
	onStage(t, rig.Options{Workers: 1, Worker: workersWith(16), Profiles: patient(t, component(lasting(slow)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: 12})
		for i := range 12 {
			p.send(t, rowOf(1, i))
		}
		first := s.fetch(t, wire.Fetch{Req: 1, Step: 1, Groups: 1, WaitMS: 60_000})
		assert.Equal(t, []int64{8, 9, 10, 11}, indices(first), "the only group without a slow member")
		assert.True(t, first.Ready)
		assert.False(t, first.Done)
		assert.Equal(t, wire.StepOpen, first.State)
		assert.EqualValues(t, 12, first.Expected)
		for i, v := range first.Scores {
			require.InDelta(t, rig.Hash(rowOf(1, 8+i)), *v, 0, "a score belongs to its row")
			require.True(t, first.Valid[i])
		}
		again := s.fetch(t, wire.Fetch{Req: 1, Step: 1, Groups: 1})
		first.Scored, first.Pending = again.Scored, again.Pending // of the step, at the moment of the answer
		assert.Equal(t, first, again, "asked again, the same")

		second := s.fetch(t, wire.Fetch{Req: 2, Step: 1, Chunk: 1, Groups: 1, WaitMS: 60_000})
		assert.Equal(t, []int64{4, 5, 6, 7}, indices(second))
		last := s.fetch(t, wire.Fetch{Req: 3, Step: 1, Chunk: 2, Groups: 5, WaitMS: 60_000})
		assert.Equal(t, []int64{0, 1, 2, 3}, indices(last), "fewer groups than asked for, because there are no more")
		assert.True(t, last.Done)
		assert.Equal(t, wire.StepComplete, last.State)
		assert.EqualValues(t, 12, last.Scored)
		again = s.fetch(t, wire.Fetch{Req: 2, Step: 1, Chunk: 1, Groups: 99})
		assert.Equal(t, second.IDs, again.IDs, "long after, the same rows")
		assert.Equal(t, second.Scores, again.Scores)
		_, err := s.Manager.Rewards(t.Context(), "run", 0, wire.Fetch{Req: 4, Step: 1, Chunk: 7})
		require.ErrorIs(t, err, rewards.Malformed)
	})
}

func TestGroupsCanBeHandedOutInTheOrderOfTheBatch(t *testing.T) {
	t.Parallel()
	slow := map[string]time.Duration{"s1-2": 30 * time.Second}
	onStage(t, rig.Options{Workers: 1, Worker: workersWith(16), Profiles: patient(t, component(lasting(slow)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: 12})
		for i := range 12 {
			p.send(t, rowOf(1, 11-i))
		}
		start := time.Now()
		first := s.fetch(t, wire.Fetch{Req: 1, Step: 1, Groups: 2, Order: wire.ByIndex, WaitMS: 60_000})
		assert.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7}, indices(first))
		assert.GreaterOrEqual(t, time.Since(start), 29*time.Second, "others were complete before")
		rest := s.fetch(t, wire.Fetch{Req: 2, Step: 1, Chunk: 1, Order: wire.ByIndex})
		assert.Equal(t, []int64{8, 9, 10, 11}, indices(rest))
		assert.True(t, rest.Done)
	})
}

func TestWhoAsksTooEarlyLearnsWhoIsMissing(t *testing.T) {
	t.Parallel()
	slow := map[string]time.Duration{"s1-1": time.Minute}
	onStage(t, rig.Options{Workers: 1, Worker: workersWith(16), Profiles: patient(t, component(lasting(slow)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		early := s.fetch(t, wire.Fetch{Req: 1, Step: 1, WaitMS: 10})
		assert.False(t, early.Ready, "nobody has said a word of the step")
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: 4, IDs: []string{"s1-0", "s1-1", "s1-2", "s1-3"}})
		p.send(t, rowOf(1, 0))
		p.send(t, rowOf(1, 1))
		p.send(t, rowOf(1, 2))
		res := s.fetch(t, wire.Fetch{Req: 1, Step: 1, Groups: 1, WaitMS: 5000})
		assert.False(t, res.Ready)
		assert.EqualValues(t, 1, res.Missing)
		assert.EqualValues(t, 1, res.Pending)
		require.Len(t, res.Without, 2)
		assert.Equal(t, wire.Missing{ID: "s1-1", Index: new(int64(1)), UID: "g0", Stage: "running", AgeMS: 5000, Worker: "w0"}, res.Without[0])
		assert.Equal(t, wire.Missing{ID: "s1-3", Stage: "not arrived"}, res.Without[1])
		d, err := s.Manager.Step("run", "", 1)
		require.NoError(t, err)
		assert.Equal(t, res.Without, d.Without)
		assert.Equal(t, wire.StepOpen, d.State)
		s.Manager.Declare(p.session, wire.Step{Step: 1}) // no more comes
		res = s.fetch(t, wire.Fetch{Req: 1, Step: 1, Groups: 1, WaitMS: 60_000})
		assert.True(t, res.Done)
		assert.Equal(t, []int64{0, 1, 2}, indices(res))
	})
}

// broken is a step of eight samples of which one fails, one hangs and one never comes.
func broken(t *testing.T, policy string, test func(t *testing.T, s *stage, p *peer)) {
	t.Helper()
	scorer := func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		switch s.ID {
		case "s1-1":
			return rewards.Score{}, fmt.Errorf("%w: as planned", rewards.BadInput)
		case "s1-6":
			return hanging(ctx, s)
		}
		return hashing(time.Second)(ctx, s)
	}
	onStage(t, rig.Options{Workers: 1, Worker: workersWith(16), Profiles: patient(t, component(scorer))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		var names []string
		for i := range 8 {
			names = append(names, rowOf(1, i).ID, rowOf(1, i/2).ID) // what was said before counts once
		}
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: 8, IDs: names, DeadlineMS: 20_000, OnDeadline: policy})
		start := time.Now()
		for i := range 7 {
			p.send(t, rowOf(1, i))
		}
		test(t, s, p)
		assert.Equal(t, 20*time.Second, time.Since(start).Round(10*time.Millisecond), "the step ends at its deadline")
		hung := p.result(t, "s1-6")
		assert.Equal(t, rewards.OutcomeExpired, hung.Outcome)
		assert.Contains(t, hung.Errors[0].Message, "step 1 (train) ended at its deadline")
		assert.Contains(t, hung.Errors[0].Message, `running on worker "w0"`)
		late := rowOf(1, 7)
		p.send(t, late)
		assert.Equal(t, rewards.Rejected, p.result(t, late.ID).Outcome, "too late")
	})
}

func wantMissing(t *testing.T, res *wire.Rewards) {
	t.Helper()
	require.Len(t, res.Without, 2)
	assert.Equal(t, wire.Missing{ID: "s1-7", Index: new(int64(7)), Stage: "not arrived"}, res.Without[0])
	assert.Equal(t, "s1-6", res.Without[1].ID)
	assert.Equal(t, "expired", res.Without[1].Stage)
	assert.Equal(t, "w0", res.Without[1].Worker)
}

func TestAStepThatIsShortAtItsDeadlineIsMasked(t *testing.T) {
	t.Parallel()
	broken(t, wire.DeadlineMask, func(t *testing.T, s *stage, _ *peer) {
		t.Helper()
		res := s.fetch(t, wire.Fetch{Req: 1, Step: 1, WaitMS: 60_000})
		assert.Equal(t, wire.StepShort, res.State)
		assert.True(t, res.Done)
		assert.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7}, indices(res), "a row for every sample")
		assert.Equal(t, []bool{true, false, true, true, true, true, false, false}, res.Valid)
		for i, v := range res.Scores {
			assert.Equal(t, res.Valid[i], v != nil, "absence is not zero")
		}
		wantMissing(t, res)
	})
}

func TestAStepThatIsShortAtItsDeadlineGoesOnWithWhatThereIs(t *testing.T) {
	t.Parallel()
	broken(t, wire.DeadlineShortfall, func(t *testing.T, s *stage, _ *peer) {
		t.Helper()
		res := s.fetch(t, wire.Fetch{Req: 1, Step: 1, WaitMS: 60_000})
		assert.Equal(t, wire.StepShort, res.State)
		assert.Equal(t, []int64{0, 1, 2, 3, 4, 5}, indices(res))
		wantMissing(t, res)
	})
}

func TestAStepThatIsShortAtItsDeadlineFails(t *testing.T) {
	t.Parallel()
	broken(t, wire.DeadlineFail, func(t *testing.T, s *stage, _ *peer) {
		t.Helper()
		first := s.fetch(t, wire.Fetch{Req: 1, Step: 1, Groups: 1, WaitMS: 10_000})
		assert.Equal(t, []int64{0, 1, 2, 3}, indices(first), "before the deadline what is complete is handed out")
		res := s.fetch(t, wire.Fetch{Req: 1, Step: 1, Chunk: 1, WaitMS: 60_000})
		assert.Equal(t, wire.StepFailed, res.State)
		assert.True(t, res.Done)
		assert.Empty(t, res.IDs)
		wantMissing(t, res)
	})
}

func TestStepsOverlapWithoutWaitingForEachOther(t *testing.T) {
	t.Parallel()
	slow := map[string]time.Duration{}
	for i := range 4 {
		slow[rowOf(1, i).ID] = 10 * time.Minute
	}
	onStage(t, rig.Options{Workers: 2, Worker: workersWith(4), Profiles: patient(t, component(lasting(slow)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		for step := range int64(2) {
			s.Manager.Declare(p.session, wire.Step{Step: step + 1, Expected: 4})
		}
		for i := range 4 {
			p.send(t, rowOf(1, i))
		}
		for i := range 4 {
			p.send(t, rowOf(2, i))
		}
		start := time.Now()
		res := s.fetch(t, wire.Fetch{Req: 1, Step: 2, WaitMS: 60_000})
		assert.True(t, res.Done)
		assert.Less(t, time.Since(start), 5*time.Second, "step 1 still runs")
		d, err := s.Manager.Step("run", rewards.Train, 1)
		require.NoError(t, err)
		assert.Equal(t, 4, d.InFlight)
	})
}

func TestTheRowsOfOldStepsGoWhenTheyAreTooManyOrTooOld(t *testing.T) {
	t.Parallel()
	o := rig.Options{Workers: 1, Worker: workersWith(16), Profiles: patient(t, component(hashing(time.Millisecond)))}
	o.Loop.StepBytes, o.Loop.StepAge = 20_000, 10*time.Minute
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		for step := range int64(12) {
			s.Manager.Declare(p.session, wire.Step{Step: step, Expected: 4})
			for i := range 4 {
				p.send(t, rowOf(step, i))
			}
			assert.True(t, s.fetch(t, wire.Fetch{Req: 1, Step: step, WaitMS: 60_000}).Done)
		}
		_, err := s.Manager.Rewards(t.Context(), "run", 0, wire.Fetch{Req: 1, Step: 0})
		require.ErrorIs(t, err, rewards.Expired)
		require.ErrorContains(t, err, "loop.step_bytes = 20000 is full")
		assert.True(t, s.fetch(t, wire.Fetch{Req: 1, Step: 11}).Done, "the latest is kept")
		kept := s.Manager.StepBytes()
		assert.Positive(t, kept)
		assert.LessOrEqual(t, kept, int64(20_000))
		time.Sleep(11 * time.Minute)
		_, err = s.Manager.Rewards(t.Context(), "run", 0, wire.Fetch{Req: 1, Step: 11})
		require.ErrorIs(t, err, rewards.Expired)
		require.ErrorContains(t, err, "loop.step_age")
		assert.Zero(t, s.Manager.StepBytes())
	})
}

func TestAQuestionIsAnsweredOverTheWebsocket(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Worker: workersWith(16), Profiles: patient(t, component(hashing(time.Second)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		ctx, cancel := context.WithCancel(t.Context())
		ask, wait := s.Manager.Asks(ctx, p.session, p)
		defer wait()
		defer cancel()
		ask(wire.Fetch{Req: 7, Step: 1, Groups: 1, WaitMS: 60_000})
		for i := range 4 {
			p.send(t, rowOf(1, i))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		answers := got[*wire.Rewards](p)
		require.Len(t, answers, 1)
		assert.EqualValues(t, 7, answers[0].Req)
		assert.Equal(t, []int64{0, 1, 2, 3}, indices(answers[0]))
		ask(wire.Fetch{Req: 8, Step: 1, Chunk: 5})
		synctest.Wait()
		refused := got[*wire.Error](p)
		require.Len(t, refused, 1)
		assert.EqualValues(t, 8, refused[0].Req)
		assert.Equal(t, rewards.Malformed, refused[0].Code)
		for i := range 70 {
			ask(wire.Fetch{Req: uint64(100 + i), Step: 2, WaitMS: 60_000})
		}
		synctest.Wait()
		assert.Len(t, got[*wire.Error](p), 7, "64 questions may be open")
	})
}

func TestTheTraceOfAStepHoldsWhatItsReportSays(t *testing.T) {
	t.Parallel()
	slow := map[string]time.Duration{}
	draw := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same in every run
	for i := range 64 {
		slow[rowOf(3, i).ID] = time.Second + time.Duration(draw.Int64N(int64(10*time.Second)))
	}
	onStage(t, rig.Options{Workers: 4, Worker: workersWith(2), Profiles: patient(t, component(lasting(slow)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		s.Manager.Declare(p.session, wire.Step{Step: 3, Expected: 64})
		for i := range 64 {
			p.send(t, rowOf(3, i))
			time.Sleep(time.Second)
		}
		assert.True(t, s.fetch(t, wire.Fetch{Req: 1, Step: 3, WaitMS: 60_000}).Done)
		rec, err := s.Manager.Trace("run", rewards.Train, 3)
		require.NoError(t, err)
		require.Equal(t, 8, rec.Servers)
		var text strings.Builder
		require.NoError(t, rec.Write(&text))
		again, err := trace.ReadTrace(strings.NewReader(text.String()))
		require.NoError(t, err)
		report, err := trace.Measure(again)
		require.NoError(t, err)
		d, err := s.Manager.Step("run", rewards.Train, 3)
		require.NoError(t, err)
		require.Equal(t, &report, d.Report, "recomputed from the exported trace")
		assert.InDelta(t, 1, *report.OverIdeal, 1e-3, "the queue in memory has no overhead to speak of")
		for _, span := range rec.Spans {
			require.InDelta(t, slow[span.ID].Seconds(), *span.Scored-*span.Started, 1e-6)
			require.Len(t, span.Attempts, 1)
		}
	})
}

// What follows a result must not wait for the step's report, and whoever has the last chunk
// finds it.
func TestTheLastChunkAndTheTraceWaitASecondForTheReportAtMost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes, waits time.Duration
		there        bool
	}{
		"in time":  {takes: 500 * time.Millisecond, waits: 500 * time.Millisecond, there: true},
		"too late": {takes: 5 * time.Second, waits: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := rig.Options{
				Workers: 1, Worker: workersWith(16), Profiles: patient(t, component(hashing(time.Second))),
				StepArrived: func() { time.Sleep(c.takes) }, // on the way to the report
			}
			onStage(t, o, func(t *testing.T, s *stage) {
				t.Helper()
				p := s.connect(t, wire.Hello{Run: "run"})
				defer p.drop()
				for i := range 4 {
					p.send(t, rowOf(1, i))
				}
				for i := range 4 {
					p.result(t, rowOf(1, i).ID)
				}
				ended := make(chan struct{})
				go func() { // ends with the report
					defer close(ended)
					s.Manager.Declare(p.session, wire.Step{Step: 1}) // end_of_step
				}()
				start := time.Now()
				require.True(t, s.fetch(t, wire.Fetch{Req: 1, Step: 1, WaitMS: 60_000}).Done)
				require.Equal(t, c.waits, time.Since(start))
				d, err := s.Manager.Step("run", "", 1)
				require.NoError(t, err)
				require.Equal(t, c.there, d.Report != nil)
				start = time.Now()
				rec, err := s.Manager.Trace("run", "", 1)
				require.NoError(t, err)
				require.Len(t, rec.Spans, 4)
				require.Equal(t, !c.there, time.Since(start) == time.Second)
				<-ended
				d, err = s.Manager.Step("run", "", 1)
				require.NoError(t, err)
				require.NotNil(t, d.Report)
			})
		})
	}
}

func TestEverySampleOfADrawnHistoryIsHandedOutOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			draw := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same in every run
			slow := map[string]time.Duration{}
			for step := range int64(3) {
				for i := range 24 {
					slow[rowOf(step, i).ID] = time.Duration(draw.Int64N(int64(20 * time.Second)))
				}
			}
			onStage(t, rig.Options{Workers: 2, Worker: workersWith(4), Profiles: patient(t, component(lasting(slow)))}, func(t *testing.T, s *stage) {
				t.Helper()
				p := s.connect(t, wire.Hello{Run: "run"})
				defer p.drop()
				for step := range int64(3) {
					s.Manager.Declare(p.session, wire.Step{Step: step, Expected: 24})
					for _, i := range draw.Perm(24) {
						p.send(t, rowOf(step, i))
					}
				}
				for step := range int64(3) {
					order := []string{wire.ByCompletion, wire.ByIndex}[draw.IntN(2)]
					var all []int64
					for chunk, done := int64(0), false; !done; {
						q := wire.Fetch{Req: 1, Step: step, Chunk: chunk, Groups: 1 + draw.Int64N(4), Order: order, WaitMS: draw.Int64N(60_000)}
						res := s.fetch(t, q)
						if !res.Ready {
							continue
						}
						if draw.IntN(2) == 0 { // the answer was lost on the way
							require.Equal(t, res.IDs, s.fetch(t, q).IDs)
						}
						require.True(t, slices.IsSorted(indices(res)))
						all = append(all, indices(res)...)
						done = res.Done
						chunk++
					}
					require.Len(t, all, 24)
					if order == wire.ByIndex {
						require.True(t, slices.IsSorted(all))
					}
					slices.Sort(all)
					require.Len(t, slices.Compact(all), 24)
				}
			})
		})
	}
}

func TestAStepThatDoesNotFitIntoOneAnswerComesInSeveral(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	o := rig.Options{Workers: 1, Worker: workersWith(64), Profiles: patient(t, component(hashing(time.Millisecond)))}
	o.Loop.CreditSamples = 10_000
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		const n = 5000
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: n})
		for i := range n {
			sample := rowOf(1, i)
			sample.ID += strings.Repeat("x", 500-len(sample.ID))
			p.send(t, sample)
		}
		rows, chunks := 0, int64(0)
		for done := false; !done; {
			res := s.fetch(t, wire.Fetch{Req: 1, Step: 1, Chunk: chunks, WaitMS: 60_000})
			if !res.Ready {
				continue
			}
			chunks++
			b, err := wire.EncodeControl(res)
			require.NoError(t, err)
			require.Less(t, len(b), 5<<20)
			rows += len(res.IDs)
			done = res.Done
		}
		assert.Equal(t, n, rows)
		assert.EqualValues(t, 2, chunks)
	})
}
