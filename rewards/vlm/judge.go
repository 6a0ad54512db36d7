package vlm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// Deps provides what judges need from the process.
type Deps struct {
	// Nets runs the models. The owner of Nets closes it.
	Nets infer.Nets
	// Folder returns the folder of a model, which is given by its name in the catalogue or by a
	// path. If nil, every model is a path.
	Folder func(model string) (string, error)
	// Decoder decodes the pictures of a Chat, with a limit for their memory. If nil, chats must not
	// contain pictures.
	Decoder rewards.Decoder
}

// folder is where a model lies.
func (d Deps) folder(model string) (string, error) {
	if d.Folder == nil {
		return filepath.Clean(model), nil
	}
	path, err := d.Folder(model)
	return filepath.Clean(path), err
}

// DefaultModel is the model of a judge whose options set none.
const DefaultModel = "smolvlm-256m"

// Options select the model of a judge, and how pictures are shown to the model.
type Options struct {
	// Model is a folder in the layout of transformers.js, or a name in the catalogue.
	Model string `json:"model"`
	// Device is "cpu" (the default), "cuda" for every card of the reward pool, or "cuda:<n>".
	Device string `json:"device"`
	// DType is the precision of all sessions: fp32, fp16, int8, uint8, q8, q4, q4f16, bnb4, q2, q1,
	// q2f16 or q1f16. The default is the value in judge.json, otherwise fp32.
	DType string `json:"dtype"`
	// Split shows large pictures in tiles, if the family supports tiles: a picture of 4 × 4 tiles
	// costs 16 times as much, and small print becomes legible. The default (nil) is the value in
	// judge.json, otherwise false.
	Split *bool `json:"split"`
}

// defaultOptions is what options that name nothing mean.
func defaultOptions() Options { return Options{Model: DefaultModel, Device: infer.CPU} }

func (o Options) validate() error {
	var errs rewards.Faults
	errs.Add(o.Model == "", "model: is empty; want a folder, or a name of the catalogue")
	errs.Add(!infer.ValidDevice(o.Device), "device: %q is unknown, want %s", o.Device, infer.DeviceForm)
	if err := checkDType(o.DType); err != nil {
		errs = append(errs, fmt.Errorf("dtype: %w", err))
	}
	return errors.Join(errs...)
}

// Judges holds all judges of a process. It does not need to be closed.
type Judges struct {
	deps Deps

	mu     sync.Mutex
	models map[modelKey]*model // guarded by mu
	judges map[judgeKey]*Judge // guarded by mu
}

type judgeKey struct {
	model modelKey
	split bool
}

// NewJudges returns Judges without any judge. It loads nothing.
func NewJudges(d Deps) *Judges {
	return &Judges{deps: d, models: make(map[modelKey]*model), judges: make(map[judgeKey]*Judge)}
}

// Judge returns the judge for the options. Equal options give the same judge. An error describes
// what is missing: an unknown model, a missing file in its folder, or an unknown family. The
// networks are loaded at the first question, or by Warm.
func (j *Judges) Judge(o Options) (*Judge, error) {
	o.Device = cmp.Or(o.Device, infer.CPU)
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("vlm: %w", err)
	}
	if j == nil || j.deps.Nets == nil {
		return nil, errors.New("vlm: this process has no runner for models")
	}
	folder, err := j.deps.folder(o.Model)
	if err != nil {
		return nil, fmt.Errorf("vlm: model %q: %w", o.Model, err)
	}
	key := modelKey{folder: folder, device: o.Device, dtype: o.DType}
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.models[key]
	if m == nil {
		if m, err = newModel(filepath.Base(key.folder), key, j.deps.Nets); err != nil {
			return nil, fmt.Errorf("vlm: model %q: %w", o.Model, err)
		}
		j.models[key] = m
	}
	split := m.folder.sidecar.Split
	if o.Split != nil {
		split = *o.Split
	}
	k := judgeKey{key, split}
	if j.judges[k] == nil {
		refused := localmodel.NewCache(refusedEntries, refusedBytes, func(r chat.Reply) int { return 1024 + len(r.Text) })
		j.judges[k] = &Judge{model: m, split: split, deps: j.deps, refused: refused}
	}
	return j.judges[k], nil
}

// Judge is a vision language model in this process. It is safe for concurrent use and does not need
// to be closed.
type Judge struct {
	model   *model
	split   bool
	deps    Deps
	refused *localmodel.Cache[chat.Reply] // what an Accept was not content with
}

var (
	_ rewards.Warmer = (*Judge)(nil)
	_ ocr.Turner     = (*Judge)(nil)
	_ rewards.Queuer = (*Judge)(nil)

	_ rewards.Concurrent = (*Judge)(nil)
)

// Concurrency returns how many questions the model's device executes at the same time.
func (j *Judge) Concurrency() int { return rewards.ConcurrencyOf(j.model.executors()) }

