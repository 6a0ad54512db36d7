package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// lineGroups is the issue's.
const lineGroups = "group scoring starts the moment the last member is scored: added latency ≤ 5 ms at 1,000 groups in flight"

// The load: every group's members are in flight at once, and are scored at random
// moments of the window.
const (
	groupsInFlight = 1000
	groupMembers   = 4
	groupWindow    = 4 * time.Second
)

// inGroups is how long a complete group waits for its scorer.
func inGroups() Suite {
	return Suite{
		Name: "groups",
		About: "1,000 prompt groups of four in flight: each member is scored alone at a random moment within 4 s, and then its group as a whole, by a " +
			"scorer that only looks at the clock. Latency is from the moment that the last member's own score was ready to the moment the group's scorer began: " +
			"result, queue, ticket, claim of four frames.",
		Experiments: []Experiment{{
			Name: "groups", Setup: newGroupTrial,
			Rows: []Row{
				{
					Name: "added-latency", Issue: lineGroups, Unit: "ms", Value: reading("p50_ms"), Target: atMost(5),
					Beside: []string{"p99_ms", "most_ms", "cpu_ms", othersCores},
				},
				{Name: "p99", Unit: "ms", Value: reading("p99_ms")},
			},
		}},
	}
}

// groupTrial is a node whose scorers note when they were called.
type groupTrial struct {
	node   *node
	groups int
	window time.Duration
	rounds int64 // each is a step of its own: a repetition may be measured again

	mu    sync.Mutex
	ready map[string]time.Time // guarded by mu; when the last member's own score was there, by uid
	begun map[string]time.Time // guarded by mu; when the group's scorer was called
	waits map[string]time.Duration
}

func newGroupTrial(ctx context.Context, o Options) (_ Trial, err error) {
	t := &groupTrial{groups: groupsInFlight, window: groupWindow}
	if o.Quick {
		t.groups, t.window = groupsInFlight/20, groupWindow/8
	}
	own := rewards.ScorerFunc(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		select {
		case <-time.After(t.waitOf(s.ID)):
		case <-ctx.Done():
			return rewards.Score{}, ctx.Err()
		}
		t.mu.Lock()
		t.ready[s.UID] = time.Now()
		t.mu.Unlock()
		return rewards.Score{Value: 1}, nil
	})
	group := rewards.GroupScorerFunc(func(_ context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
		t.mu.Lock()
		t.begun[g.UID] = time.Now()
		t.mu.Unlock()
		return make([]rewards.MemberScore, len(g.Members)), nil
	})
	t.node, err = newNode(ctx, nodeConfig{
		workers: 8, places: 2 * t.groups * groupMembers / 8, lanes: 4,
		profile: rewards.ManagerConfig{Components: []rewards.Component{
			{Key: "own", Weight: 1, Required: true, Scorer: own}, {Key: "group", Weight: 1, Required: true, Group: group},
		}},
	})
	return t, err
}

func (t *groupTrial) waitOf(id string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waits[id]
}

// Measure implements Trial.
func (t *groupTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	ctx, cancel := context.WithTimeout(ctx, t.window+overtime)
	defer cancel()
	draw := rand.New(rand.NewPCG(7, uint64(rep))) //nolint:gosec // the same moments in every run
	t.rounds++
	t.mu.Lock()
	t.ready, t.begun, t.waits = map[string]time.Time{}, map[string]time.Time{}, map[string]time.Duration{}
	var samples []rewards.Sample
	for g := range t.groups {
		for i := range groupMembers {
			id := fmt.Sprintf("%d-%d-%d", t.rounds, g, i)
			t.waits[id] = t.window/4 + time.Duration(draw.Int64N(int64(t.window)))
			samples = append(samples, rewards.Sample{ID: id, UID: strconv.Itoa(g), GroupSize: groupMembers, Step: t.rounds})
		}
	}
	t.mu.Unlock()
	before, start := used(), time.Now()
	errs := make([]error, len(samples))
	var wg sync.WaitGroup
	for i := range samples {
		wg.Go(func() { errs[i] = t.node.send(ctx, i%len(t.node.clients), samples[i]) })
	}
	wg.Wait()
	o := outcome{took: time.Since(start), used: used().since(before)}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.begun) != t.groups {
		return nil, fmt.Errorf("%d groups were scored, not %d", len(t.begun), t.groups)
	}
	var added []float64
	for uid, at := range t.begun {
		added = append(added, at.Sub(t.ready[uid]).Seconds()*1e3)
	}
	slices.Sort(added)
	return Readings{
		"p50_ms": added[len(added)/2], "p99_ms": added[len(added)*99/100], "most_ms": added[len(added)-1],
		"cpu_ms": o.used.cpu.Seconds() * 1e3 / float64(len(samples)), othersCores: o.others(),
	}, nil
}

// Close implements Trial.
func (t *groupTrial) Close() error {
	if t.node == nil {
		return nil
	}
	return t.node.Close()
}
