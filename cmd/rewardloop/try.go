package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
)

const tryText = `
Runs one entry of a configuration in the same way as serve, without opening a
port, and prints score, columns, times, memory and device.

ENTRY is the key of an entry of the configuration (PROFILE/KEY if several
rewards have the key), or the path of an entry: my_reward.py, my_reward.py:NAME,
pkg://module:NAME, builtin://jpeg_incompressibility, onnx://MODEL,
http://HOST:PORT. --set adds the other keys of the entry, such as
--set devices=cpu. With -c, an entry given by its path also uses the settings
and engines of the configuration.

The sample is built from --image, --video, --prompt, --response, --ground-truth
and --extra-info, or read from --sample. A flag that is repeated makes one
sample per value; a flag that is given once applies to all samples. For an entry
that scores groups, the samples form one group. Without any of these flags, try
uses the known sample with which serve tests Python functions.

The first sample is scored twice, because the first call is often slower. Then
several samples are scored concurrently; for a model, first 2 samples, then 4,
and so on up to all. --timeout limits each load and each call.

Exit code: 0 if every sample was scored, 1 if a sample was not scored, 2 if the
entry or the configuration is wrong.`

const tryExample = `
rewardloop try builtin://jpeg_incompressibility --image a.png
rewardloop try jpeg_incompressibility -c cfg.yaml --image a.png --json`

// tryFlags are what try was asked for.
type tryFlags struct {
	entry   string
	set     []string
	sample  tryInput
	timeout time.Duration
	json    *bool
}

func tryCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "try ENTRY [cfg.yaml] [flags] [key=value...]", GroupID: groupScore, DisableFlagsInUseLine: true,
		SuggestFor: []string{"run", "test", "call"},
		Short:      "run one reward on one sample; print score, time, memory, device",
		Long:       tryText, Example: tryExample,
	}
	s := configFlags(e, cmd)
	f := &tryFlags{json: jsonFlag(cmd)}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.set, "set", nil, "set a key of the entry, `key=value`; repeatable")
	flags.StringArrayVar(&f.sample.images, "image", nil, "picture `file`: PNG, JPEG or WebP; repeatable")
	flags.StringArrayVar(&f.sample.videos, "video", nil, "`folder` with the frames of a video; repeatable")
	flags.StringArrayVar(&f.sample.prompts, "prompt", nil, "prompt `text`; repeatable")
	flags.StringArrayVar(&f.sample.responses, "response", nil, "response `text`; repeatable")
	flags.StringVar(&f.sample.truth, "ground-truth", "", "ground truth: `text`, or JSON if the value begins with {, [ or a quote")
	flags.StringVar(&f.sample.extra, "extra-info", "", "JSON `object` for the reward function")
	flags.StringVar(&f.sample.file, "sample", "", "`file` with one JSON object, or one per line, in the format of rewardloop score; - reads standard input")
	flags.DurationVar(&f.timeout, "timeout", 0, "maximum `time` of a load or a call; default: as in serve (for a call: timeout of the entry)")
	_ = cmd.MarkFlagDirname("video") // the flag is there
	cmd.Args = func(_ *cobra.Command, args []string) error {
		rest := args
		for i, a := range args {
			if f.entry == "" && !isOverride(a) && !isYAML(a) {
				f.entry, rest = a, append(append([]string{}, args[:i]...), args[i+1:]...)
			}
		}
		return s.take(rest)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.timeout < 0 || f.timeout > rewards.MaxComponentTimeout {
			return fmt.Errorf("--timeout %v: want more than 0 and at most %v", f.timeout, rewards.MaxComponentTimeout)
		}
		given, err := f.sample.lines(e) // nothing is imported for flags that are wrong
		if err != nil {
			return wrong(err)
		}
		ctx, stop := interruptible(cmd.Context()) // from here on; what reads a pipe is ended by the signal itself
		defer stop()
		return try(ctx, e, s, f, given)
	}
	return cmd
}

