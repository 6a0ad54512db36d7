package loop_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
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

// comparison is a group scorer that takes so long and gives each member its place among
// the members' own values, worst first. It notes the groups that it saw.
type comparison struct {
	takes time.Duration
	fails func(g *rewards.Group, call int) error // nil: never

	mu   sync.Mutex
	seen [][]string // guarded by mu; ids in the order of the members
	at   []time.Time
}

func (c *comparison) ScoreGroup(ctx context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
	var ids []string
	for _, m := range g.Members {
		ids = append(ids, m.Sample.ID)
	}
	c.mu.Lock()
	c.seen, c.at = append(c.seen, ids), append(c.at, time.Now())
	call := len(c.seen)
	c.mu.Unlock()
	if err := pause(ctx, c.takes); err != nil {
		return nil, err
	}
	if c.fails != nil {
		if err := c.fails(g, call); err != nil {
			return nil, err
		}
	}
	out := make([]rewards.MemberScore, len(g.Members))
	for i, m := range g.Members {
		for _, other := range g.Members {
			if other.Values["own"] < m.Values["own"] {
				out[i].Score.Value++
			}
		}
	}
	return out, nil
}

func (c *comparison) calls() [][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen)
}

// compared is a profile with a component of a sample's own, whose value is the number at the
// end of its id and which lasts as many seconds, and a comparison of weight 10. "bad"
// in a response fails the own component.
func compared(t *testing.T, c rewards.GroupScorer, change ...func(own, group *rewards.Component)) map[string]*rewards.Manager {
	t.Helper()
	own := rewards.Component{Key: "own", Weight: 1, Required: true, Timeout: time.Minute, Scorer: rewards.ScorerFunc(
		func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
			n := float64(s.ID[len(s.ID)-1] - '0')
			if err := pause(ctx, time.Duration(n)*time.Second); err != nil {
				return rewards.Score{}, err
			}
			if s.Response == "bad" {
				return rewards.Score{}, fmt.Errorf("%w: as planned", rewards.BadInput)
			}
			return rewards.Score{Value: n}, nil
		})}
	group := rewards.Component{Key: "place", Weight: 10, Required: true, Timeout: 20 * time.Second, Group: c}
	for _, f := range change {
		f(&own, &group)
	}
	return profiles(t, own, group)
}

// ofGroup is one of n samples of a prompt group.
func ofGroup(uid string, i, n int) *rewards.Sample {
	s := rig.Sample(fmt.Sprintf("%s-%d", uid, i), 30)
	index := int64(i)
	s.UID, s.GroupSize, s.Step, s.Index = uid, n, 1, &index
	return s
}

func fourOf(uid string) []*rewards.Sample {
	var all []*rewards.Sample
	for i := range 4 {
		all = append(all, ofGroup(uid, i, 4))
	}
	return all
}

// onCompared is a stage with four places and the comparison.
func onCompared(t *testing.T, c *comparison, test func(t *testing.T, s *stage), change ...func(own, group *rewards.Component)) {
	t.Helper()
	onStage(t, rig.Options{
		Workers: 2, Worker: rig.Settings{Places: 2}, Loop: loop.Config{SampleTimeout: time.Minute}, Profiles: compared(t, c, change...),
	}, test)
}

func TestAGroupIsScoredOnceTheMomentItsLastMemberIs(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{"in order": {0, 1, 2, 3}, "backwards": {3, 2, 1, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &comparison{takes: 5 * time.Second}
			onCompared(t, c, func(t *testing.T, s *stage) {
				t.Helper()
				p := s.connect(t, wire.Hello{Run: "run"})
				defer p.drop()
				begun := time.Now()
				samples := fourOf("u")
				for _, i := range order {
					p.send(t, samples[i])
				}
				for i, sample := range samples {
					res := p.result(t, sample.ID)
					require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
					assert.InDelta(t, 11*i, *res.RewardScore, 1e-12)
					assert.InDelta(t, i, res.ExtraInfo["reward/own"], 1e-12)
					assert.InDelta(t, i, res.ExtraInfo["reward/place"], 1e-12)
					assert.Equal(t, 1, res.Attempts, "nothing was tried again")
					assert.InDelta(t, 1, res.ExtraInfo["rewardloop/attempts"], 0)
					require.NotNil(t, res.Group, "every result has the group's statistics")
					assert.Equal(t, 4, res.Group.Scored)
					assert.InDelta(t, 16.5, *res.Group.Mean, 1e-12)
					assert.InDelta(t, 5000, res.TimingMS["component/place"], 1)
				}
				require.Equal(t, [][]string{{"u-0", "u-1", "u-2", "u-3"}}, c.calls(), "by index, whatever came first")
				// On four places all members start at once; the slowest takes 3 s.
				assert.InDelta(t, 3*time.Second, c.at[0].Sub(begun), float64(50*time.Millisecond))
			})
		})
	}
}

