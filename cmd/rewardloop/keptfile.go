package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/store"
)

// keptFlags say which results a command reads.
type keptFlags struct {
	file, run, reward, split, steps string
	failed, all                     bool
}

func addKeptFlags(cmd *cobra.Command) *keptFlags {
	f := new(keptFlags)
	flags := cmd.Flags()
	flags.StringVar(&f.file, "store", "", "`file` of results; a server can be writing it; default: the only file in the default folder, or the file of port 8080")
	flags.StringVar(&f.run, "run", "", "only results of the run with this `name`")
	flags.StringVar(&f.reward, "reward", "", "only results of the reward with this `name`; the default reward is named default")
	flags.StringVar(&f.split, "split", "", "only results of this `split`: train or val")
	flags.StringVar(&f.steps, "steps", "", "only results of these `steps`, such as 7 or 10-20")
	flags.BoolVar(&f.failed, "failed", false, "only results of samples without a reward")
	flags.BoolVar(&f.all, "all-epochs", false, "include earlier results of steps that a restarted trainer repeated")
	_ = cmd.MarkFlagFilename("store", "db") // the flag is there
	return f
}

// query is what the flags select; steps are compared by accept.
func (f *keptFlags) query() (q store.Query, accept func(*store.Row) bool, err error) {
	q = store.Query{Failed: f.failed, AllEpochs: f.all, Split: rewards.Split(f.split)}
	if f.run != "" {
		q.Run = &f.run
	}
	if f.reward != "" {
		q.Reward = &f.reward
	}
	if q.Split != "" && q.Split != rewards.Train && q.Split != rewards.Val {
		return q, nil, fmt.Errorf("--split %q: want train or val", f.split)
	}
	if f.steps == "" {
		return q, func(*store.Row) bool { return true }, nil
	}
	first, last, several := strings.Cut(f.steps, "-")
	if !several {
		last = first
	}
	from, err1 := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(last, 10, 64)
	if err1 != nil || err2 != nil || to < from {
		return q, nil, fmt.Errorf("--steps %q: want a step such as 7, or the first and the last such as 10-20", f.steps)
	}
	return q, func(r *store.Row) bool { return r.Step >= from && r.Step <= to }, nil
}

// open opens the file that the flags name.
func (f *keptFlags) open() (*store.Reader, string, error) {
	file := f.file
	if file == "" {
		var err error
		if file, err = onlyStore(); err != nil {
			return nil, "", err
		}
	}
	r, err := store.OpenReader(file)
	return r, file, err
}

// onlyStore is the file of results that can be meant where none is named.
func onlyStore() (string, error) {
	folder, err := store.DefaultFolder()
	if errors.Is(err, store.ErrOff) {
		return "", errors.New("REWARDLOOP_STORE is off, so a server keeps results only with store.path: name that file with --store")
	} else if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.db"))
	if err != nil {
		return "", err
	}
	usual := filepath.Join(folder, "8080.db")
	if _, err := os.Stat(usual); err == nil {
		return usual, nil
	}
	switch len(files) {
	case 0:
		return "", fmt.Errorf("no results are kept in %s: start a server with rewardloop serve, or name a file with --store", folder)
	case 1:
		return files[0], nil
	}
	return "", fmt.Errorf("several servers have kept results: name one with --store: %s", strings.Join(files, ", "))
}
