package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/media/ffmpeg"
	"github.com/rewardloop/rewardloop/store"
	"github.com/rewardloop/rewardloop/wire"
)

// A store that could not be opened is tried again after storeRetryFirst, then after twice as long each time, up to storeRetry: another
// server may be about to end.
const (
	storeRetryFirst = time.Second
	storeRetry      = time.Minute
)

// recorder hands what becomes of samples to the store, once that is open. A store that cannot be opened costs a warning and no sample.
type recorder struct {
	store atomic.Pointer[store.Store]
	stop  chan struct{}
	work  sync.WaitGroup
}

// openStore opens the store, or tries again up to each minute; nil: nothing is kept.
func (p *parts) openStore(ctx context.Context, path string) *recorder {
	if p.cfg.Store.Keep == store.KeepOff || path == "" {
		return nil
	}
	r := &recorder{stop: make(chan struct{})}
	try := func(ctx context.Context) error {
		o := store.Options{Path: path, Decode: p.cfg.Pool.Decode, Log: p.log, Metrics: p.metrics}
		if player, err := ffmpeg.Find(p.cfg.Pool.Decode); err == nil && player != nil {
			o.Player = player
		}
		s, err := store.Open(ctx, p.cfg.Store, o)
		if err != nil {
			return err
		}
		var yaml strings.Builder
		if err := p.cfg.Print(&yaml); err != nil {
			p.log.WarnContext(ctx, "the configuration was not written to the store", "error", err)
		}
		for name, profile := range p.cfg.Profiles {
			s.Describe(store.Described{Digest: digest(profile), Reward: name, Version: p.version, YAML: yaml.String(), Hashes: p.hashes(profile)})
		}
		r.store.Store(s)
		p.log.InfoContext(ctx, "results are kept", "file", path, "keep", p.cfg.Store.Keep)
		return nil
	}
	if err := try(ctx); err != nil {
		p.log.WarnContext(ctx, "results are not kept, because the store cannot be opened; rewards are not affected, and the server retries at intervals of up to a minute", "error", err)
		r.work.Go(func() { r.retry(try, p.log) }) // ends with close
	}
	return r
}

// maxCode is how large a file of a Python function is whose sum is taken.
const maxCode = 16 << 20

// hashes are the SHA-256 of what scores samples of a profile: its Python files, and the model files that this machine has.
func (p *parts) hashes(profile *config.Profile) map[string]string {
	sums := map[string]string{}
	if models, err := Models(p.cfg.Pool); err == nil {
		if found, err := models.Sums(); err == nil {
			sums = found
		}
	}
	for _, t := range profile.Components {
		info, err := os.Stat(t.Path)
		if t.Function == "" || err != nil || !info.Mode().IsRegular() || info.Size() > maxCode {
			continue
		}
		if text, err := os.ReadFile(t.Path); err == nil {
			sum := sha256.Sum256(text)
			sums[filepath.Base(t.Path)] = hex.EncodeToString(sum[:])
		}
	}
	return sums
}

func (r *recorder) retry(try func(context.Context) error, log *slog.Logger) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for wait := storeRetryFirst; ; wait = min(2*wait, storeRetry) {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-r.stop:
			t.Stop()
			return
		}
		if err := try(ctx); err == nil {
			return
		} else {
			log.DebugContext(ctx, "the store cannot be opened", "error", err)
		}
	}
}

// opened is the store; nil: it is not open.
func (r *recorder) opened() *store.Store {
	if r == nil {
		return nil
	}
	return r.store.Load()
}

// Media implements loop.Recorder.
func (r *recorder) Media(of loop.Recorded, f *wire.Frame, failed bool) {
	if s := r.opened(); s != nil {
		s.Media(store.SampleKey{Run: of.Run, Epoch: of.Epoch, ID: of.ID}, f.Sample().Media, f.Data(), failed)
	}
}

// Result implements loop.Recorder.
func (r *recorder) Result(f loop.FinalResult) {
	if s := r.opened(); s != nil {
		s.Put(store.Record{
			Run: f.Run, Epoch: f.Epoch, Split: f.Step.Split, Step: f.Step.Step, Reward: f.Profile, Header: f.Header, Result: f.Result, Message: f.Message, Finished: f.At,
		})
	}
}

// Step implements loop.Recorder.
func (r *recorder) Step(key step.Key, epoch uint64, expected int, report *trace.Report) {
	s := r.opened()
	if s == nil {
		return
	}
	e := store.StepEnd{Run: key.Run, Epoch: epoch, Split: key.Split, Step: key.Step, Expected: expected}
	if report != nil {
		e.Exposed, e.Rollout, e.Makespan = &report.Exposed, &report.Rollout, &report.Makespan
	}
	s.EndStep(e)
}

// close writes what waits.
func (r *recorder) close() error {
	close(r.stop)
	r.work.Wait()
	if s := r.opened(); s != nil {
		return s.Close()
	}
	return nil
}
