package loop_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// Eight clients, each of which would be given as much as all may hold together, send
// whatever their credit allows for a minute, and half of them leave and come back.
func TestFramesAndUnusedCreditTogetherStayWithinTheBound(t *testing.T) {
	t.Parallel()
	const bound, clients = 64 << 10, 8
	onStage(t, rig.Options{
		Workers: 1, Worker: rig.Settings{Places: 2},
		Loop:     loop.Config{MaxBytes: bound, CreditBytes: bound, MessageBytes: 8 << 10, CreditSamples: 64},
		Profiles: profiles(t, component(hashing(300*time.Millisecond))),
	}, func(t *testing.T, s *stage) {
		t.Helper()
		peers, spent, sent, most := make([]*peer, clients), make([]int64, clients), 0, int64(0)
		look := func() {
			held, unused := s.Manager.Bytes()
			require.LessOrEqual(t, held+unused, int64(bound), "%d bytes held, %d granted and not used", held, unused)
			most = max(most, held)
		}
		join := func(i int) {
			peers[i], spent[i] = s.connect(t, wire.Hello{Run: "run", Client: fmt.Sprint(i)}), 0
			look()
		}
		for i := range peers {
			join(i)
		}
		for round := range 200 {
			i := round % clients
			if round%40 < clients/2 {
				peers[round%40].drop()
				look()
				join(round % 40)
			}
			s.Manager.Want(peers[i].session, bound)
			credit := peers[i].welcome().Credit.Bytes
			for _, more := range got[*wire.Credit](peers[i]) {
				credit = max(credit, more.Bytes)
			}
			for n := 0; ; n++ {
				sample := rig.Sample(fmt.Sprintf("s%d-%d", round, n), 3000)
				msg, err := wire.Encode(sample, wire.Options{})
				require.NoError(t, err)
				if spent[i]+msg.Size() > credit {
					break
				}
				spent[i] += msg.Size()
				peers[i].send(t, sample)
				look()
				sent++
			}
			time.Sleep(300 * time.Millisecond)
			synctest.Wait()
			look()
		}
		assert.Greater(t, sent, 100, "samples that were sent")
		assert.Greater(t, most, int64(bound/4), "the bytes that were held at most: the bound was not tried")
		for _, p := range peers {
			p.drop()
		}
	})
}

// A group's size and a step's are numbers that a client says; memory is for what comes.
//
// It runs alone: it looks at the memory of the process.
func TestASizeThatAClientSaysCostsNothingUntilItComes(t *testing.T) { //nolint:paralleltest // see above
	onStage(t, rig.Options{Workers: 1, Profiles: profiles(t, component(hashing(time.Second)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: math.MaxInt32, DeadlineMS: 10_000})
		huge := ofGroup("u", 0, math.MaxInt32)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p.send(t, huge)
		require.Equal(t, rewards.Scored, p.result(t, huge.ID).Outcome)
		res := s.fetch(t, wire.Fetch{Req: 1, Step: 1, WaitMS: 60_000})
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20), "bytes taken meanwhile")
		require.Equal(t, wire.StepShort, res.State)
		require.Equal(t, []string{huge.ID}, res.IDs, "no row for each of two thousand million")
		require.EqualValues(t, math.MaxInt32-1, res.Missing)
		require.Equal(t, []wire.Missing{{UID: "u", Stage: "not arrived", Members: math.MaxInt32 - 1}}, res.Without)
	})
}

func TestASampleLargerThanAMessageMayBeIsRefusedWhereverItComesFrom(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Loop: loop.Config{MessageBytes: 1000}, Profiles: profiles(t, component(hashing(0)))}, func(t *testing.T, s *stage) {
		t.Helper()
		_, err := s.Manager.Submit(t.Context(), loop.Submission{Run: "_run", Sample: rig.Sample("big", 3000)})
		require.ErrorIs(t, err, loop.ErrRefused)
		require.ErrorIs(t, err, rewards.TooLarge)
		require.ErrorContains(t, err, "the limit is 1000")
		require.Equal(t, rewards.Scored, result(t, s.submit(t, "_run", rig.Sample("small", 300))).Outcome)
	})
}

