package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/internal/distribution"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/store"
	"github.com/rewardloop/rewardloop/wire"
)

const replayText = `
Scores stored samples of a server again with the rewards of another
configuration, and compares the results: the correlation of the rewards, the
number of pairs in a prompt group whose order changes, and the samples whose
reward changes most. The samples are scored in this process, step by step, on
the same path as in serve.

Samples with pictures, videos or audio need their stored bytes (store.keep:
full). Samples without stored bytes are skipped and counted, and so are samples
of a named reward that the configuration does not have.

--verify expects identical rewards: replay lists every sample whose reward or
component differs in any bit, and the exit code is 1 if there is one. With
loop.deterministic: true a reward does not depend on the worker or on the other
samples in flight; the answers of a remote judge can still differ.

Exit code: 0 if every sample was compared, 1 if some samples were not compared
or --verify found a difference, 2 if the replay could not start. After Ctrl-C,
replay prints the comparison of the samples scored until then.`

const replayExample = `
rewardloop replay -c other.yaml --run my-run --steps 1-200 -o moved.jsonl
rewardloop replay -c cfg.yaml --store 8080.db --verify loop.deterministic=true`

func replayCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay -c other.yaml [key=value...]", GroupID: groupScore, DisableFlagsInUseLine: true,
		SuggestFor: []string{"rescore", "again"},
		Short:      "score stored samples with another configuration, and compare",
		Long:       replayText, Example: replayExample,
	}
	s := configFlags(e, cmd)
	f := addKeptFlags(cmd)
	var verify bool
	var output string
	cmd.Flags().BoolVar(&verify, "verify", false, "expect bit-identical rewards, and list the samples that differ")
	cmd.Flags().StringVarP(&output, "output", "o", "", "JSON lines `file` with the old and the new reward of each sample; - writes standard output")
	cmd.Args = func(_ *cobra.Command, args []string) error { return s.take(args) }
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q, accept, err := f.query()
		if err != nil {
			return wrong(err)
		}
		s.set("listen", "server.listen", "127.0.0.1:0")
		r, file, err := f.open()
		if err != nil {
			return wrong(err)
		}
		defer r.Close()
		x := &replaying{env: e, reader: r, file: file, query: q, accept: accept, verify: verify, output: output}
		return x.run(cmd.Context(), s)
	}
	return cmd
}

// replayStepTime is how long a step may take.
const replayStepTime = 24 * time.Hour

// replaying is one replay.
type replaying struct {
	env    *env
	reader *store.Reader
	file   string
	query  store.Query
	accept func(*store.Row) bool
	verify bool
	output string

	rewards  map[string]bool // that the configuration has
	compared []compared
	without  int            // samples whose bytes were not kept
	partial  int            // samples of prompt groups that are not whole
	unknown  map[string]int // samples of rewards that the configuration has not
	out      *json.Encoder
	told     time.Time // how far it has come
}

// compared is a sample that was scored twice.
type compared struct {
	Key  int64    `json:"key"`
	Run  string   `json:"run"`
	Step int64    `json:"step"`
	ID   string   `json:"id"`
	UID  string   `json:"uid"`
	Old  *float64 `json:"old"`
	New  *float64 `json:"new"`
	// The values of its components, null where one failed.
	OldComponents map[string]*float64 `json:"old_components"`
	NewComponents map[string]*float64 `json:"new_components"`
	Error         string              `json:"error,omitempty"` // why there is no new reward

	group string
}

// same reports whether reward and components are the same to the last bit.
func (c *compared) same() bool {
	equal := func(a, b *float64) bool {
		return a == nil && b == nil || a != nil && b != nil && math.Float64bits(*a) == math.Float64bits(*b)
	}
	if !equal(c.Old, c.New) || len(c.OldComponents) != len(c.NewComponents) {
		return false
	}
	for name, v := range c.OldComponents {
		if w, ok := c.NewComponents[name]; !ok || !equal(v, w) {
			return false
		}
	}
	return true
}

