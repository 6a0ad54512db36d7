package tesseract

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// closeWait bounds how long Close lets running frames end.
const closeWait = 5 * time.Second

// minSide is the side in pixels below which nothing legible fits, and below
// which Tesseract's thresholding is an error.
const minSide = 8

// backend is the part that differs between the builds.
type backend interface {
	start(ctx context.Context) error
	// take waits for a slot. Its errors wrap subprocess's sentinels or ctx's error.
	take(ctx context.Context) (place, error)
	stop(ctx context.Context) error
	stats() subprocess.Stats
}

// place is a slot that has nothing else to do.
type place interface {
	// read answers from tight RGB bytes, once. Its errors wrap subprocess's sentinels or ctx's error.
	read(ctx context.Context, rgb []byte, width, height int) ([]ocr.Line, error)
	// release gives the slot back, if it has not read. It may be called twice.
	release()
}

// Reader reads text with Tesseract. It is safe for concurrent use.
type Reader struct {
	cfg     Config
	backend backend
	warm    chan warmth // capacity 1: the state doubles as its lock
	close   sync.Once
	closed  atomic.Bool
}

type warmth struct{ started bool }

var (
	_ ocr.Turner     = (*Reader)(nil)
	_ rewards.Warmer = (*Reader)(nil)
	_ rewards.Closer = (*Reader)(nil)
	_ rewards.Queuer = (*Reader)(nil)

	_ rewards.Concurrent = (*Reader)(nil)
)

// Queues marks that the component's timeout starts when a slot begins with the picture.
func (*Reader) Queues() {}

// begin starts the time of ctx's component, with which ctx ends.
func begin(ctx context.Context) {
	_, cancel := rewards.Start(ctx)
	cancel()
}

// New checks the configuration and that Tesseract is available, and returns a Reader. It starts no
// processes.
func New(cfg Config) (*Reader, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b, err := newBackend(cfg)
	if err != nil {
		return nil, err
	}
	r := &Reader{cfg: cfg, backend: b, warm: make(chan warmth, 1)}
	r.warm <- warmth{}
	return r, nil
}

// Warm starts the slots and returns when each of them has read the canary picture, or with the
// error of one that could not. It may be called again, and tries again after a failure.
func (r *Reader) Warm(ctx context.Context) error {
	var w warmth
	select {
	case w = <-r.warm:
	case <-ctx.Done():
		return rewards.Ended(ctx, false, rewards.BlameReward, fmt.Errorf("waiting for tesseract to start: %w", ctx.Err()))
	}
	defer func() { r.warm <- w }()
	if w.started {
		return nil
	}
	if r.closed.Load() {
		return rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: tesseract: the reader is closed", rewards.Unavailable))
	}
	if err := r.backend.start(ctx); err != nil {
		return unstarted(ctx, err)
	}
	w.started = true
	return nil
}

var _ ocr.Named = (*Reader)(nil)

// Reader implements ocr.Named.
func (*Reader) Reader() string { return ocr.ReaderTesseract }

// ReadText reads one frame. It returns the lines in Tesseract's order, with boxes in pixels of the
// frame. Errors have the class BadInput (a frame larger than MaxPixels), Crashed, Timeout,
// Unavailable or Internal, or wrap ctx's cancellation.
func (r *Reader) ReadText(ctx context.Context, px *rewards.Pixels, frame int) ([]ocr.Line, error) {
	if err := r.check(px, frame); err != nil {
		return nil, err
	}
	t, err := r.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer t.Done()
	return t.ReadText(ctx, px, frame)
}

// check refuses a frame that is none, or too large.
func (r *Reader) check(px *rewards.Pixels, frame int) error {
	if px.Width < 1 || px.Height < 1 || frame < 0 || frame >= px.Count || len(px.RGB) != px.Count*px.Width*px.Height*3 {
		return fmt.Errorf("%w: frame %d of %d with %d bytes for %dx%d", rewards.Internal, frame, px.Count, len(px.RGB), px.Width, px.Height)
	}
	if n := px.Width * px.Height; n > r.cfg.MaxPixels {
		return fmt.Errorf("%w: a frame of %dx%d, tesseract reads at most %d pixels", rewards.BadInput, px.Width, px.Height, r.cfg.MaxPixels)
	}
	return nil
}