func TestAMemberThatFailsIsLeftOut(t *testing.T) {
	t.Parallel()
	c := &comparison{}
	onCompared(t, c, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run", OnSampleFailure: "group_mean"})
		defer p.drop()
		samples := fourOf("u")
		samples[3].Response = "bad" // the slowest
		for _, sample := range samples {
			p.send(t, sample)
		}
		for i := range 3 {
			assert.InDelta(t, 11*i, *p.result(t, samples[i].ID).RewardScore, 1e-12)
		}
		failed := p.result(t, "u-3")
		require.Equal(t, rewards.Failed, failed.Outcome)
		require.Nil(t, failed.RewardScore)
		assert.InDelta(t, 11, *failed.Fallback.Value, 1e-12, "the mean of the others")
		assert.Equal(t, 1, failed.Group.Failed)
		require.Equal(t, [][]string{{"u-0", "u-1", "u-2"}}, c.calls())
	})
}

func TestWithoutEnoughMembersThereIsNothingToCompare(t *testing.T) {
	t.Parallel()
	c := &comparison{}
	onCompared(t, c, func(t *testing.T, s *stage) {
		t.Helper()
		var futures []*loop.Future
		for i, sample := range fourOf("u") {
			if i > 0 {
				sample.Response = "bad"
			}
			futures = append(futures, s.submit(t, "_run", sample))
		}
		alone := result(t, futures[0])
		require.Equal(t, rewards.Failed, alone.Outcome)
		require.Equal(t, rewards.NoScore, alone.Errors[0].Class)
		require.Contains(t, alone.Errors[0].Message, `group "u" has 1 of its 4 members, but "place" needs 2 to compare`)
		require.Empty(t, c.calls())
		// A sample without a group has nobody to be compared with.
		single := s.submit(t, "_run", rig.Sample("single-0", 3))
		res := result(t, single)
		require.Equal(t, rewards.BadInput, res.Errors[0].Class)
		require.Contains(t, res.Errors[0].Message, "send uid and group_size")
	})
}

// Nine tenths of its time a group waits for its members; then those who are there are
// scored, and who comes later is told so.
func TestAGroupThatIsNeverCompleteIsScoredBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	c := &comparison{}
	onCompared(t, c, func(t *testing.T, s *stage) {
		t.Helper()
		begun := time.Now()
		futures := map[string]*loop.Future{}
		for _, i := range []int{0, 2, 3} {
			sample := ofGroup("u", i, 4)
			futures[sample.ID] = s.submit(t, "_run", sample)
		}
		time.Sleep(10 * time.Second)
		pending, _ := s.Manager.Pending(10)
		require.Len(t, pending, 3)
		for _, p := range pending {
			assert.Equal(t, "waiting_for_group", p.Stage)
			assert.Contains(t, p.Waits, `its group "u", of which 3 of 4 members had arrived`)
		}
		for i, id := range []string{"u-0", "u-2", "u-3"} {
			res := result(t, futures[id])
			require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
			assert.InDelta(t, i, res.ExtraInfo["reward/place"], 1e-12)
			assert.Equal(t, 1, res.Group.Missing)
		}
		assert.InDelta(t, 54*time.Second, time.Since(begun), float64(100*time.Millisecond))
		late := result(t, s.submit(t, "_run", ofGroup("u", 1, 4)))
		require.Equal(t, rewards.Failed, late.Outcome)
		require.Equal(t, rewards.NoScore, late.Errors[0].Class)
		require.Contains(t, late.Errors[0].Message, "arrived too late")
	})
}

