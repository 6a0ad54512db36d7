package rewards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// GroupScorer is a reward function for a whole prompt group, for example one that compares the
// members (pairwise, listwise) or ranks them.
//
// ScoreGroup returns one MemberScore for each member, in the order of the members, or an error for
// the whole group. The rules of Scorer.Score apply. The result must depend only on the members and
// not on the order of their arrival; Group.Members is already sorted.
type GroupScorer interface {
	ScoreGroup(ctx context.Context, g *Group) ([]MemberScore, error)
}

// GroupScorerFunc adapts a function to GroupScorer.
type GroupScorerFunc func(ctx context.Context, g *Group) ([]MemberScore, error)

// ScoreGroup calls f.
func (f GroupScorerFunc) ScoreGroup(ctx context.Context, g *Group) ([]MemberScore, error) {
	return f(ctx, g)
}

// Group is a prompt group whose members have been scored by every component that scores single
// samples. It is read-only.
type Group struct {
	UID   string
	Run   string
	Split Split
	Step  int64
	// Size is the number of members that the trainer declared. Missing is how many of them are not
	// in Members, because they never arrived, failed, or were withdrawn.
	Size, Missing int
	// Absent contains what is known about missing members, by their ids: AbsentLate or
	// AbsentFailed. A member that never arrived is not in the map.
	Absent map[string]string
	// LastMeanStd is the mean of the (population) standard deviations of the rewards within the
	// groups of the latest earlier step of the same run and split that had ended when this group
	// was complete. It is nil if there is no such step.
	LastMeanStd *float64
	// Members is sorted by Index, then by ID. There is at least one member.
	Members []Member
}

// Member is one sample of a Group.
type Member struct {
	Sample *Sample
	// Values holds the values of the other components for the sample, by component key, without the
	// components that failed or were skipped.
	Values map[string]float64
	// Failed holds the class of failure of each component that failed for the sample, by component
	// key.
	Failed map[string]Class
}

// The values of Group.Absent: why a sample is missing in its group.
const (
	AbsentLate   = "late"   // the sample's own components had not ended when the group was scored
	AbsentFailed = "failed" // the sample failed or was withdrawn
)

// MemberScore is the result of a GroupScorer for one member: a Score, or an Err, which is
// Skip(reason) or wraps a Class.
type MemberScore struct {
	Score Score
	Err   error
}

// GroupMember is a sample that waits for its group, with the results of its own components.
type GroupMember struct {
	Sample *Sample
	// Components is the Result.Partial of the sample's Run.
	Components []ComponentResult
}

// GroupRun is the scoring of one group by a Manager.
type GroupRun struct {
	// Results has one result for each member that was passed to RunGroup, in the same order. The
	// results do not change any more.
	Results []Result
	done    chan struct{}
}

// Done returns a channel that is closed when every goroutine of the run has returned. Until then
// the samples and their bytes must not change.
func (r *GroupRun) Done() <-chan struct{} { return r.done }

// Grouped reports whether a component scores whole groups. The samples of such a profile wait for
// their group, and have no score without one.
func (m *Manager) Grouped() bool {
	return slices.ContainsFunc(m.cfg.Components, func(t Component) bool { return t.Group != nil })
}

// RunGroup finishes the members of a group. It runs the components that score whole groups at the
// same time, each within its timeout, and then computes the result of every member from the
// member's components, as Run does for a single sample. size is the group_size of the samples,
// lastMeanStd is Group.LastMeanStd. If ctx ends first, the outcomes are cancelled.
func (m *Manager) RunGroup(ctx context.Context, members []GroupMember, size int, lastMeanStd *float64, opts ...RunOption) *GroupRun {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run := &GroupRun{done: make(chan struct{})}
	p := m.newPass(run.done, opts)
	defer p.close()
	p.endComponents(func(_ int, t *Component) bool { return t.Group == nil })
	p.end(len(m.cfg.Components))
	run.Results = m.runGroup(p.context(ctx), p, members, size, lastMeanStd)
	return run
}