// moved is by how much the reward has changed; 0 where one is missing.
func (c *compared) moved() float64 {
	if c.Old == nil || c.New == nil {
		return 0
	}
	return *c.New - *c.Old
}

func (x *replaying) run(ctx context.Context, set *settings) (err error) {
	cfg, err := set.load(ctx, false)
	if err != nil {
		return wrong(err)
	}
	cfg.Server.TokenFile, cfg.Server.TLSCert, cfg.Server.TLSKey, cfg.Server.ClientCA = "", "", "", "" // nobody else is served
	cfg.Queue.URLs, cfg.Queue.Listen, cfg.Queue.Durable, cfg.Queue.Spool.Dir = nil, "", false, ""     // nothing of the server is touched
	if cfg.NumWorkers == 0 {
		return wrong(errors.New("reward.num_workers is 0, and samples are scored in this process: add reward.num_workers=8"))
	}
	// There is no trainer that waits for a step or gives its cards.
	cfg.Loop.StepTimeout, cfg.Loop.SampleTimeout, cfg.Loop.NumExamine, cfg.Pool.Colocated = replayStepTime, cfg.Loop.MaxSampleTimeout, 0, false
	x.rewards, x.unknown = map[string]bool{}, map[string]int{}
	for name := range cfg.Profiles {
		x.rewards[name] = true
	}
	log := slog.New(slog.NewTextHandler(x.env.stderr, &slog.HandlerOptions{Level: slog.LevelError, ReplaceAttr: x.env.secrets.Attr}))
	cfg.Store.Keep = store.KeepOff
	n, err := node.New(node.Options{Config: cfg, Log: log, Version: release()})
	if err != nil {
		return wrong(err)
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	if err := n.Start(ctx); err != nil {
		return failed(err)
	}
	defer n.Stop()
	addr, err := n.Listen(ctx)
	if err != nil {
		return failed(err)
	}
	done, err := x.openOutput()
	if err != nil {
		return wrong(err)
	}
	err = errors.Join(x.all(ctx, "ws://"+addr.String()), done())
	if ctx.Err() != nil {
		err = errors.New("interrupted; the comparison so far follows")
	}
	to := x.env.stdout
	if x.output == "-" {
		to = x.env.stderr
	}
	x.report(to)
	switch {
	case err != nil:
		return failed(err)
	case len(x.compared) == 0:
		return failed(fmt.Errorf("no sample of %s was compared", x.file))
	case x.without > 0 || len(x.unknown) > 0 || slices.ContainsFunc(x.compared, func(c compared) bool { return c.Error != "" }):
		return failed(errors.New("some samples were not compared"))
	case x.verify && slices.ContainsFunc(x.compared, func(c compared) bool { return !c.same() }):
		return failed(errors.New("some rewards are not the same"))
	}
	return nil
}

// openOutput begins the file of pairs.
func (x *replaying) openOutput() (done func() error, err error) {
	switch x.output {
	case "":
		x.out = json.NewEncoder(io.Discard)
		return func() error { return nil }, nil
	case "-":
		x.out = json.NewEncoder(x.env.stdout)
		return func() error { return nil }, nil
	}
	f, err := os.Create(x.output)
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriter(f)
	x.out = json.NewEncoder(w)
	return func() error { return errors.Join(w.Flush(), f.Close()) }, nil
}

// replayStep names what is sent as one step.
type replayStep struct {
	run, epoch string
	split      rewards.Split
	step       int64
}

// replaySample is a row that is to be scored again.
type replaySample struct {
	key int64
	uid string
}

// all scores every sample again, one life of a run after the other, and its steps one after the other in the order of their first
// sample: a group is never in two.
func (x *replaying) all(ctx context.Context, url string) error {
	steps := map[replayStep][]replaySample{}
	var order []replayStep
	last := map[store.SampleKey]int64{} // of samples that were sent twice the later one counts
	lives := map[string]int{}
	for row, err := range x.reader.Each(context.WithoutCancel(ctx), x.query) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !x.accept(row) || row.Outcome == rewards.OutcomeCancelled {
			continue
		}
		if !x.rewards[row.Reward] {
			x.unknown[row.Reward]++
			continue
		}
		k := replayStep{row.Run, row.Epoch, row.Split, row.Step}
		if steps[k] == nil {
			order = append(order, k)
		}
		if _, known := lives[k.life()]; !known {
			lives[k.life()] = len(lives)
		}
		steps[k] = append(steps[k], replaySample{row.Key, row.UID})
		last[row.SampleKey()] = row.Key
	}
	latest := map[int64]bool{}
	for _, key := range last {
		latest[key] = true
	}
	slices.SortStableFunc(order, func(a, b replayStep) int { return cmp.Compare(lives[a.life()], lives[b.life()]) })
	var c *client.Client
	defer func() {
		if c != nil {
			_ = c.Close() // all of its results are there, or it was interrupted
		}
	}()
	for i, k := range order {
		if i == 0 || k.life() != order[i-1].life() {
			if c != nil {
				_ = c.Close() // all of its results are there
			}
			var err error
			if c, err = client.Dial(ctx, client.Config{URL: url, Run: "replay-" + strconv.Itoa(lives[k.life()]+1)}); err != nil {
				return err
			}
		}
		samples := slices.DeleteFunc(steps[k], func(s replaySample) bool { return !latest[s.key] })
		if err := x.step(ctx, c, k, samples); err != nil {
			return err
		}
		x.progress(i+1, len(order))
	}
	return nil
}