func TestAComponentThatWantsWholeGroupsFailsOneThatIsNot(t *testing.T) {
	t.Parallel()
	c := &comparison{}
	whole := func(_, group *rewards.Component) {
		group.MinMembers, group.Required, group.OnFailure = rewards.WholeGroup, false, rewards.ComponentPolicy{Policy: rewards.PolicyValue, Value: -1}
	}
	onCompared(t, c, func(t *testing.T, s *stage) {
		t.Helper()
		var futures []*loop.Future
		for _, i := range []int{0, 2, 3} {
			futures = append(futures, s.submit(t, "_run", ofGroup("u", i, 4)))
		}
		for i, f := range futures {
			res := result(t, f)
			require.Equal(t, rewards.Scored, res.Outcome)
			assert.InDelta(t, []float64{0, 2, 3}[i]-10, *res.RewardScore, 1e-12, "the policy of the component stands in")
			assert.Equal(t, true, res.ExtraInfo["reward/place/imputed"])
		}
		require.Empty(t, c.calls())
	}, whole)
}

func TestAnotherWorkerTakesAGroupWhoseWorkerDies(t *testing.T) {
	t.Parallel()
	c := &comparison{takes: 5 * time.Second}
	onCompared(t, c, func(t *testing.T, s *stage) {
		t.Helper()
		var futures []*loop.Future
		for _, sample := range fourOf("u") {
			futures = append(futures, s.submit(t, "_run", sample))
		}
		time.Sleep(4 * time.Second)
		pending, n := s.Manager.Pending(10)
		require.Equal(t, 4, n)
		require.Len(t, pending[0].Workers, 1)
		for _, w := range s.Workers {
			if w.ID == pending[0].Workers[0] {
				w.Kill()
			}
		}
		for i, f := range futures {
			res := result(t, f)
			require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
			assert.InDelta(t, 11*i, *res.RewardScore, 1e-12)
			assert.Equal(t, 2, res.Attempts, "the group was tried again once")
			assert.Equal(t, int64(2), res.ExtraInfo["rewardloop/attempts"])
		}
		require.Len(t, c.calls(), 2)
	})
}

func TestAGroupThatEveryWorkerFailsSaysWhy(t *testing.T) {
	t.Parallel()
	c := &comparison{fails: func(*rewards.Group, int) error {
		return rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: the judge's card is lost", rewards.Unavailable))
	}}
	onCompared(t, c, func(t *testing.T, s *stage) {
		t.Helper()
		f := s.submit(t, "_run", ofGroup("u", 0, 2))
		s.submit(t, "_run", ofGroup("u", 1, 2))
		res := result(t, f)
		require.Equal(t, rewards.Failed, res.Outcome)
		require.Equal(t, rewards.Unavailable, res.Errors[0].Class)
		require.Contains(t, res.Errors[0].Message, "the judge's card is lost")
		require.Len(t, c.calls(), 6, "two workers, each with three tries: twice max_attempts")
	})
}

func TestAGroupRecoversFromAFailureThatPasses(t *testing.T) {
	t.Parallel()
	c := &comparison{fails: func(_ *rewards.Group, call int) error {
		if call == 1 {
			return rewards.Blamed(rewards.BlameWorker, rewards.Unavailable)
		}
		return nil
	}}
	onCompared(t, c, func(t *testing.T, s *stage) {
		t.Helper()
		f := s.submit(t, "_run", ofGroup("u", 0, 2))
		s.submit(t, "_run", ofGroup("u", 1, 2))
		require.Equal(t, rewards.Scored, result(t, f).Outcome)
	})
}

