package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 10 * time.Second
	barWidth  = 24
	// maxComplaints is how many samples that failed are named on stderr; the output
	// names them all. Rejected lines are all named: somebody has to mend them.
	maxComplaints = 20
	// maxGroups bounds the prompt groups that are looked at for their spread at a time.
	maxGroups = 1 << 18
	// patience is how long one line may keep the others waiting before it is named.
	patience = 5 * time.Second
)

// progress says on stderr how a run goes: a bar on a terminal, else a line now and
// then, and a summary. It is the log's writer, so that the two do not mix.
type progress struct {
	out   io.Writer
	bar   bool
	every time.Duration

	mu       sync.Mutex // guards everything below
	drawn    bool       // the bar is on the terminal's line
	begun    time.Time
	size     int64 // of the input in bytes; 0: unknown
	end      int64 // of the input that is answered
	count    int   // lines answered
	lines    int   // lines read
	sum      float64
	outcomes map[rewards.Outcome]int
	classes  map[rewards.Class]int
	waiting  *item
	since    time.Time
	groups   map[groupName]*spread
	closed   int // groups of which all members are answered
	flat     int // of those, without any spread
	figures  figures
}

// spread is what is known of an open group.
type spread struct {
	seen, scored int
	low, high    float64
}

// newProgress shows a bar if stderr is a terminal and the scores do not go to one.
func newProgress(e *env, toStdout bool) *progress {
	p := &progress{
		out: e.stderr, bar: isTerminal(e.stderr) && (!toStdout || !isTerminal(e.stdout)), every: lineEvery, begun: time.Now(),
		outcomes: map[rewards.Outcome]int{}, classes: map[rewards.Class]int{}, groups: map[groupName]*spread{},
	}
	if p.bar {
		p.every = barEvery
	}
	return p
}

// total is called when scoring begins.
func (p *progress) total(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun, p.size = time.Now(), bytes
}

// run draws until ctx ends.
func (p *progress) run(ctx context.Context) {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.draw()
		case <-ctx.Done():
			return
		}
	}
}

func (p *progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.bar {
		fmt.Fprintln(p.out, p.state())
		return
	}
	p.erase()
	fmt.Fprint(p.out, p.state())
	p.drawn = true
}

// erase takes the bar away. The caller holds mu.
func (p *progress) erase() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.drawn = false
	}
}

// state is the bar, or the line. The caller holds mu.
func (p *progress) state() string {
	took := time.Since(p.begun)
	var b strings.Builder
	if p.size > 0 {
		f := min(float64(p.end)/float64(p.size), 1)
		if p.bar {
			n := int(f * barWidth)
			fmt.Fprintf(&b, "[%s%s] ", strings.Repeat("=", n), strings.Repeat(" ", barWidth-n))
		}
		fmt.Fprintf(&b, "%3.0f %%  ", 100*f)
	}
	fmt.Fprintf(&b, "%d of %d lines read, %.1f/s", p.count, p.lines, p.rate())
	if n := p.count - p.outcomes[rewards.Scored]; n > 0 {
		fmt.Fprintf(&b, ", %d not scored", n)
	}
	if p.size > 0 && p.end > 0 {
		left := took.Seconds() * float64(max(p.size-p.end, 0)) / float64(p.end)
		fmt.Fprintf(&b, ", about %v left", time.Duration(left*float64(time.Second)).Round(time.Second))
	}
	if late := time.Since(p.since); p.waiting != nil && late > patience {
		fmt.Fprintf(&b, "; for %v waiting for line %d (%s)", late.Round(time.Second), p.waiting.number, clip(p.waiting.id))
	}
	return b.String()
}

// rate is in samples per second. The caller holds mu.
func (p *progress) rate() float64 {
	return float64(p.count) / max(time.Since(p.begun).Seconds(), 1e-3)
}

// Write implements io.Writer for whole lines of a log.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	return p.out.Write(b)
}

// read notes that a line was read.
func (p *progress) read(*item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines++
}

// waits notes which line the writer waits for.
func (p *progress) waits(it *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting, p.since = it, time.Now()
}

// done notes how a line ended.
func (p *progress) done(it *item, r *outputLine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = nil
	p.count++
	p.end = it.end
	p.outcomes[r.Outcome]++
	if r.Outcome == rewards.Scored && r.RewardScore != nil {
		p.sum += *r.RewardScore
		p.figures.add(r)
	} else {
		p.complain(it, r)
	}
	if it.size > 0 {
		p.member(it, r)
	}
}