// life names a run from one start of its trainer to the next.
func (k replayStep) life() string { return k.epoch + "/" + k.run }

// progress says how far it has come: a line that changes on a terminal, else a line now and then.
func (x *replaying) progress(done, of int) {
	line := fmt.Sprintf("%d of %d steps, %s", done, of, rewards.Count(len(x.compared), "sample"))
	switch {
	case isTerminal(x.env.stderr):
		fmt.Fprintf(x.env.stderr, "\r%s", line)
		if done == of {
			fmt.Fprintln(x.env.stderr)
		}
	case done == of || time.Since(x.told) > lineEvery:
		fmt.Fprintln(x.env.stderr, line)
		x.told = time.Now()
	}
}

// replayAhead is how many samples of a step are under way at a time, or as many as its largest group has.
const replayAhead = 512

// sent is a sample that is under way.
type sent struct {
	row    *store.Row
	future *client.Future
}

// step scores the samples of one step again, one prompt group after the other, so that no group waits for members beyond those that
// are under way.
func (x *replaying) step(ctx context.Context, c *client.Client, k replayStep, samples []replaySample) (err error) {
	groups, largest := byGroup(samples)
	var under []sent
	defer func() {
		if ctx.Err() == nil {
			return
		}
		for _, s := range under { // those that are there
			select {
			case <-s.future.Done():
				err = errors.Join(err, x.compare(context.WithoutCancel(ctx), s))
			default:
			}
		}
	}()
	wait := func(most int) error {
		for len(under) > most {
			if err := x.compare(ctx, under[0]); err != nil {
				return err
			}
			under = under[1:]
		}
		return nil
	}
	for _, keys := range groups {
		members, err := x.members(ctx, keys)
		if err != nil {
			return err
		}
		for _, m := range members {
			if err := wait(max(replayAhead, largest)); err != nil {
				return err
			}
			s := m.sample
			if s.GroupSize > len(members) && s.UID != "" {
				x.partial++
				s.GroupSize = len(members) // it does not wait for members that are left out
			}
			s.Run, s.Step, s.Split, s.Reward = "", k.step, k.split, ""
			if m.row.Reward != "default" {
				s.Reward = m.row.Reward
			}
			f, err := c.Submit(ctx, s, 0)
			if err != nil && !errors.Is(err, wire.ErrTooLarge) {
				return err
			}
			if err != nil { // this configuration takes smaller ones
				if err := x.note(m.row, nil, fmt.Sprint(err)); err != nil {
					return err
				}
				continue
			}
			under = append(under, sent{row: m.row, future: f})
		}
	}
	if err := c.EndOfStep(k.split, k.step); err != nil {
		return err
	}
	return wait(0)
}