// runGroup runs the components that look at groups, as part of a pass.
func (m *Manager) runGroup(ctx context.Context, p *pass, members []GroupMember, size int, lastMeanStd *float64) []Result {
	members = slices.Clone(members)
	for i := range members {
		members[i].Sample = m.named(members[i].Sample)
	}
	order := inOrder(members)
	group := m.groupOf(members, order, size)
	group.LastMeanStd, group.Absent = lastMeanStd, p.absent
	results := make([]Result, len(members))
	components := m.groupComponents(members)
	p.endComponents(func(i int, t *Component) bool { return t.Group != nil && !slices.Contains(components, i) })
	answers := make(chan groupAnswer, len(components))
	clocks := newGroupClocks(m.cfg.Components, components)
	for i := range members {
		p.reads(members[i].Sample)
	}
	for _, i := range components {
		p.run(i)
		go func() { // ends with its scorer; the pass is over when all have
			t := &m.cfg.Components[i]
			a := groupAnswer{i, allFailed(t, len(members), fmt.Errorf("%w: the scorer ended its goroutine (runtime.Goexit)", Panicked))}
			defer func() {
				p.end(i)
				answers <- a
				p.leave()
			}()
			a.results = m.scoreGroup(ctx, clocks.of[i], t, group)
		}()
	}
	said := m.collectGroup(ctx, clocks, answers, len(members))
	all := make([][]ComponentResult, len(members))
	var awaited *ComponentResult
	for at, i := range order {
		if said == nil {
			results[i] = Result{Outcome: OutcomeCancelled}
			continue
		}
		own := slices.Clone(members[i].Components)
		for component, answered := range said {
			if own[component].Status == StatusWaiting {
				own[component] = answered[at]
			}
		}
		all[i] = own
		if why := m.awaited(members[i].Sample, own); p.returns && why != nil && awaited == nil {
			awaited = why
		}
	}
	for i, own := range all {
		switch {
		case own == nil:
		case awaited != nil: // a group waits as one
			results[i] = returned(own, awaited)
		default:
			results[i] = m.decide(members[i].Sample, own, false)
		}
	}
	return results
}

// groupAnswer is what a component's goroutine sends, once: results in the group's order.
type groupAnswer struct {
	component int
	results   []ComponentResult
}

// inOrder lists the members by Index, then by ID.
func inOrder(members []GroupMember) []int {
	order := make([]int, len(members))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := members[a].Sample, members[b].Sample
		switch {
		case x.Index != nil && y.Index == nil:
			return -1
		case x.Index == nil && y.Index != nil:
			return 1
		case x.Index != nil:
			if c := cmp.Compare(*x.Index, *y.Index); c != 0 {
				return c
			}
		}
		return strings.Compare(x.ID, y.ID)
	})
	return order
}

func (m *Manager) groupOf(members []GroupMember, order []int, size int) *Group {
	first := members[order[0]].Sample
	g := &Group{UID: first.UID, Run: first.Run, Split: first.Split, Step: first.Step, Size: size, Missing: max(size-len(members), 0)}
	for _, i := range order {
		values, failed := map[string]float64{}, map[string]Class{}
		for _, t := range members[i].Components {
			switch t.Status {
			case StatusOK:
				values[t.Key] = t.Value
			case StatusFailed:
				failed[t.Key] = t.Class
			}
		}
		g.Members = append(g.Members, Member{members[i].Sample, values, failed})
	}
	return g
}

// groupComponents are the components that any member waits for.
func (m *Manager) groupComponents(members []GroupMember) []int {
	var components []int
	for i := range m.cfg.Components {
		if slices.ContainsFunc(members, func(g GroupMember) bool { return g.Components[i].Status == StatusWaiting }) {
			components = append(components, i)
		}
	}
	return components
}

// groupClocks are the clocks of the components that look at a group, by their place.
type groupClocks struct {
	of    map[int]*clock
	began chan struct{} // capacity 1: one has started
}

func newGroupClocks(all []Component, components []int) *groupClocks {
	g := &groupClocks{of: make(map[int]*clock, len(components)), began: make(chan struct{}, 1)}
	for _, i := range components {
		g.of[i] = &clock{timeout: all[i].Timeout, told: func() {
			select {
			case g.began <- struct{}{}:
			default:
			}
		}}
	}
	return g
}

