package trainer_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/examples/trainer_modes/stub"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// ideal is a reward loop without any overhead and with as many servers as there are
// samples.
type ideal struct {
	// refuse refuses a sample, lose never scores one; nil: none.
	refuse, lose func(id string) bool

	mu    sync.Mutex
	steps map[int64]*idealStep // guarded by mu
	news  chan struct{}        // closed and made anew with every score; guarded by mu
}

type idealStep struct {
	declared wire.Step
	members  map[string][]*rewards.Sample // by uid, those that are scored
	complete []string                     // uids, in order of completion
	given    map[string]bool
	samples  int
}

func newIdeal() *ideal { return &ideal{steps: map[int64]*idealStep{}, news: make(chan struct{})} }

func (l *ideal) Declare(s wire.Step) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.steps[s.Step] != nil {
		return errors.New("the step was declared before")
	}
	l.steps[s.Step] = &idealStep{declared: s, members: map[string][]*rewards.Sample{}, given: map[string]bool{}}
	return nil
}

func (l *ideal) Submit(_ context.Context, s *rewards.Sample, _ time.Duration) (*client.Future, error) {
	if l.refuse != nil && l.refuse(s.ID) {
		return nil, errors.New("refused")
	}
	if l.lose != nil && l.lose(s.ID) {
		return nil, nil
	}
	var truth stub.Truth
	if err := json.Unmarshal(s.GroundTruth, &truth); err != nil {
		return nil, err
	}
	time.AfterFunc(time.Duration(truth.WaitMS*float64(time.Millisecond)), func() { l.score(s) })
	return nil, nil
}

func (l *ideal) score(s *rewards.Sample) {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.steps[s.Step]
	st.members[s.UID] = append(st.members[s.UID], s)
	st.samples++
	if len(st.members[s.UID]) == s.GroupSize {
		st.complete = append(st.complete, s.UID)
	}
	close(l.news)
	l.news = make(chan struct{})
}

func (l *ideal) Chunks(ctx context.Context, t wire.Fetch) iter.Seq2[*wire.Rewards, error] {
	return func(yield func(*wire.Rewards, error) bool) {
		for {
			l.mu.Lock()
			res, news := l.next(t), l.news
			l.mu.Unlock()
			if res == nil {
				select {
				case <-news:
				case <-ctx.Done():
					yield(nil, ctx.Err())
					return
				}
				continue
			}
			if !yield(res, nil) || res.Done {
				return
			}
			t.Chunk++
		}
	}
}

// next is a chunk if its groups are complete. The caller holds mu.
func (l *ideal) next(t wire.Fetch) *wire.Rewards {
	st := l.steps[t.Step]
	total := int(st.declared.Expected)
	var ready []string
	for _, uid := range st.complete {
		if !st.given[uid] {
			ready = append(ready, uid)
		}
	}
	want := int(t.Groups)
	switch {
	case want == 0 && st.samples < total, len(ready) < want:
		return nil
	case want == 0:
		want = len(ready)
	}
	res := &wire.Rewards{Step: t.Step, Chunk: t.Chunk, State: wire.StepOpen, Ready: true}
	var rows []*rewards.Sample
	for _, uid := range ready[:want] {
		st.given[uid] = true
		rows = append(rows, st.members[uid]...)
	}
	slices.SortFunc(rows, func(a, b *rewards.Sample) int { return int(*a.Index - *b.Index) })
	for _, s := range rows {
		v, err := stub.Score(s.Response)
		res.IDs, res.Valid, res.Scores = append(res.IDs, s.ID), append(res.Valid, err == nil), append(res.Scores, &v)
	}
	if st.samples == total && len(ready) == want {
		res.Done, res.State = true, wire.StepComplete
	}
	return res
}
