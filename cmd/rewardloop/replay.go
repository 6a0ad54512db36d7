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
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/store"
)

const replayText = `
Scores samples again that a server has kept, with the rewards of another
configuration, and compares: how the rewards correlate, how many pairs of a
prompt group change their order, and which samples move most. The samples go the
way of serve, step by step, in this process.

Samples with pictures, videos or sound need their bytes (store.keep: full); those
without are left out and counted.

--verify expects the same rewards: it lists every sample whose reward or
component differs in any bit, and exits with 1 if there is one. With
loop.deterministic: true a reward does not depend on which worker scores a
sample or beside which others; what a judge elsewhere answers may differ all the
same.

Exits with 0 if every sample was compared, 1 if some were not or --verify found a
difference, 2 if it could not begin.`

const replayExample = `
rewardloop replay -c other.yaml --run my-run --steps 100-200 -o moved.jsonl
rewardloop replay -c cfg.yaml --store 8080.db --verify loop.deterministic=true`

func replayCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay -c other.yaml [key=value...]", GroupID: groupScore, DisableFlagsInUseLine: true,
		SuggestFor: []string{"rescore", "again"},
		Short:      "score kept samples again with another configuration, and compare",
		Long:       replayText, Example: replayExample,
	}
	s := configFlags(e, cmd)
	f := addKeptFlags(cmd)
	var verify bool
	var output string
	cmd.Flags().BoolVar(&verify, "verify", false, "expect the same rewards to the last bit, and list those that differ")
	cmd.Flags().StringVarP(&output, "output", "o", "", "JSON lines `file` with old and new reward of each sample; - writes standard output")
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
	without  int // samples whose bytes were not kept
	out      *json.Encoder
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
	x.rewards = map[string]bool{}
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
		err = errors.New("interrupted; what was compared until then follows")
	}
	x.report(x.env.stdout)
	switch {
	case err != nil:
		return failed(err)
	case len(x.compared) == 0:
		return failed(fmt.Errorf("no sample of %s was compared", x.file))
	case x.without > 0 || slices.ContainsFunc(x.compared, func(c compared) bool { return c.Error != "" }):
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

// all scores every sample again. Steps are sent one after the other in the order of their first sample: a group is never in two.
func (x *replaying) all(ctx context.Context, url string) error {
	steps := map[replayStep][]int64{}
	var order []replayStep
	last := map[store.SampleKey]int64{} // of samples that were sent twice the later one counts
	for row, err := range x.reader.Each(ctx, x.query) {
		if err != nil {
			return err
		}
		if !x.accept(row) || row.Outcome == rewards.OutcomeCancelled {
			continue
		}
		k := replayStep{row.Run, row.Epoch, row.Split, row.Step}
		if steps[k] == nil {
			order = append(order, k)
		}
		steps[k] = append(steps[k], row.Key)
		last[row.SampleKey()] = row.Key
	}
	latest := map[int64]bool{}
	for _, key := range last {
		latest[key] = true
	}
	clients := map[string]*client.Client{}
	defer func() {
		for _, c := range clients {
			_ = c.Close() // all of its results are there, or it was interrupted
		}
	}()
	for i, k := range order {
		life := k.run + "/" + k.epoch
		c := clients[life]
		if c == nil {
			var err error
			if c, err = client.Dial(ctx, client.Config{URL: url, Run: "replay-" + strconv.Itoa(len(clients)+1)}); err != nil {
				return err
			}
			clients[life] = c
		}
		keys := slices.DeleteFunc(steps[k], func(key int64) bool { return !latest[key] })
		if err := x.step(ctx, c, k, keys); err != nil {
			return err
		}
		fmt.Fprintf(x.env.stderr, "\r%d of %d steps, %s", i+1, len(order), rewards.Count(len(x.compared), "sample"))
	}
	fmt.Fprintln(x.env.stderr)
	return nil
}

// replayAhead is how many samples of a step are under way at a time.
const replayAhead = 512

// step scores the samples of one step again.
func (x *replaying) step(ctx context.Context, c *client.Client, k replayStep, keys []int64) error {
	places := make(chan struct{}, replayAhead)
	type sent struct {
		row    *store.Row
		future *client.Future
	}
	var all []sent
	rows, members, err := x.rows(ctx, keys)
	if err != nil {
		return err
	}
	for _, row := range rows {
		sample, err := x.reader.Sample(ctx, row.Key)
		if err != nil {
			return err
		}
		if sample.UID != "" {
			sample.GroupSize = min(sample.GroupSize, members[sample.UID]) // it does not wait for members that are left out
		}
		sample.Run, sample.Step, sample.Split, sample.Reward = "", k.step, k.split, ""
		if row.Reward != "default" && x.rewards[row.Reward] {
			sample.Reward = row.Reward
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		f, err := c.Submit(ctx, sample, 0)
		if err != nil {
			return err
		}
		go func() { // ends with the result, or with the client
			<-f.Done()
			<-places
		}()
		all = append(all, sent{row, f})
	}
	if err := c.EndOfStep(k.split, k.step); err != nil {
		return err
	}
	for _, s := range all {
		res, err := s.future.Wait(ctx)
		if err != nil {
			return err
		}
		one := compared{
			Key: s.row.Key, Run: s.row.Run, Step: s.row.Step, ID: s.row.ID, UID: s.row.UID, Old: s.row.Score, New: res.RewardScore,
			OldComponents: s.row.Components, NewComponents: store.Components(res), group: fmt.Sprint(k, s.row.UID),
		}
		if res.RewardScore == nil && (s.row.Score != nil || len(res.Errors) == 0) {
			one.Error = string(res.Outcome)
			if len(res.Errors) > 0 {
				one.Error = res.Errors[0].Component + ": " + string(res.Errors[0].Class) + ": " + res.Errors[0].Message
			}
		}
		x.compared = append(x.compared, one)
		if err := x.out.Encode(&one); err != nil {
			return err
		}
	}
	return nil
}

// rows are those of some keys whose samples are kept whole, and how many of them each prompt group has.
func (x *replaying) rows(ctx context.Context, keys []int64) (rows []*store.Row, members map[string]int, err error) {
	members = map[string]int{}
	for _, key := range keys {
		row, err := x.reader.Result(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		if slices.ContainsFunc(row.Media, func(m store.MediaRow) bool { return m.Full == nil }) {
			x.without++
			continue
		}
		rows = append(rows, row)
		members[row.UID]++
	}
	return rows, members, nil
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
		fmt.Fprintf(w, "%s left out: their media were not kept; store.keep: full keeps them\n", rewards.Count(x.without, "sample"))
	}
	if gone > 0 {
		fmt.Fprintf(w, "%s without a reward now\n", rewards.Count(gone, "sample"))
	}
	if len(both) > 1 {
		pairs, turned := turns(both)
		fmt.Fprintf(w, "correlation %s, of ranks %s; %d of %d pairs within prompt groups changed their order\n", showR(store.Pearson(olds, news)), showR(store.Spearman(olds, news)), turned, pairs)
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
	for _, name := range slices.Sorted(mapKeys(names)) {
		var olds, news []float64
		for _, c := range x.compared {
			if a, b := c.OldComponents[name], c.NewComponents[name]; a != nil && b != nil {
				olds, news = append(olds, *a), append(news, *b)
			}
		}
		fmt.Fprintf(w, "  %s: correlation %s, of ranks %s over %s\n", name, showR(store.Pearson(olds, news)), showR(store.Spearman(olds, news)), rewards.Count(len(olds), "sample"))
	}
}

func mapKeys(m map[string]bool) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
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
		fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", c.Key, c.Run, c.Step, c.ID, showValue(c.Old), showValue(c.New), strconv.FormatFloat(c.moved(), 'g', 4, 64), differing(&c))
	}
	_ = t.Flush() // of a terminal
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
		return line
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