// collectGroup waits for all answers, or for the deadlines of those that do not come;
// nil if ctx ended first.
func (m *Manager) collectGroup(ctx context.Context, clocks *groupClocks, answers <-chan groupAnswer, n int) map[int][]ComponentResult {
	said := make(map[int][]ComponentResult, len(clocks.of))
	for len(said) < len(clocks.of) {
		next := time.Duration(1<<63 - 1)
		for i, clock := range clocks.of {
			if over, begun := clock.over(); begun && said[i] == nil {
				next = min(next, time.Until(over)+grace)
			}
		}
		timer := time.NewTimer(max(next, 0))
		select {
		case a := <-answers:
			if said[a.component] == nil {
				said[a.component] = a.results
			}
		case <-clocks.began:
		case <-timer.C:
			for len(answers) > 0 { // those that came in time lie unread
				if a := <-answers; said[a.component] == nil {
					said[a.component] = a.results
				}
			}
			for i, clock := range clocks.of {
				t := &m.cfg.Components[i]
				if over, begun := clock.over(); begun && said[i] == nil && time.Since(over) >= grace {
					said[i] = allFailed(t, n, fmt.Errorf("%w: the scorer did not return within %v and ignored its context", Timeout, t.Timeout))
				}
			}
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
	if ctx.Err() != nil {
		return nil
	}
	return said
}

// allFailed is the same failure for every member.
func allFailed(t *Component, n int, err error) []ComponentResult {
	blame, permanent := BlameOf(err)
	out := make([]ComponentResult, n)
	for i := range out {
		out[i] = ComponentResult{
			Key: t.Key, Status: StatusFailed, Class: ClassOf(err), Message: tell(t.redact, MessageOf(err)),
			Blame: blame, Permanent: permanent, Waits: WaitedFor(err), Attempts: 1,
		}
	}
	return out
}

// scoreGroup runs one component to its final answer, with retries while the group as a
// whole fails for a reason that may pass.
func (m *Manager) scoreGroup(ctx context.Context, c *clock, t *Component, g *Group) []ComponentResult {
	ctx, cancel := clocked(ctx, c, t.Group)
	defer cancel()
	start := time.Now()
	least := t.least(g.Size)
	if len(g.Members) < least {
		return allFailed(t, len(g.Members), Blamed(BlameNobody, fmt.Errorf("%w: group %q has %d of its %d members, but %q needs %d to compare",
			NoScore, g.UID, len(g.Members), g.Size, t.Key, least)))
	}
	pause := m.cfg.Backoff
	for attempt := 1; ; attempt++ {
		results, err := t.attemptGroup(ctx, g)
		if err == nil {
			for i := range results {
				results[i].Attempts, results[i].Began, results[i].Took = attempt, start, time.Since(start)
			}
			return results
		}
		final := func() []ComponentResult {
			results = allFailed(t, len(g.Members), err)
			for i := range results {
				results[i].Attempts, results[i].Began, results[i].Took = attempt, start, time.Since(start)
			}
			return results
		}
		if attempt > t.Retries || !repeats(BlameOf(err)) || WaitedFor(err) != "" && Returns(ctx) || ctx.Err() != nil {
			return final()
		}
		jitter := time.Duration(rand.Int64N(int64(pause) + 1)) // a pause needs no secret randomness
		if !sleep(ctx, pause/2+jitter) {
			return final()
		}
		pause *= 2
	}
}

// least is how many members the component needs of a group of that size.
func (t *Component) least(size int) int {
	switch t.MinMembers {
	case 0:
		return 2
	case WholeGroup:
		return max(size, 1)
	}
	return t.MinMembers
}

// Dependent is implemented by a GroupScorer that uses the values of other components. A profile
// without these components is refused.
type Dependent interface {
	// DependsOn returns the keys of those components.
	DependsOn() []string
}

// attemptGroup calls the scorer once and judges what it returned; a panic in either is
// a failure.
func (t *Component) attemptGroup(ctx context.Context, g *Group) (results []ComponentResult, err error) {
	ctx, reader := withReader(ctx)
	defer reader.end()
	err = Guard(func() (err error) {
		results, err = t.scoreGroup(ctx, g)
		return err
	})
	return results, err
}

func (t *Component) scoreGroup(ctx context.Context, g *Group) ([]ComponentResult, error) {
	scores, err := t.Group.ScoreGroup(ctx, g)
	var skip *SkipError
	switch {
	case errors.As(err, &skip):
		scores = make([]MemberScore, len(g.Members))
		for i := range scores {
			scores[i].Err = err
		}
	case err != nil:
		return nil, err
	case len(scores) != len(g.Members):
		return nil, fmt.Errorf("%w: the scorer returned %d scores for %d members", Internal, len(scores), len(g.Members))
	}
	results := make([]ComponentResult, 0, len(scores))
	for _, s := range scores {
		results = append(results, t.judge(s.Score, s.Err))
	}
	return results, nil
}
