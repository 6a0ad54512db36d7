package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/rewardloop/rewardloop/internal/distribution"
	"github.com/rewardloop/rewardloop/rewards"
)

// Column contains the statistics of one column of a step.
type Column struct {
	N      int64    `json:"n"`
	Failed int64    `json:"failed"`
	Mean   *float64 `json:"mean"`
	Std    *float64 `json:"std"` // of the population
	Min    *float64 `json:"min"`
	Max    *float64 `json:"max"`
}

// StepHistory contains the statistics of one step of a run.
type StepHistory struct {
	Step    int64  `json:"step"`
	Epoch   string `json:"epoch"`
	Samples int64  `json:"samples"`
	Scored  int64  `json:"scored"`

	Column

	// Groups is the number of prompt groups with two or more samples, ZeroStdGroups the number of those whose
	// samples all have the same reward.
	Groups        int               `json:"groups"`
	ZeroStdGroups int               `json:"zero_std_groups"`
	Components    map[string]Column `json:"components"`
	// Exposed, Rollout and Makespan are in seconds, as in StepEnd. Nil: the step has not ended.
	Exposed  *float64 `json:"exposed_s"`
	Rollout  *float64 `json:"rollout_s"`
	Makespan *float64 `json:"makespan_s"`
}

// historySteps is how many steps a history has at most, the newest ones.
const historySteps = 2000

type stepKey struct{ run, epoch, split, step int64 }

// groupCount is what the groups of a step came to when it had so many samples.
type groupCount struct {
	samples      int64
	groups, flat int
}