func TestAPanicOrAWrongAnswerOfAGroupScorerHurtsItsGroupAlone(t *testing.T) {
	t.Parallel()
	for name, scorer := range map[string]rewards.GroupScorerFunc{
		"panic":   func(context.Context, *rewards.Group) ([]rewards.MemberScore, error) { panic("at the disco") },
		"too few": func(context.Context, *rewards.Group) ([]rewards.MemberScore, error) { return nil, nil },
		"no class": func(context.Context, *rewards.Group) ([]rewards.MemberScore, error) {
			return nil, errors.New("why not")
		},
		"overruns": func(context.Context, *rewards.Group) ([]rewards.MemberScore, error) {
			time.Sleep(40 * time.Second)
			return nil, nil
		},
		"goes away": func(context.Context, *rewards.Group) ([]rewards.MemberScore, error) {
			return nil, rewards.Skip("not today")
		},
		"not finite": notANumber,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStage(t, rig.Options{
				Workers: 1, Worker: rig.Settings{Places: 4}, Loop: loop.Config{SampleTimeout: 5 * time.Minute}, Profiles: compared(t, scorer),
			}, func(t *testing.T, s *stage) {
				t.Helper()
				f := s.submit(t, "_run", ofGroup("u", 0, 2))
				s.submit(t, "_run", ofGroup("u", 1, 2))
				res := result(t, f)
				if name == "goes away" {
					require.Equal(t, rewards.Scored, res.Outcome)
					return
				}
				require.Equal(t, rewards.Failed, res.Outcome)
				require.NotEmpty(t, res.Errors)
				require.Equal(t, "place", res.Errors[0].Component)
			})
		})
	}
}

func notANumber(_ context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
	out := make([]rewards.MemberScore, len(g.Members))
	var zero float64
	for i := range out {
		out[i].Score.Value = zero / zero
	}
	return out, nil
}

func TestMembersThatAreTakenBackAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	c := &comparison{takes: 5 * time.Second}
	onCompared(t, c, func(t *testing.T, s *stage) {
		t.Helper()
		var futures []*loop.Future
		for _, sample := range fourOf("u") {
			futures = append(futures, s.submit(t, "_run", sample))
		}
		time.Sleep(2500 * time.Millisecond)
		futures[0].Cancel("not wanted") // waits for its group
		futures[3].Cancel("not wanted") // running: with it the group is complete
		for _, i := range []int{1, 2} {
			require.Equal(t, rewards.Scored, result(t, futures[i]).Outcome)
		}
		require.Equal(t, [][]string{{"u-1", "u-2"}}, c.calls())
		require.Equal(t, rewards.OutcomeCancelled, result(t, futures[0]).Outcome)

		// A group that nobody waits for any more is nobody's work.
		var gone []*loop.Future
		for i := range 2 {
			gone = append(gone, s.submit(t, "_run", ofGroup("v", i, 2)))
		}
		time.Sleep(2 * time.Second)
		for _, f := range gone {
			f.Cancel("not wanted")
			require.Equal(t, rewards.OutcomeCancelled, result(t, f).Outcome)
		}
		require.Zero(t, s.Manager.InFlight())
	})
}

// Credit for half a group, and eight groups interleaved: samples that wait for their
// group do not use up the credit of those they wait for.
func TestInterleavedGroupsDoNotStarveEachOther(t *testing.T) {
	t.Parallel()
	const groups, size = 8, 4
	c := &comparison{}
	onStage(t, rig.Options{
		Workers: 1, Worker: rig.Settings{Places: 2}, Profiles: compared(t, c),
		Loop: loop.Config{CreditSamples: size / 2, SampleTimeout: 10 * time.Minute},
	}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		sent := int64(0)
		for i := range size {
			for g := range groups {
				for sent >= credit(p) {
					time.Sleep(100 * time.Millisecond) // a deadlock here ends the test
				}
				p.send(t, ofGroup(fmt.Sprint("g", g), i, size))
				sent++
			}
		}
		for g := range groups {
			for i := range size {
				require.Equal(t, rewards.Scored, p.result(t, fmt.Sprintf("g%d-%d", g, i)).Outcome)
			}
		}
		require.Len(t, c.calls(), groups)
	})
}

// credit is how many samples the peer may have sent.
func credit(p *peer) int64 {
	total := p.welcome().Credit.Samples
	for _, c := range got[*wire.Credit](p) {
		total = max(total, c.Samples)
	}
	return total
}

