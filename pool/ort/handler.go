//go:build cgo

package ort

import (
	"context"
	_ "embed" // the canary
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// Kinds returns the kinds of child processes of this build; main passes them to subprocess.Main.
func Kinds() []subprocess.Kind {
	return []subprocess.Kind{{Name: kindName, New: newHandler}}
}

// built is what is missing in this build; nil: nothing.
func built() error { return nil }

// canaryModel is relu(x W + b), made by testdata/make_models.py.
//
//go:embed canary.onnx
var canaryModel []byte

// runnable is a model that can be run: a Session or a Language.
type runnable interface {
	Info() infer.Info
	Run(ctx context.Context, b infer.Batch) (*Answer, error)
	Close() error
}

// handler owns the sessions of one child, or of one slot inline. A slot calls it
// on one thread.
type handler struct {
	cfg      childConfig
	canary   *Session
	sessions map[infer.Model]runnable
	starved  map[infer.Model]int // runs in a row for which there was no memory
	body     []byte              // of the last answer
	hooks    hooks
}

func newHandler(init []byte) (subprocess.Handler, error) { return hooked(init, hooks{}) }

func hooked(init []byte, with hooks) (subprocess.Handler, error) {
	h := &handler{sessions: make(map[infer.Model]runnable), starved: make(map[infer.Model]int), hooks: with}
	if err := json.Unmarshal(init, &h.cfg); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := load(h.cfg.Library); err != nil {
		return nil, worded(err)
	}
	var err error
	h.canary, err = OpenSession(h.session(infer.Model{Name: "canary", Device: h.cfg.Device}, canaryModel))
	return h, worded(err)
}

// session is the configuration of a model's session. The child sees one device,
// number 0.
func (h *handler) session(m infer.Model, data []byte) SessionConfig {
	return SessionConfig{Library: h.cfg.Library, Model: m, Concurrency: 1, CUDA: h.cfg.CUDA, Ordinal: h.cfg.Ordinal, Language: h.cfg.Language, data: data, hooks: h.hooks}
}

// Handle does what one request asks for.
func (h *handler) Handle(c subprocess.Call) ([]byte, error) {
	r, inputs, err := decode(c.Meta, c.Pixels)
	if err != nil {
		return nil, err
	}
	out := answer{PID: os.Getpid()}
	switch r.Op {
	case opAbout:
		out.About = lookAround(h.cfg.Library)
	case opCanary:
		return h.run(c, h.canary, out, infer.Batch{Inputs: inputs})
	case opUnload:
		if err := h.unload(r.Model); err != nil {
			return nil, outgoing(err)
		}
	case opLoad, opRun:
		s, err := h.model(r.Model, c.Deadline)
		if err != nil {
			return nil, outgoing(err)
		}
		if r.Op == opRun {
			body, err := h.run(c, s, out, r.batch(inputs))
			h.feed(r.Model, err)
			return body, err
		}
		info := s.Info()
		out.Info = &info
	default:
		return nil, fmt.Errorf("%w: operation %q", errRequest, r.Op)
	}
	return encodeAnswer(nil, out, nil)
}

// model returns the session of a model, which it loads if it has to, within what the deadline leaves
// beside a run.
func (h *handler) model(m infer.Model, deadline time.Time) (runnable, error) {
	if s := h.sessions[m]; s != nil {
		return s, nil
	}
	if m.Device != h.cfg.Device {
		return nil, fmt.Errorf("%w: %q belongs on %s, and this process has %s", infer.ErrModel, m.Name, m.Device, h.cfg.Device)
	}
	if deadline.IsZero() {
		deadline = time.Now().Add(h.cfg.LoadTimeout + h.cfg.RunTimeout + h.cfg.Grace)
	}
	// A quarter of a load's time is for its caller, who began to wait before.
	s, err := h.open(m, deadline.Add(-h.cfg.LoadTimeout/4-h.cfg.RunTimeout-h.cfg.Grace))
	if err != nil {
		return nil, err
	}
	h.sessions[m] = s
	return s, nil
}

// open loads a model and warms it up until then. A language model tries itself with two tokens.
func (h *handler) open(m infer.Model, until time.Time) (runnable, error) {
	if m.Embed == "" { // a nil *Session would be no nil runnable
		s, err := h.warmed(m, until)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	l, err := OpenLanguage(h.session(m, nil))
	if err != nil {
		return nil, err
	}
	return l, nil
}

// run ends by itself where the parent's patience has Grace left. What loading a
// model has taken does not count where the parent allowed for it.
func (h *handler) run(c subprocess.Call, s runnable, out answer, b infer.Batch) ([]byte, error) {
	until := time.Now().Add(h.cfg.RunTimeout)
	if d := c.Deadline.Add(-h.cfg.Grace); !c.Deadline.IsZero() && d.Before(until) {
		until = d
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	a, err := s.Run(ctx, b)
	if err != nil {
		return nil, outgoing(err)
	}
	defer a.Release()
	body, err := encodeAnswer(h.body, out, a.Outputs)
	if !h.cfg.Fresh { // a child has sent the last answer before it is asked again
		h.body = body
	}
	return body, err
}

// feed gives a model up that has lacked memory twice in a row. The arena of a
// session keeps what it has, in pieces that may fit nothing any more; the next run
// loads the model anew.
func (h *handler) feed(m infer.Model, err error) {
	if !errors.Is(err, infer.ErrMemory) || errors.Is(err, errBudget) {
		h.starved[m] = 0
		return
	}
	if h.starved[m]++; h.starved[m] < 2 {
		return
	}
	_ = h.unload(m) // it cannot fail
}

// unload closes the session of a model, if there is one.
func (h *handler) unload(m infer.Model) error {
	s := h.sessions[m]
	delete(h.sessions, m)
	delete(h.starved, m)
	if s == nil {
		return nil
	}
	return s.Close()
}

// Close ends the sessions.
func (h *handler) Close() error {
	err := h.canary.Close()
	for _, s := range h.sessions {
		if cerr := s.Close(); err == nil {
			err = cerr
		}
	}
	return err
}
