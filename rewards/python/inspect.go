package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// inspectTime bounds the import of a file whose function is only inspected. A file that
// loads a model takes longer and is inspected by its start, which Config.StartTimeout bounds.
const inspectTime = 10 * time.Second

// inspect finds out what a function takes, in a process that imports its file and ends. A
// class is not made. An error of class Timeout says that the import took too long, any other
// one why the function cannot be called.
func (f *Functions) inspect(ctx context.Context, raw json.RawMessage, groups bool) (sig rewards.Signature, err error) {
	var opts Options
	if err := rewards.DecodeOptions(raw, &opts); err != nil {
		return sig, err
	}
	cfg, opts := f.cfg.WithDefaults(), opts.WithDefaults()
	if err := errors.Join(cfg.Validate(), opts.Validate()); err != nil {
		return sig, err
	}
	var r reply
	var asking sync.WaitGroup
	asking.Go(func() {
		runtime.LockOSThread() // until the goroutine ends: the process ends with the thread
		yield()
		r, err = ask(ctx, cfg, opts, groups)
	})
	asking.Wait()
	if err != nil {
		return sig, err
	}
	return rewards.Signature{Names: r.Names, Any: r.Everything, At: r.At, Faults: r.Faults}, nil
}

// ask starts a process that inspects a function, and reads its answer. The caller's thread
// must outlive the process.
func ask(ctx context.Context, cfg Config, opts Options, groups bool) (reply, error) {
	memory := cfg.memory(opts)
	proc, err := spawn(cfg.interpreter(opts), environment(opts.Env, cfg.HiddenEnv), newCgroup(memory))
	if err != nil {
		return reply{}, err
	}
	w := watchMemory(proc, memory)
	cancelled := context.AfterFunc(ctx, proc.kill)
	limit := min(inspectTime, cfg.StartTimeout)
	r, err := question(proc, limit, load{
		Protocol: protocol, Inspect: true, Path: opts.Path, Source: opts.Source, Name: opts.Name, Pixels: opts.Pixels, Kwargs: opts.Kwargs,
		Limits: map[string]int64{"FSIZE": cfg.FileBytes, "NOFILE": int64(cfg.Files)}, PostProcess: groups,
		Model: opts.Placement != nil, Columns: opts.Placement != nil && opts.Placement.Batch,
		Signature: opts.Signature, Reference: opts.Reference != "", Sources: opts.sources(),
	})
	var late net.Error
	overdue := errors.As(err, &late) && late.Timeout()
	if overdue {
		proc.kill()
	}
	end := proc.wait()
	cancelled()
	w.stop()
	words := strings.ReplaceAll(proc.lastWords(), "\n", " | ") // a fault is one line
	switch {
	case ctx.Err() != nil:
		return r, fmt.Errorf("%w: the import of the module was cancelled: %w", rewards.Timeout, ctx.Err())
	case overdue:
		return r, fmt.Errorf("%w: the import of the module took longer than %v%s", rewards.Timeout, limit, words)
	case err != nil:
		return r, fmt.Errorf("the process ended during the import of the module (%s)%s", end.how, words)
	case r.Op == "refused" && r.At != "":
		return r, fmt.Errorf("%s (%s)", r.Brief, r.At)
	case r.Op == "refused":
		return r, errors.New(r.Brief)
	case r.Op != "inspected":
		return r, fmt.Errorf("%w: the process answered %q to an inspection", errFrame, r.Op)
	}
	return r, nil
}

// question sends a process its first frame and returns the answer.
func question(proc *process, limit time.Duration, what load) (reply, error) {
	head, err := encodeFrame(what, 0)
	if err != nil {
		return reply{}, err
	}
	_ = proc.conn.SetDeadline(time.Now().Add(limit))
	if _, err := writeFrame(proc.conn, head, nil); err != nil {
		return reply{}, err
	}
	r, err := readReply(proc.conn)
	if err != nil {
		return reply{}, err
	}
	return r, proc.conn.SetDeadline(time.Time{})
}