func TestAnIDIsOneSamplesOnlyWhileItIsInFlight(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Profiles: profiles(t, component(hashing(time.Second)))}, func(t *testing.T, s *stage) {
		t.Helper()
		first := s.submit(t, "_run", rig.Sample("x", 3))
		_, err := s.Manager.Submit(t.Context(), loop.Submission{Run: "_run", Sample: rig.Sample("x", 3)})
		require.ErrorIs(t, err, loop.ErrRefused)
		require.ErrorIs(t, err, rewards.IDReused)
		require.Equal(t, rewards.Scored, result(t, first).Outcome)
		require.Equal(t, rewards.Scored, result(t, s.submit(t, "_run", rig.Sample("x", 3))).Outcome)
	})
}

func TestNoClientCanNameTheGatewaysOwnEntries(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Profiles: profiles(t, component(hashing(0)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		const id = "\x00group\x00train\x001\x00u"
		p.send(t, rig.Sample(id, 3))
		refused := p.result(t, id)
		require.Equal(t, rewards.Rejected, refused.Outcome)
		require.Equal(t, rewards.Malformed, refused.Errors[0].Class)
		require.Zero(t, s.Manager.InFlight())
	})
}

func TestRunsAreBoundedUntilSomeAreForgotten(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	onStage(t, rig.Options{}, func(t *testing.T, s *stage) {
		t.Helper()
		const most = 1024
		var live []*peer
		for i := range most {
			live = append(live, s.connect(t, wire.Hello{Run: fmt.Sprint("run", i)}))
			time.Sleep(time.Millisecond)
		}
		_, err := s.Manager.Attach(wire.Hello{Run: "one more"}, &peer{m: s.Manager})
		require.ErrorIs(t, err, rewards.Unavailable)
		require.ErrorContains(t, err, "1024 runs have a client")
		s.connect(t, wire.Hello{Run: "run7", Client: "another"}).drop() // one that is known
		for _, i := range []int{20, 7, 9} {
			live[i].drop()
			time.Sleep(time.Millisecond)
		}
		s.connect(t, wire.Hello{Run: "one more"}).drop()
		var names []string
		for _, r := range s.Manager.Runs(0) {
			names = append(names, r.Run)
		}
		require.Len(t, names, most)
		require.Contains(t, names, "one more")
		require.NotContains(t, names, "run20", "it was used longest ago")
		for i, p := range live {
			if i != 20 {
				p.drop()
			}
		}
		time.Sleep(11 * time.Minute) // Config.KeepFor
		s.connect(t, wire.Hello{Run: "last"}).drop()
		require.Len(t, s.Manager.Runs(0), 1)
	})
}

func TestTheIDsOfAStepAreBounded(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		const most = 1 << 17
		all := ids("s", most)
		declare := func(names []string) error {
			return s.Manager.TryDeclare(p.session, wire.Step{Step: 1, Expected: most, IDs: names})
		}
		require.NoError(t, declare(all[:most/2]))
		require.NoError(t, declare(all[most/2:]))
		kept := s.Manager.StepBytes()
		require.NoError(t, declare(all[:most/2]), "a client that comes back says the same again")
		require.Equal(t, kept, s.Manager.StepBytes())
		err := declare([]string{"one more"})
		require.ErrorIs(t, err, rewards.TooLarge)
		require.ErrorContains(t, err, "more than 131072 ids for step 1 (train)")
		require.Equal(t, kept, s.Manager.StepBytes())
	})
}