// Turn waits for a slot. The component's timeout starts when Turn returns. Tenants take turns
// according to the time for which they have used slots.
func (r *Reader) Turn(ctx context.Context) (ocr.Turn, error) {
	if err := r.Warm(ctx); err != nil {
		return nil, err
	}
	s, err := r.backend.take(ctx)
	if err != nil {
		return nil, classify(ctx, err)
	}
	begin(ctx)
	return &turn{r, s}, nil
}

// turn is a slot for one frame.
type turn struct {
	reader *Reader
	place  place
}

// Done implements ocr.Turn.
func (t *turn) Done() { t.place.release() }

// ReadText implements ocr.Turn.
func (t *turn) ReadText(ctx context.Context, px *rewards.Pixels, frame int) ([]ocr.Line, error) {
	if err := t.reader.check(px, frame); err != nil {
		return nil, err
	}
	if min(px.Width, px.Height) < minSide {
		return nil, nil
	}
	lines, err := t.place.read(ctx, px.Frame(frame), px.Width, px.Height)
	if err != nil {
		return nil, classify(ctx, err)
	}
	return lines, nil
}

// Concurrency returns the number of slots.
func (r *Reader) Concurrency() int { return r.cfg.Slots }

// ConcurrencyReason returns the number of slots as text.
func (r *Reader) ConcurrencyReason() string {
	return rewards.Count(r.cfg.Slots, "Tesseract reader")
}

// Stats returns the state of the slots.
func (r *Reader) Stats() subprocess.Stats { return r.backend.stats() }

// Close waits up to 5 s for the running frames and ends the slots. The Reader cannot be used
// afterwards.
func (r *Reader) Close() error {
	var err error
	r.close.Do(func() {
		r.closed.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		err = r.backend.stop(ctx)
	})
	return err
}

// unstarted is classify for a start: the worker's failure, whatever happened, and one that
// stays where Tesseract itself says what is missing, such as a language.
func unstarted(ctx context.Context, err error) error {
	switch failed := classify(ctx, err); {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return failed
	case errors.Is(err, subprocess.ErrHandler):
		return rewards.Permanent(rewards.BlameWorker, failed)
	default:
		return rewards.Blamed(rewards.BlameWorker, failed)
	}
}

// classify maps the errors of slots to those of rewards, and says whose failure they are.
func classify(ctx context.Context, err error) error {
	failed := func(class rewards.Class) error { return fmt.Errorf("%w: tesseract: %w", class, err) }
	switch {
	case errors.Is(err, subprocess.ErrTimeout):
		return rewards.Ended(ctx, !errors.Is(err, subprocess.ErrWaiting), rewards.BlameReward, failed(rewards.Timeout))
	case errors.Is(err, subprocess.ErrCrashed) && errors.Is(err, subprocess.ErrHost):
		return rewards.Blamed(rewards.BlameWorker, failed(rewards.Crashed))
	case errors.Is(err, subprocess.ErrCrashed): // two of them, each of which had read the canary
		return rewards.Blamed(rewards.BlameSample, failed(rewards.Crashed))
	case errors.Is(err, subprocess.ErrTooLarge):
		return failed(rewards.BadInput)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return fmt.Errorf("tesseract: %w", err)
	case errors.Is(err, subprocess.ErrUnavailable) && errors.Is(err, subprocess.ErrHandler): // such as a language that is not installed
		return rewards.Permanent(rewards.BlameWorker, failed(rewards.Unavailable))
	case errors.Is(err, subprocess.ErrUnavailable):
		return rewards.Blamed(rewards.BlameWorker, failed(rewards.Unavailable))
	}
	return failed(rewards.Internal)
}