// try runs the entry. The document is printed whatever became of its samples.
func try(ctx context.Context, e *env, set *settings, f *tryFlags, given []*sampleLine) error {
	t, err := findEntry(set, f)
	if err != nil {
		return wrong(err)
	}
	before := len(t.cfg.Notes())
	for _, note := range t.cfg.Notes() { // said before anything is fetched
		if strings.Contains(note.Message, config.Fetches) {
			fmt.Fprintln(e.stderr, "note:", note)
		}
	}
	checked := set.named(checkWithin(ctx, t, f.timeout))
	if ctx.Err() != nil {
		return failed(errInterrupted)
	}
	if checked != nil {
		return wrong(checked)
	}
	if len(t.cfg.Notes()) > before { // what the check could not do; config check has the others
		for _, note := range t.cfg.Notes() {
			if strings.Contains(note.Message, config.Unchecked) {
				fmt.Fprintln(e.stderr, "note:", e.secrets.Text(note.Message))
			}
		}
	}
	out, err := runEntry(ctx, e, t, given, f.timeout)
	if err != nil {
		return err
	}
	if *f.json {
		err = e.json(out)
	} else {
		out.print(e)
	}
	if err == nil && !out.Scored {
		err = failed(nil)
	}
	return err
}

// checkWithin is what config check finds of the entry; an import that takes longer is a note.
func checkWithin(ctx context.Context, t *trialEntry, timeout time.Duration) error {
	if timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = limited
	}
	return node.Check(ctx, t.cfg, nil, true)
}

var errInterrupted = errors.New("interrupted")

// runEntry starts what serve would start but its routes, and has the samples scored.
func runEntry(ctx context.Context, e *env, t *trialEntry, given []*sampleLine, timeout time.Duration) (*tried, error) {
	// A warning would be that the sample failed, which the document says.
	log := slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelError, ReplaceAttr: e.secrets.Attr}))
	path := t.component.ShownPath()
	if path == "" {
		path = "post_process of " + t.component.PostProcess
	}
	out := &tried{Entry: t.component.Key, Reward: t.reward, Path: path, Function: t.component.Function, Columns: map[string]any{}, Processes: []triedMemory{}, Cards: []triedCard{}}
	files := &mediaFiles{dir: ".", maxBytes: t.cfg.Loop.MessageBytes, maxFrames: t.cfg.Pool.Decode.MaxFrames}
	samples, err := loadSamples(given, files)
	if err != nil { // no model is loaded for a picture that is none
		out.failWith(t, err)
		return out, nil
	}
	n, err := node.New(node.Options{Config: t.cfg, Log: log, Version: release(), NoServer: true})
	if err != nil {
		return nil, wrong(err)
	}
	if err := startWithin(ctx, n, timeout); err != nil {
		if ctx.Err() != nil {
			return nil, failed(errInterrupted)
		}
		out.failWith(t, errors.New(e.secrets.Text(err.Error())), err)
		return out, nil
	}
	defer n.Stop()
	out.Time.LoadMS = milliseconds(n.LoadTime())
	if samples == nil {
		if samples = n.KnownSamples(t.reward); len(samples) == 0 {
			return nil, wrong(errors.New("the entry has probe: false, so try has no known sample: give one with --image, --prompt, --response or --sample"))
		}
		out.Known = true
	}
	c := &caller{n: n, t: t, samples: samples, out: out, grouped: n.Grouped(t.reward)}
	c.run(ctx)
	out.about(n, t)
	if ctx.Err() != nil {
		return nil, failed(errInterrupted)
	}
	return out, nil
}

// startWithin starts the node, for timeout at most; 0: for as long as serve would wait.
func startWithin(ctx context.Context, n *node.Node, timeout time.Duration) error {
	if timeout == 0 {
		return n.Start(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := n.Start(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = rewards.Blamed(rewards.BlameReward, fmt.Errorf("%w: the reward was not loaded within %v: %w", rewards.Timeout, timeout, err))
	}
	return err
}

// trialEntry is the one entry that runs: the only component of the only reward of cfg, but for
// another component that works on its values, or that it works on.
type trialEntry struct {
	cfg       *config.Config
	reward    string
	component config.ComponentConfig
}
