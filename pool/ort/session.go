//go:build cgo

package ort

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// Session is a model that is loaded into this process. Its methods are safe for concurrent use,
// except on a CUDA device, where every call must come from the thread that opened the session. With
// calls from several threads, one session grew by 2 GiB for each run (onnxruntime issue 29351), and
// two concurrent runs corrupt the process (32342).
type Session struct {
	cfg     SessionConfig
	info    infer.Info
	session *ort.DynamicAdvancedSession
	thread  uint64        // that opened it
	free    chan struct{} // a token per run that may start
	buffers buffers

	// trust says which shapes of outputs are foreseen, see foresee. It only falls.
	trust atomic.Int32

	closing chan struct{} // closed by Close
	close   sync.Once

	mu     sync.Mutex
	shapes map[string][][]int // guarded by mu; of the outputs, by those of the inputs
}

// OpenSession loads a model. Its errors wrap infer.ErrModel with the path and the reason,
// infer.ErrMemory, infer.ErrFault, or infer.ErrUnavailable if the library or the device fails.
func OpenSession(cfg SessionConfig) (*Session, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.validate(), load(cfg.Library)); err != nil {
		return nil, err
	}
	if cfg.data == nil {
		if err := checkFile(cfg.Model); err != nil {
			return nil, err
		}
	}
	s := &Session{cfg: cfg, thread: thread(), closing: make(chan struct{}), shapes: make(map[string][][]int)}
	s.trust.Store(trustAll)
	open := s.open
	if cfg.cuda() {
		open = func() error { return keepSignals(s.open) }
	}
	if err := cfg.hooks.saw("open"); err != nil {
		return nil, failedLoad(cfg.Model, err)
	}
	if err := open(); err != nil {
		return nil, err
	}
	if err := match(cfg.Model, s.info, cfg.Want); err != nil {
		return nil, errors.Join(err, s.session.Destroy())
	}
	s.free = make(chan struct{}, cfg.Concurrency)
	for range cfg.Concurrency {
		s.free <- struct{}{}
	}
	return s, nil
}

// open looks at the model's ports with a session that optimises nothing, because
// the bindings want the names before they make the one that runs.
func (s *Session) open() error {
	inputs, outputs, err := s.introspect()
	if err != nil {
		return failedLoad(s.cfg.Model, err)
	}
	if s.cfg.decoder && slices.ContainsFunc(outputs, func(p ort.InputOutputInfo) bool { return keptOutput(p.Name) }) {
		outputs = slices.DeleteFunc(outputs, func(p ort.InputOutputInfo) bool { return !keptOutput(p.Name) })
	}
	if err := supported(s.cfg.Model, inputs, outputs); err != nil {
		return err
	}
	s.info = infer.Info{Inputs: ports(inputs), Outputs: ports(outputs), Provider: cpuProvider}
	if s.cfg.cuda() {
		s.info.Provider = cudaProvider
	}
	o, err := sessionOptions(s.cfg)
	if err != nil {
		return failedOptions(s.cfg.Model.Device, err)
	}
	defer func() { _ = o.Destroy() }() // it cannot fail
	if err := s.create(o); err != nil {
		return failedLoad(s.cfg.Model, err)
	}
	if s.cfg.cuda() {
		onCard := s.onCard
		if s.cfg.hooks.onCard != nil {
			onCard = s.cfg.hooks.onCard
		}
		if err := onCard(); err != nil {
			return errors.Join(err, s.session.Destroy())
		}
	}
	if s.info.Metadata, err = metadata(s.session); err != nil {
		return errors.Join(failedLoad(s.cfg.Model, err), s.session.Destroy())
	}
	return nil
}

// Info returns the description of the model. The caller must not modify it.
func (s *Session) Info() infer.Info { return s.info }

// Close waits for the current runs and frees the memory of the model. A second call does nothing.
func (s *Session) Close() error {
	var err error
	s.close.Do(func() {
		close(s.closing)
		for range cap(s.free) {
			<-s.free // from every run that goes on; none begins any more
		}
		_ = s.cfg.hooks.saw("close") // it is closed all the same
		err = s.session.Destroy()
	})
	return err
}

// begin takes a token, which the caller gives back.
func (s *Session) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return s.ended(ctx, "before it ran")
	}
	select {
	case <-s.free:
	case <-s.closing:
		return s.gone()
	case <-ctx.Done():
		return s.ended(ctx, "before the model was free")
	}
	select {
	case <-s.closing:
		s.end()
		return s.gone()
	default:
	}
	if s.cfg.cuda() && thread() != s.thread {
		s.end()
		return fmt.Errorf("%w: %q was opened on another thread, and a CUDA session is used on one", infer.ErrFault, s.cfg.Model.Name)
	}
	return nil
}

// end gives the token back.
func (s *Session) end() { s.free <- struct{}{} }

func (s *Session) gone() error {
	return fmt.Errorf("%w: %q is closed", infer.ErrUnavailable, s.cfg.Model.Name)
}