// Memory for eleven frames, and groups of four interleaved: the oldest ends by name, and
// the others go on.
func TestMemoryFullOfHalfGroupsEndsTheOldest(t *testing.T) {
	t.Parallel()
	const groups, size = 8, 4
	c := &comparison{}
	frame := frameSizeOf(t, ofGroup("g0", 0, size))
	onStage(t, rig.Options{
		Workers: 1, Worker: rig.Settings{Places: 2}, Profiles: compared(t, c),
		Loop: loop.Config{
			CreditSamples: 64, CreditBytes: 2 * frame, MessageBytes: 2 * frame, MaxBytes: 15 * frame, SampleTimeout: 10 * time.Minute,
		},
	}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		var bytes int64
		begun := time.Now()
		for i := range size {
			for g := range groups {
				sample := ofGroup(fmt.Sprint("g", g), i, size)
				for bytes+frameSizeOf(t, sample) > creditBytes(p) {
					s.Manager.Want(p.session, frame)
					time.Sleep(100 * time.Millisecond)
				}
				bytes += frameSizeOf(t, sample)
				p.send(t, sample)
			}
		}
		require.Less(t, time.Since(begun), 5*time.Minute, "nobody waited for a deadline")
		ended, full := map[rewards.Outcome]int{}, 0
		for g := range groups {
			for i := range size {
				res := p.result(t, fmt.Sprintf("g%d-%d", g, i))
				ended[res.Outcome]++
				if res.Outcome == rewards.Failed {
					require.Contains(t, []rewards.Class{rewards.TooLarge, rewards.NoScore}, res.Errors[0].Class)
					if res.Errors[0].Class == rewards.TooLarge {
						require.Contains(t, res.Errors[0].Message, "send one group after the other, or raise loop.max_bytes")
						full++
					}
				}
			}
		}
		require.Positive(t, full)
		require.Positive(t, ended[rewards.Scored])
		require.Len(t, ended, 2)
	})
}

func creditBytes(p *peer) int64 {
	total := p.welcome().Credit.Bytes
	for _, c := range got[*wire.Credit](p) {
		total = max(total, c.Bytes)
	}
	return total
}

func frameSizeOf(t *testing.T, s *rewards.Sample) int64 {
	t.Helper()
	msg, err := wire.Encode(s, wire.Options{})
	require.NoError(t, err)
	return msg.Size()
}

func TestAGroupThatCannotFitIsRefusedByName(t *testing.T) {
	t.Parallel()
	c := &comparison{}
	frame := frameSizeOf(t, ofGroup("g0", 0, 100))
	onStage(t, rig.Options{
		Workers: 1, Worker: rig.Settings{Places: 2}, Profiles: compared(t, c),
		Loop: loop.Config{CreditBytes: 2 * frame, MessageBytes: 2 * frame, MaxBytes: 15 * frame, GroupProfiles: []string{""}},
	}, func(t *testing.T, s *stage) {
		t.Helper()
		_, err := s.Manager.Submit(t.Context(), loop.Submission{Run: "_run", Sample: ofGroup("u", 0, 100)})
		require.ErrorIs(t, err, rewards.TooLarge)
		require.ErrorContains(t, err, `the 100 members of group "u"`)
		require.ErrorContains(t, err, "loop.max_bytes")
	})
}

func TestAClientThatComesBackFindsItsGroups(t *testing.T) {
	t.Parallel()
	c := &comparison{takes: 5 * time.Second}
	onCompared(t, c, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		samples := fourOf("u")
		for _, sample := range samples[:3] {
			p.send(t, sample)
		}
		time.Sleep(5 * time.Second) // all three wait for their group
		p.drop()
		again := s.resume(t, p, wire.Hello{Run: "run"}, 0)
		defer again.drop()
		for _, sample := range samples {
			again.send(t, sample)
		}
		for i, sample := range samples {
			assert.InDelta(t, 11*i, *again.result(t, sample.ID).RewardScore, 1e-12)
		}
		require.Len(t, c.calls(), 1)
	})
}

