package python

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
)

// Devices runs models, in batches whose size follows from measured costs. *node.Devices implements
// it.
type Devices interface {
	// Python returns the handle of a model that runs on o.Devices. open creates the Runner for one
	// device; visible is the CUDA_VISIBLE_DEVICES of its processes, or "" for the CPU. share is the
	// assumed fraction of each card's memory that the model needs; 0 means unknown. Equal models
	// share one handle.
	Python(m infer.Model, o pool.ModelOptions, share float64, open func(visible string) *Runner) (*pool.Model, error)
}

// Model is a user's model, which scores samples in batches. It is safe for concurrent use.
type Model struct {
	opts   Options
	fields []rewards.Field
	net    *pool.Model // nil: lacks says why
	lacks  error       // this machine lacks a device of the model
	known  knownCalls

	mu    sync.Mutex
	about *about // guarded by mu; nil: it was not loaded by Warm
}

var (
	_ rewards.Scorer              = (*Model)(nil)
	_ rewards.Warmer              = (*Model)(nil)
	_ rewards.Queuer              = (*Model)(nil)
	_ rewards.Knower              = (*Model)(nil)
	_ rewards.Reliant             = (*Model)(nil)
	_ rewards.Concurrent          = (*Model)(nil)
	_ rewards.ConcurrencyReasoner = (*Model)(nil)
)

// declaredModel is a Model whose extra fields are known at load.
type declaredModel struct{ *Model }

var _ rewards.ExtraFielder = declaredModel{}

// ExtraFields returns Options.ExtraKeys by name.
func (d declaredModel) ExtraFields() []rewards.Field { return slices.Clone(d.fields) }

// newModel makes the scorer of a model without starting anything: Warm or the first Score does.
func (f *Functions) newModel(opts Options) (*Model, error) {
	cfg, opts := f.cfg.WithDefaults(), opts.WithDefaults()
	if err := errors.Join(cfg.Validate(), opts.Validate()); err != nil {
		return nil, err
	}
	if f.devices == nil {
		return nil, fmt.Errorf("python: %s has the keys of a model, but no device is configured", opts.label())
	}
	what, err := json.Marshal([]any{opts, cfg.interpreter(opts)})
	if err != nil {
		return nil, fmt.Errorf("python: %w", err)
	}
	sum := sha256.Sum256(what)
	placed := opts.Placement
	o := placed.options(opts.runTimeout())
	o.Devices = placed.Devices
	if opts.Grouped() {
		o.MaxBatch = 1 // a group is one message
	}
	net, err := f.devices.Python(infer.Model{
		Name: opts.label(), Path: opts.Path, Device: strings.Join(placed.Devices, ", "),
		Entry: opts.label() + "#" + hex.EncodeToString(sum[:3]),
	}, o, placed.Fraction, func(visible string) *Runner {
		r := &Runner{cfg: cfg, opts: opts, card: visible}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.models = append(f.models, r)
		return r
	})
	m := &Model{opts: opts, fields: fieldsOf(opts), net: net}
	if errors.Is(err, infer.ErrMissing) { // the plan of cards has said so; other processes may have them
		m.lacks, err = err, nil
	}
	return m, err
}

// scorer is the Model as others see it.
func (m *Model) scorer() rewards.Scorer {
	if m.opts.ExtraKeys != nil {
		return declaredModel{m}
	}
	return m
}

// Queues implements rewards.Queuer: the component's timeout starts when a process takes the batch.
func (*Model) Queues() {}

// Concurrency returns how many samples the model's processes execute and prepare at the same time.
func (m *Model) Concurrency() int {
	if m.lacks != nil {
		return 0
	}
	return m.net.Concurrency()
}

// ConcurrencyReason returns the number of processes, as text.
func (m *Model) ConcurrencyReason() string {
	if m.lacks != nil {
		return m.lacks.Error()
	}
	return m.net.ConcurrencyReason()
}