// History returns the newest 2,000 steps of a run, sorted by step. A repeated step has the statistics of its
// newest epoch.
func (r *Reader) History(ctx context.Context, run string, split rewards.Split) ([]*StepHistory, error) {
	id, ok, err := r.nameID(ctx, run)
	if err != nil || !ok {
		return []*StepHistory{}, err
	}
	list, err := r.db.QueryContext(ctx, `SELECT step, epoch, name, n, failed, sum, squares, least, largest FROM columns c WHERE run = ? AND split = ?
		AND epoch = (SELECT max(epoch) FROM columns o WHERE o.run = c.run AND o.split = c.split AND o.step = c.step)
		AND step > (SELECT ifnull(min(step), 0) - 1 FROM (SELECT DISTINCT step FROM columns WHERE run = ? AND split = ? ORDER BY step DESC LIMIT ?))
		ORDER BY step, name`, id, splitCode(split), id, splitCode(split), historySteps)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer list.Close()
	steps := []*StepHistory{}
	epochs := map[*StepHistory]int64{}
	for list.Next() {
		var step, epoch int64
		var name string
		var c Column
		var sum, squares float64
		if err := list.Scan(&step, &epoch, &name, &c.N, &c.Failed, &sum, &squares, &c.Min, &c.Max); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		c.finish(sum, squares)
		if len(steps) == 0 || steps[len(steps)-1].Step != step {
			st := &StepHistory{Step: step, Epoch: strconv.FormatInt(epoch, 10), Components: map[string]Column{}}
			steps, epochs[st] = append(steps, st), epoch
		}
		st := steps[len(steps)-1]
		if name == "" {
			st.Column, st.Samples, st.Scored = c, c.N+c.Failed, c.N
			continue
		}
		st.Components[name] = c
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	for _, st := range steps {
		key := stepKey{id, epochs[st], splitCode(split), st.Step}
		if err := r.addGroups(ctx, key, st); err != nil {
			return nil, err
		}
		err := r.db.QueryRowContext(ctx, "SELECT exposed, rollout, makespan FROM steps WHERE run = ? AND split = ? AND step = ? AND epoch = ?", key.run, key.split, key.step, key.epoch).
			Scan(&st.Exposed, &st.Rollout, &st.Makespan)
		if err != nil && err != sql.ErrNoRows {
			return nil, fmt.Errorf("store: %w", err)
		}
	}
	return steps, nil
}

// finish makes mean and deviation of sums.
func (c *Column) finish(sum, squares float64) {
	if c.N == 0 {
		return
	}
	mean := finite(sum) / float64(c.N)
	c.Mean = &mean
	if std := math.Sqrt(math.Max(0, squares/float64(c.N)-mean*mean)); squares < math.MaxFloat64/2 && !math.IsInf(mean*mean, 0) { // else it is not known
		c.Std = &std
	}
}

// addGroups counts the groups of a step, once for as long as no sample is added.
func (r *Reader) addGroups(ctx context.Context, key stepKey, st *StepHistory) error {
	r.mu.Lock()
	known, ok := r.steps[key]
	r.mu.Unlock()
	if !ok || known.samples != st.Samples {
		known = groupCount{samples: st.Samples}
		err := r.db.QueryRowContext(ctx, `SELECT count(*), ifnull(sum(flat), 0) FROM (SELECT min(score) = max(score) AND count(score) > 1 AS flat FROM results
			WHERE run = ? AND split = ? AND step = ? AND epoch = ? AND uid <> '' GROUP BY uid HAVING count(*) > 1)`, key.run, key.split, key.step, key.epoch).Scan(&known.groups, &known.flat)
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		r.mu.Lock()
		if len(r.steps) > 10*historySteps {
			clear(r.steps)
		}
		r.steps[key] = known
		r.mu.Unlock()
	}
	st.Groups, st.ZeroStdGroups = known.groups, known.flat
	return nil
}

func (r *Reader) nameID(ctx context.Context, name string) (id int64, ok bool, err error) {
	err = r.db.QueryRowContext(ctx, "SELECT id FROM names WHERE name = ?", name).Scan(&id)
	if err == sql.ErrNoRows {
		return 0, false, nil
	} else if err != nil {
		return 0, false, fmt.Errorf("store: %w", err)
	}
	return id, true, nil
}

// RunHistory contains the statistics of a run with rows in the store, whether the run has ended or not.
type RunHistory struct {
	Run     string          `json:"run"`
	First   time.Time       `json:"first"`
	Last    time.Time       `json:"last"`
	Samples int64           `json:"samples"`
	Failed  int64           `json:"failed"`
	Steps   int64           `json:"steps"`
	Splits  []rewards.Split `json:"splits"`
	Rewards []string        `json:"rewards"`
	Mean    *float64        `json:"mean"` // of the last training step
}

// Runs returns at most 1,000 runs, the most recent first.
func (r *Reader) Runs(ctx context.Context) ([]*RunHistory, error) {
	list, err := r.db.QueryContext(ctx, `SELECT (SELECT name FROM names WHERE id = c.run), sum(n + failed), sum(failed), count(DISTINCT step), max(last), max(split = 0), max(split = 1), c.run,
		(SELECT m.sum / m.n FROM columns m WHERE m.run = c.run AND m.split = 0 AND m.name = '' AND m.n > 0 ORDER BY m.step DESC, m.epoch DESC LIMIT 1),
		(SELECT min(o.epoch) FROM columns o WHERE o.run = c.run)
		FROM columns c WHERE name = '' GROUP BY c.run ORDER BY max(last) DESC LIMIT 1000`)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer list.Close()
	runs := []*RunHistory{}
	ids := map[*RunHistory]int64{}
	for list.Next() {
		run := &RunHistory{Rewards: []string{}}
		var last, id, first int64
		var train, val bool
		if err := list.Scan(&run.Run, &run.Samples, &run.Failed, &run.Steps, &last, &train, &val, &id, &run.Mean, &first); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		run.Last, run.First = time.UnixMicro(last).UTC(), time.UnixMicro(first).UTC()
		if train {
			run.Splits = append(run.Splits, rewards.Train)
		}
		if val {
			run.Splits = append(run.Splits, rewards.Val)
		}
		runs, ids[run] = append(runs, run), id
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	for _, run := range runs {
		names, err := r.db.QueryContext(ctx, "SELECT DISTINCT (SELECT name FROM names WHERE id = reward) FROM (SELECT reward FROM results WHERE run = ? ORDER BY split, step DESC LIMIT 1000)", ids[run])
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		for names.Next() {
			var name string
			if err = names.Scan(&name); err == nil {
				run.Rewards = append(run.Rewards, name)
			}
		}
		_ = names.Close() // read only
		slices.Sort(run.Rewards)
	}
	return runs, nil
}

// Group is one prompt group of a step.
type Group struct {
	UID     string   `json:"uid"`
	Prompt  string   `json:"prompt"`
	Size    int      `json:"size"`
	Mean    *float64 `json:"mean"`
	Std     *float64 `json:"std"`
	ZeroStd bool     `json:"zero_std"`
	Members []Member `json:"members"`
}

// Member is a sample of a group.
type Member struct {
	Key     int64           `json:"key"`
	ID      string          `json:"id"`
	Index   *int64          `json:"index"`
	Score   *float64        `json:"score"`
	Outcome rewards.Outcome `json:"outcome"`
}

// groupRows is how many rows of a step are looked at for its groups.
const groupRows = 20_000

// Groups returns the prompt groups of a step in the order of their first rows. Groups reads at most 20,000
// rows.
func (r *Reader) Groups(ctx context.Context, q Query) ([]*Group, error) {
	q.Limit = groupRows
	byUID := map[string]*Group{}
	groups := []*Group{}
	for row, err := range r.Each(ctx, q) {
		if err != nil {
			return nil, err
		}
		if row.UID == "" {
			continue
		}
		g := byUID[row.UID]
		if g == nil {
			g = &Group{UID: row.UID, Prompt: row.Prompt}
			byUID[row.UID], groups = g, append(groups, g)
		}
		g.Size = max(g.Size, row.GroupSize)
		g.Members = append(g.Members, Member{row.Key, row.ID, row.Index, row.Score, row.Outcome})
	}
	for _, g := range groups {
		c := Column{}
		var sum, squares float64
		least, largest := math.Inf(1), math.Inf(-1)
		for _, m := range g.Members {
			if m.Score != nil {
				c.N++
				sum = finite(sum + *m.Score)
				squares = finite(squares + *m.Score**m.Score)
				least, largest = min(least, *m.Score), max(largest, *m.Score)
			}
		}
		c.finish(sum, squares)
		g.Mean, g.Std, g.Size = c.Mean, c.Std, max(g.Size, len(g.Members))
		if g.ZeroStd = c.N > 1 && least == largest; g.ZeroStd {
			g.Std = new(float64)
		}
		slices.SortStableFunc(g.Members, func(a, b Member) int { return compareIndex(a.Index, b.Index) })
	}
	return groups, nil
}

func compareIndex(a, b *int64) int {
	switch {
	case a == nil || b == nil || *a == *b:
		return 0
	case *a < *b:
		return -1
	}
	return 1
}

// Histogram contains the numbers of values of a column in len(Counts) intervals of equal width from Lo to Hi.
type Histogram struct {
	Lo     float64 `json:"lo"`
	Hi     float64 `json:"hi"`
	Counts []int   `json:"counts"`
	N      int     `json:"n"`
	Failed int     `json:"failed"`
}

// histogramBins is the number of a histogram's parts.
const histogramBins = 30

// Histograms returns the histograms of the selected rows: "reward" for the reward, and one for each component
// by its key. Histograms reads at most 20,000 rows.
func (r *Reader) Histograms(ctx context.Context, q Query) (map[string]*Histogram, error) {
	q.Limit = groupRows
	values, failed := map[string]*distribution.Column{"reward": {}}, map[string]int{}
	add := func(name string, v *float64) {
		if values[name] == nil {
			values[name] = &distribution.Column{}
		}
		if v == nil {
			failed[name]++
			return
		}
		values[name].Add(*v)
	}
	for row, err := range r.Each(ctx, q) {
		if err != nil {
			return nil, err
		}
		if row.Outcome == rewards.OutcomeCancelled {
			continue
		}
		add("reward", row.Score)
		for name, v := range row.Components {
			add(name, v)
		}
	}
	out := map[string]*Histogram{}
	for name, c := range values {
		out[name] = &Histogram{Lo: c.Min(), Hi: c.Max(), Counts: c.Bins(histogramBins), N: c.Count(), Failed: failed[name]}
	}
	return out, nil
}