func TestARestartedTrainerLeavesNoHalfGroups(t *testing.T) {
	t.Parallel()
	c := &comparison{takes: 5 * time.Second}
	onCompared(t, c, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		for i, sample := range append(fourOf("u"), fourOf("v")...) {
			if i != 6 {
				p.send(t, sample)
			}
		}
		time.Sleep(12 * time.Second) // u is being scored or was, v waits
		p.drop()
		again := s.connect(t, wire.Hello{Run: "run"})
		defer again.drop()
		for i, sample := range fourOf("v") {
			again.send(t, sample)
			_ = i
		}
		for i := range 4 {
			assert.InDelta(t, 11*i, *again.result(t, fmt.Sprintf("v-%d", i)).RewardScore, 1e-12)
		}
	})
}

// A trainer that starts anew while the ticket of a group is on its way leaves nothing
// behind, in whatever order the table of what is in flight is gone through.
func TestARestartedTrainerLeavesNoTicketOfAGroup(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Profiles: compared(t, &comparison{})}, func(t *testing.T, s *stage) {
		t.Helper()
		w := s.stub(t, "w")
		defer w.release()
		const restarts = 30
		for range restarts {
			p := s.connect(t, wire.Hello{Run: "run"})
			for _, sample := range fourOf("u") {
				p.send(t, sample)
			}
			for range 4 {
				w.gather(t, w.claim(t))
			}
			synctest.Wait() // the group's ticket is out
			p.drop()
		}
		s.connect(t, wire.Hello{Run: "run"}).drop()
		require.Zero(t, s.Manager.InFlight())
		require.NoError(t, s.Manager.Audit(0))
		require.InDelta(t, 4*restarts, s.Manager.Outcomes(rewards.OutcomeCancelled), 0, "a group's own entry is no sample")
	})
}

// Whatever order members come in, whoever fails, is late, is taken back or never comes,
// and whichever worker dies: each sample has one final result before its deadline, a
// group is compared without duplicates, and nothing is left behind.
func TestGroupsEndWhateverHappensToTheirMembers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 6)) //nolint:gosec // a history that can be repeated
			c := &comparison{takes: time.Duration(r.IntN(8)) * time.Second, fails: func(g *rewards.Group, call int) error {
				if call%5 == 3 {
					return rewards.Blamed(rewards.Blames()[call/5%len(rewards.Blames())], rewards.Unavailable)
				}
				return nil
			}}
			onStage(t, rig.Options{
				Workers: 3, Worker: rig.Settings{Places: 1 + r.IntN(3)}, Profiles: compared(t, c),
				Loop: loop.Config{SampleTimeout: time.Minute, ClaimTimeout: 25 * time.Second},
			}, func(t *testing.T, s *stage) {
				t.Helper()
				groupHistory(t, s, r, c)
			})
		})
	}
}

func groupHistory(t *testing.T, s *stage, r *rand.Rand, c *comparison) {
	t.Helper()
	var samples []*rewards.Sample
	for g := range 2 + r.IntN(5) {
		n := 2 + r.IntN(5)
		for i := range n {
			sample := ofGroup(fmt.Sprint("g", g), i, n)
			switch r.IntN(10) {
			case 0:
				continue // never comes
			case 1:
				sample.Response = "bad"
			}
			samples = append(samples, sample)
		}
	}
	r.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
	futures := make([]*loop.Future, len(samples))
	for i, sample := range samples {
		futures[i] = s.submit(t, "_run", sample)
		time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		if r.IntN(12) == 0 {
			futures[r.IntN(i+1)].Cancel("not wanted")
		}
		if r.IntN(25) == 0 {
			s.Workers[r.IntN(len(s.Workers))].Kill()
			s.Replace(fmt.Sprint("more", i))
		}
	}
	end := time.Now().Add(time.Minute)
	for i, f := range futures {
		res := result(t, f)
		require.False(t, time.Now().After(end.Add(time.Second)), "a result after its deadline")
		if res.Outcome == rewards.Scored {
			require.NotNil(t, res.RewardScore)
			require.NotNil(t, res.Group)
			own := float64(samples[i].ID[len(samples[i].ID)-1] - '0')
			require.InDelta(t, own, res.ExtraInfo["reward/own"], 1e-12, "a score belongs to its sample")
		}
	}
	synctest.Wait()
	require.Zero(t, s.Manager.InFlight())
	for _, ids := range c.calls() {
		require.Len(t, slices.Compact(slices.Clone(ids)), len(ids))
	}
}