// Warm loads the model. If the file cannot be imported, Warm fails with the traceback.
func (m *Model) Warm(ctx context.Context) error {
	if m.lacks != nil {
		return localmodel.Classify(ctx, m.lacks)
	}
	info, err := m.net.Info(ctx)
	if err != nil {
		return localmodel.Classify(ctx, err)
	}
	a := &about{}
	if err := json.Unmarshal([]byte(info.Metadata[aboutKey]), a); err != nil {
		return fmt.Errorf("%w: %s: description from the process: %w", rewards.Internal, m.opts.label(), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.about = a
	return nil
}

// head is what a process gets of a sample beside the bytes of its media.
type head struct {
	*rewards.Sample

	Media []tensor `json:"media,omitempty"`
}

// Score scores the sample in a batch with others. Its errors are those of a function (see
// Scorer.Score). If a batch raises an exception, its samples are scored one by one. Only the sample
// that ended its process or hung fails with the class Crashed or Timeout.
func (m *Model) Score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	if m.lacks != nil {
		return rewards.Score{}, localmodel.Classify(ctx, m.lacks)
	}
	if err := m.opts.lacking(sample); err != nil {
		return rewards.Score{}, err
	}
	leave, err := m.net.Enter(ctx)
	if err != nil {
		return rewards.Score{}, localmodel.Classify(ctx, err)
	}
	defer leave()
	p := &payload{frames: m.opts.Frames}
	var media []tensor
	if f, formed := m.opts.form(); !formed || f.media {
		if media, err = p.add(ctx, sample); err != nil {
			p.giveBack()
			return rewards.Score{}, err
		}
	}
	js, err := json.Marshal(head{sample, media})
	if err != nil {
		p.giveBack()
		return rewards.Score{}, fmt.Errorf("%w: %s: %w", rewards.BadInput, m.opts.label(), err)
	}
	r, err := m.ask(ctx, sample.ID, &infer.Message{Head: js, Blobs: p.body, Release: p.giveBack})
	if err != nil {
		return rewards.Score{}, err
	}
	return r.score(m.opts)
}

// ask has a process answer a message. A failure that the process reports is an error.
func (m *Model) ask(ctx context.Context, name string, msg *infer.Message) (reply, error) {
	var r reply
	out, err := m.net.Infer(ctx, infer.Request{Name: name, Message: msg})
	if err != nil {
		return r, m.failure(ctx, err)
	}
	if err := decodeNumbers([]byte(out[0].Texts[0]), &r); err != nil {
		return r, fmt.Errorf("%w: %s: %w: %w", rewards.Internal, m.opts.label(), errFrame, err)
	}
	return r, r.failure(m.opts)
}

// failure gives an error of the pool its class and its blame: what a function does by itself is the
// function's fault, as it is where it runs one sample at a time.
func (m *Model) failure(ctx context.Context, err error) error {
	if said, ok := errors.AsType[*callError](err); ok {
		return reply{Op: "error", Class: said.class, Module: said.module, Message: said.message}.failure(m.opts)
	}
	if errors.Is(err, infer.ErrCrashed) && !errors.Is(err, infer.ErrHost) && !errors.Is(err, infer.ErrLoad) {
		return rewards.Blamed(rewards.BlameReward, fmt.Errorf("%w: %w", rewards.Crashed, err))
	}
	return localmodel.Classify(ctx, err)
}

// knownKinds are those of a Scorer; none before Warm has loaded the model.
func (m *Model) knownKinds() (kinds []string, text bool) {
	m.mu.Lock()
	a := m.about
	m.mu.Unlock()
	switch {
	case a == nil:
		return nil, false // Warm has said why
	case m.opts.Probe != nil:
		return m.opts.Probe, true
	case m.opts.Signature != "":
		f, _ := m.opts.form()
		return []string{f.probe}, true
	}
	return a.Kinds, a.Text
}

// KnownSamples implements rewards.Knower.
func (m *Model) KnownSamples() []*rewards.Sample { return knownSamples(m.knownKinds()) }

// TryKnown implements rewards.Knower, as Scorer does. It makes no calls before Warm has loaded the
// model.
func (m *Model) TryKnown(ctx context.Context, timeout time.Duration) []rewards.Tried {
	kinds, text := m.knownKinds()
	return m.known.try(ctx, timeout, kinds, func(ctx context.Context, kind string) error {
		_, err := m.Score(ctx, KnownSample(kind, text))
		return err
	})
}

// Dependency returns the module that the model needs and that is missing on this machine, according
// to the last TryKnown. It returns the zero value if nothing is missing.
func (m *Model) Dependency() rewards.Dependency { return m.known.dependency(m.opts) }