// ConcurrencyReason returns what executes the questions, as text.
func (j *Judge) ConcurrencyReason() string { return rewards.ConcurrencyReason(j.model.executors()) }

// Queues marks that the component's timeout starts when the model begins with a picture or text.
func (*Judge) Queues() {}

// Name returns the name of the model's folder.
func (j *Judge) Name() string { return j.model.name }

// Turn waits for permission to prepare a frame for the vision encoder's device, if the number of
// prepared frames is limited.
func (j *Judge) Turn(ctx context.Context) (ocr.Turn, error) {
	l, err := j.ready(ctx)
	if err != nil {
		return nil, err
	}
	leave, err := l.enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("vlm: %s: %w", j.model.name, localmodel.Classify(ctx, err))
	}
	return visit{j, leave}, nil
}

// visit is leave to make a frame ready.
type visit struct {
	*Judge

	leave func()
}

// Done implements ocr.Turn.
func (v visit) Done() { v.leave() }

// ready loads the model.
func (j *Judge) ready(ctx context.Context) (*loaded, error) {
	l, err := j.model.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("vlm: %w", localmodel.Classify(ctx, err))
	}
	return l, nil
}

// Warm loads the model and runs a question about a grey picture, so that the first sample does not
// wait for either. It may be called again.
func (j *Judge) Warm(ctx context.Context) error {
	l, err := j.ready(ctx)
	if err != nil {
		return err
	}
	px := &rewards.Pixels{Width: 64, Height: 64, Count: 1, RGB: make([]byte, 64*64*3)}
	for i := range px.RGB {
		px.RGB[i] = 128
	}
	q := inquiry{name: "warming up", turns: func(pictures int) []turn { return turnsOf("", "Is it grey?", pictures) }}
	v, err := j.open(ctx, l, q, px, []int{0})
	if err == nil {
		_, err = l.pick(ctx, q.name, v.prompt, v.seen, nil, 1, []int64{0})
	}
	if err != nil {
		return fmt.Errorf("vlm: %s: a trial question fails: %w", j.model.name, localmodel.Classify(ctx, err))
	}
	return nil
}

// inquiry is a question that is yet to be shown frames.
type inquiry struct {
	name   string // in errors
	turns  func(pictures int) []turn
	prefix string
}

// turnsOf is a question about as many pictures, which stand before the text.
func turnsOf(system, text string, pictures int) []turn {
	var turns []turn
	if system != "" {
		turns = append(turns, turn{Role: "system", Parts: []part{{Text: system}}})
	}
	parts := make([]part, 0, pictures+1)
	for range pictures {
		parts = append(parts, part{Image: true})
	}
	return append(turns, turn{Role: "user", Parts: append(parts, part{Text: text})})
}

// opened is a question with its frames, as the language model takes both.
type opened struct {
	prompt encoded
	seen   []picture
}

// open looks at frames and puts the question about them.
func (j *Judge) open(ctx context.Context, l *loaded, q inquiry, px *rewards.Pixels, frames []int) (opened, error) {
	views, err := j.views(ctx, l, px, frames)
	if err != nil {
		return opened{}, err
	}
	return j.put(ctx, l, q, views)
}

// views makes of frames what the vision encoder takes. Whether they are too many is found out
// before it runs.
func (j *Judge) views(ctx context.Context, l *loaded, px *rewards.Pixels, frames []int) ([]*view, error) {
	var views []*view
	for _, f := range frames {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("preparing frame %d for the model: %w", f, err)
		}
		v, err := j.look(l, px, f)
		if err != nil {
			return nil, err
		}
		if views, err = l.with(views, v); err != nil {
			return nil, err
		}
	}
	return views, nil
}

// look makes of a frame what the vision encoder takes.
func (j *Judge) look(l *loaded, px *rewards.Pixels, frame int) (*view, error) {
	if frame < 0 || frame >= px.Count || px.Width < 1 || px.Height < 1 || len(px.RGB) != px.Count*px.Width*px.Height*3 {
		return nil, fmt.Errorf("%w: frame %d of %d with %d bytes for %d×%d", rewards.Internal, frame, px.Count, len(px.RGB), px.Width, px.Height)
	}
	v, err := l.family.Look(px, frame, j.split)
	if err != nil {
		return nil, fmt.Errorf("frame %d: %w", frame, err)
	}
	return v, nil
}

// put makes the prompt for views, and runs the vision encoder on them.
func (j *Judge) put(ctx context.Context, l *loaded, q inquiry, views []*view) (opened, error) {
	p, err := j.model.prompt(ctx, l, q.turns(len(views)), q.prefix, views)
	if err != nil {
		return opened{}, err
	}
	if err := l.fits(p, 1); err != nil {
		return opened{}, err
	}
	seen, err := l.see(ctx, views)
	return opened{p, seen}, err
}