// Ids of steps that never come cost memory as rows do, and a deadline makes rows of them.
func TestDeclaredIDsStayWithinTheBytesOfSteps(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Loop: loop.Config{StepBytes: 100_000}}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		names := ids("s", 100)
		var err error
		step := int64(0)
		for ; err == nil; step++ {
			require.Less(t, step, int64(50), "nothing stops it")
			err = s.Manager.TryDeclare(p.session, wire.Step{Step: step, Expected: 100, IDs: names, DeadlineMS: 60_000})
			require.LessOrEqual(t, s.Manager.StepBytes(), int64(100_000))
		}
		require.ErrorIs(t, err, rewards.TooLarge)
		require.ErrorContains(t, err, "loop.step_bytes = 100000")
		time.Sleep(2 * time.Minute)
		require.LessOrEqual(t, s.Manager.StepBytes(), int64(100_000))
		require.NoError(t, s.Manager.TryDeclare(p.session, wire.Step{Step: step, Expected: 100, IDs: names}), "the rows of older steps have made room")
	})
}

// A client that cancels whatever it begins leaves a step queue behind for each step.
func TestTheStepQueuesOfStepsThatNeverEndAreBounded(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Profiles: profiles(t, component(hashing(0)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		kept := rig.Sample("kept", 3)
		p.send(t, kept)
		for step := range int64(1000) {
			sample := rig.Sample(fmt.Sprint("s", step), 3)
			sample.Step = step + 1
			p.send(t, sample)
			s.Manager.Cancel(p.session, sample.ID)
		}
		require.LessOrEqual(t, s.Manager.StepQueues("run"), 128)
		s.Add(t, rig.Settings{ID: "w", Places: 1})
		require.Equal(t, rewards.Scored, p.result(t, "kept").Outcome, "it has kept its place")
	})
}

func TestClosedGroupsAreRememberedForThePageOnlySoMany(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	o := rig.Options{Workers: 1, Worker: rig.Settings{Places: 64}, Profiles: profiles(t, component(hashing(0)))}
	o.Loop.CreditSamples = 10_000
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		const most = 4096
		for i := range most + 50 {
			for k := range 2 {
				p.send(t, ofGroup(fmt.Sprint("g", i), k, 2))
			}
		}
		p.result(t, fmt.Sprintf("g%d-1", most+49))
		p.send(t, ofGroup("open", 0, 2))
		p.result(t, "open-0")
		groups := s.Manager.Runs(2 * most)[0].Groups
		require.Len(t, groups, most)
		require.Equal(t, "open", groups[0].UID, "the newest first")
		require.Len(t, s.Manager.Runs(3)[0].Groups, 3)
	})
}

func TestDetailsCountAgainstWhatIsRemembered(t *testing.T) {
	t.Parallel()
	score := func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
		lines := []any{strings.Repeat("x", 40_000), map[string]any{"deep": []any{1.0, nil}}}
		return rewards.Score{Value: 1, Details: map[string]any{"lines": lines}}, nil
	}
	onStage(t, rig.Options{Workers: 1, Profiles: profiles(t, component(score)), Loop: loop.Config{KeepBytes: 100_000}}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		for _, id := range ids("s", 10) {
			p.send(t, rig.Sample(id, 3))
			require.Equal(t, rewards.Scored, p.result(t, id).Outcome)
		}
		p.send(t, rig.Sample("last", 3))
		p.result(t, "last")
		require.Less(t, p.session.Unconfirmed(), 5, "results of 40 KB each in a memory of 100 KB")
	})
}

func TestAnAnswerThatNobodyConfirmsKeepsNoneOfThoseThatWereConfirmed(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Profiles: profiles(t, component(hashing(0)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p, q := s.connect(t, wire.Hello{Run: "run", Client: "p"}), s.connect(t, wire.Hello{Run: "run", Client: "q"})
		defer p.drop()
		defer q.drop()
		p.send(t, rig.Sample("never confirmed", 3))
		p.result(t, "never confirmed")
		for _, id := range ids("q", 20) {
			q.send(t, rig.Sample(id, 3))
			q.m.Confirm(q.session, q.result(t, id).Seq)
		}
		known, held := s.Manager.Remembered("run")
		require.Equal(t, 1, known)
		require.Equal(t, 1, held)
	})
}