// byGroup are the samples of a step by prompt group, in the order of the first member, and how many the largest has.
func byGroup(samples []replaySample) (groups [][]int64, largest int) {
	at := map[string]int{}
	for _, s := range samples {
		n, known := at[s.uid]
		if !known || s.uid == "" {
			n = len(groups)
			at[s.uid], groups = n, append(groups, nil)
		}
		groups[n] = append(groups[n], s.key)
		largest = max(largest, len(groups[n]))
	}
	return groups, largest
}

// compare takes the result of a sample.
func (x *replaying) compare(ctx context.Context, s sent) error {
	res, err := s.future.Wait(ctx)
	if err != nil {
		return err
	}
	reason := ""
	if res.RewardScore == nil && (s.row.Score != nil || len(res.Errors) == 0) {
		reason = string(res.Outcome)
		if len(res.Errors) > 0 {
			reason = res.Errors[0].Component + ": " + string(res.Errors[0].Class) + ": " + res.Errors[0].Message
		}
	}
	return x.note(s.row, res, reason)
}

// note takes in a sample that was scored again, or why it was not.
func (x *replaying) note(row *store.Row, res *wire.Result, reason string) error {
	one := compared{
		Key: row.Key, Run: row.Run, Step: row.Step, ID: row.ID, UID: row.UID, Old: row.Score, OldComponents: row.Components, Error: reason,
		group: fmt.Sprintf("%s/%s/%s/%d/%s", row.Epoch, row.Run, row.Split, row.Step, row.UID),
	}
	if res != nil {
		one.New, one.NewComponents = res.RewardScore, store.Components(res)
	}
	x.compared = append(x.compared, one)
	return x.out.Encode(&one)
}

// member is a sample whose bytes are kept.
type member struct {
	row    *store.Row
	sample *rewards.Sample
}

// members are those of some rows whose samples are kept whole.
func (x *replaying) members(ctx context.Context, keys []int64) (all []member, err error) {
	for _, key := range keys {
		row, sample, err := x.reader.Kept(ctx, key)
		if errors.Is(err, store.ErrNotFound) { // not kept, or deleted since by the server
			x.without++
			continue
		} else if err != nil {
			return nil, err
		}
		all = append(all, member{row, sample})
	}
	return all, nil
}

// replayMovers is how many samples are named.
const replayMovers = 10

// report says what it came to.
func (x *replaying) report(w io.Writer) {
	var olds, news []float64
	same, gone, both := 0, 0, []compared{}
	for _, c := range x.compared {
		if c.same() {
			same++
		}
		if c.Error != "" {
			gone++
		}
		if c.Old != nil && c.New != nil {
			olds, news, both = append(olds, *c.Old), append(news, *c.New), append(both, c)
		}
	}
	fmt.Fprintf(w, "%s scored again, %d with a reward before and now, %d identical to the last bit\n", rewards.Count(len(x.compared), "sample"), len(both), same)
	if x.without > 0 {
		fmt.Fprintf(w, "%s left out: their media are not kept, or are damaged; store.keep: full keeps media\n", rewards.Count(x.without, "sample"))
	}
	for _, name := range slices.Sorted(maps.Keys(x.unknown)) {
		fmt.Fprintf(w, "%s left out: the configuration has no reward %s; give it one of this name\n", rewards.Count(x.unknown[name], "sample"), shownText(name))
	}
	if x.partial > 0 {
		fmt.Fprintf(w, "%s in prompt groups with missing members: a reward of whole groups may differ\n", rewards.Count(x.partial, "sample"))
	}
	if gone > 0 {
		fmt.Fprintf(w, "%s without a reward now\n", rewards.Count(gone, "sample"))
	}
	if len(both) > 1 {
		pairs, turned := turns(both)
		fmt.Fprintf(w, "correlation %s, of ranks %s; %d of %d pairs within prompt groups changed their order\n", showR(distribution.Pearson(olds, news)), showR(distribution.Spearman(olds, news)), turned, pairs)
		x.components(w)
	}
	x.movers(w, both)
}