// complain names a sample that was not scored. The caller holds mu.
func (p *progress) complain(it *item, r *outputLine) {
	why := rewards.ComponentError{Class: "none", Message: "no reason was given"}
	if len(r.Errors) > 0 {
		why = r.Errors[0]
	}
	p.classes[why.Class]++
	rejected := p.outcomes[rewards.Rejected]
	if r.Outcome != rewards.Rejected {
		if n := p.count - p.outcomes[rewards.Scored] - rejected; n > maxComplaints {
			if n == maxComplaints+1 {
				p.erase()
				fmt.Fprintln(p.out, "further samples that were not scored are named in the output only")
			}
			return
		}
	}
	p.erase()
	at := strings.TrimPrefix(strings.TrimSpace(why.Message), fmt.Sprintf("line %d: ", it.number)) // of a rejected line
	fmt.Fprintf(p.out, "line %d (%s): %s: %s\n", it.number, clip(it.id), r.Outcome, at)
}

// member follows the spread of a group's rewards. The caller holds mu.
func (p *progress) member(it *item, r *outputLine) {
	g := p.groups[it.group]
	if g == nil {
		if len(p.groups) >= maxGroups {
			return
		}
		g = &spread{}
		p.groups[it.group] = g
	}
	if g.seen++; r.RewardScore != nil {
		if g.scored++; g.scored == 1 {
			g.low, g.high = *r.RewardScore, *r.RewardScore
		}
		g.low, g.high = min(g.low, *r.RewardScore), max(g.high, *r.RewardScore)
	}
	if g.seen >= it.size {
		p.closeGroup(it.group, g)
	}
}

func (p *progress) closeGroup(name groupName, g *spread) {
	delete(p.groups, name)
	p.closed++
	if g.scored > 1 && g.low == g.high {
		p.flat++
	}
}

// flatOpen is how many groups that are not complete have no spread so far. The caller holds mu.
func (p *progress) flatOpen() int {
	n := 0
	for _, g := range p.groups {
		if g.scored > 1 && g.low == g.high {
			n++
		}
	}
	return n
}

func (p *progress) allScored() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count == p.outcomes[rewards.Scored]
}

// summary says what came of it.
func (p *progress) summary() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	scored := p.outcomes[rewards.Scored]
	fmt.Fprintf(p.out, "scored %d of %d samples in %.1f s (%.1f/s)", scored, p.count, time.Since(p.begun).Seconds(), p.rate())
	if scored > 0 {
		fmt.Fprintf(p.out, ", mean reward %.6g", p.sum/float64(scored))
	}
	fmt.Fprintln(p.out)
	if scored < p.count {
		fmt.Fprintf(p.out, "not scored: %s\n", strings.Join(p.losses(), ", "))
	}
	incomplete := len(p.groups)
	for name, g := range p.groups {
		p.closeGroup(name, g)
	}
	if p.closed > 0 {
		fmt.Fprintf(p.out, "groups: %d, %d of them with zero std (all members got the same reward: no signal for training)", p.closed, p.flat)
		if incomplete > 0 {
			fmt.Fprintf(p.out, ", %d with fewer members in the input than their group_size", incomplete)
		}
		fmt.Fprintln(p.out)
	}
	if p.bar { // for people; a log has the lines above
		fmt.Fprint(p.out, p.figures.String())
	}
}

// losses are the outcomes other than scored, and the classes of their errors.
func (p *progress) losses() []string {
	var out []string
	for _, o := range slices.Sorted(maps.Keys(p.outcomes)) {
		if o != rewards.Scored {
			out = append(out, fmt.Sprintf("%d %s", p.outcomes[o], o))
		}
	}
	classes := slices.SortedFunc(maps.Keys(p.classes), func(a, b rewards.Class) int {
		return cmp.Or(p.classes[b]-p.classes[a], strings.Compare(string(a), string(b)))
	})
	parts := make([]string, len(classes))
	for i, c := range classes {
		parts[i] = fmt.Sprintf("%s %d", c, p.classes[c])
	}
	return append(out, "by reason: "+strings.Join(parts, ", "))
}