// showR is a correlation; a dash where one side does not vary.
func showR(r float64) string {
	if math.IsNaN(r) {
		return "–"
	}
	return strconv.FormatFloat(r, 'f', 4, 64)
}

// turns counts the pairs within prompt groups, and those whose order has changed.
func turns(list []compared) (pairs, turned int) {
	groups := map[string][]compared{}
	for _, c := range list {
		if c.UID != "" {
			groups[c.group] = append(groups[c.group], c)
		}
	}
	for _, g := range groups {
		for i := range g {
			for j := range i {
				pairs++
				if cmp.Compare(*g[i].Old, *g[j].Old) != cmp.Compare(*g[i].New, *g[j].New) {
					turned++
				}
			}
		}
	}
	return pairs, turned
}

// components says how each component's values correlate that both configurations have.
func (x *replaying) components(w io.Writer) {
	names := map[string]bool{}
	for _, c := range x.compared {
		for name := range c.OldComponents {
			if _, ok := c.NewComponents[name]; ok {
				names[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var olds, news []float64
		for _, c := range x.compared {
			if a, b := c.OldComponents[name], c.NewComponents[name]; a != nil && b != nil {
				olds, news = append(olds, *a), append(news, *b)
			}
		}
		fmt.Fprintf(w, "  %s: correlation %s, of ranks %s over %s\n", name, showR(distribution.Pearson(olds, news)), showR(distribution.Spearman(olds, news)), rewards.Count(len(olds), "sample"))
	}
}

// movers names the samples that moved most, or with --verify all that differ.
func (x *replaying) movers(w io.Writer, both []compared) {
	list := slices.DeleteFunc(slices.Clone(both), func(c compared) bool { return c.moved() == 0 })
	slices.SortStableFunc(list, func(a, b compared) int { return cmp.Compare(math.Abs(b.moved()), math.Abs(a.moved())) })
	title := "moved most"
	if x.verify {
		title = "not the same"
		list = slices.DeleteFunc(slices.Clone(x.compared), func(c compared) bool { return c.same() })
	} else {
		list = list[:min(len(list), replayMovers)]
	}
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "key\trun\tstep\tsample\tbefore\tnow\tmoved\t")
	for _, c := range list {
		fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", c.Key, shownText(c.Run), c.Step, shownText(c.ID), showValue(c.Old), showValue(c.New), strconv.FormatFloat(c.moved(), 'g', 4, 64), differing(&c))
	}
	_ = t.Flush() // of a terminal
}

// shownText is a text of a client in a table: quoted where a terminal would not show it as it is.
func shownText(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

func showValue(v *float64) string {
	if v == nil {
		return "–"
	}
	return strconv.FormatFloat(*v, 'g', 8, 64)
}

// differing names the components whose values are not the same, or why there is no reward.
func differing(c *compared) string {
	if c.Error != "" {
		line, _, _ := strings.Cut(c.Error, "\n")
		return shownText(line)
	}
	var names []string
	for name, v := range c.OldComponents {
		w, ok := c.NewComponents[name]
		if !ok || (v == nil) != (w == nil) || v != nil && math.Float64bits(*v) != math.Float64bits(*w) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
