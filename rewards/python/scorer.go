package python

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// Scorer is a user's function. It is safe for concurrent use.
type Scorer struct {
	opts   Options
	fields []rewards.Field
	pool   *processes
	known  knownCalls
}

var (
	_ rewards.Scorer = (*Scorer)(nil)
	_ rewards.Warmer = (*Scorer)(nil)
	_ rewards.Closer = (*Scorer)(nil)
	_ rewards.Queuer = (*Scorer)(nil)
)

// declared is a Scorer whose extra fields are known at load.
type declared struct{ *Scorer }

var _ rewards.ExtraFielder = declared{}

// ExtraFields returns Options.ExtraKeys by name.
func (d declared) ExtraFields() []rewards.Field { return slices.Clone(d.fields) }

// New returns the scorer of one function. It starts nothing; Warm or the first Score starts the
// first process. The result always implements rewards.Warmer and rewards.Closer, and
// rewards.ExtraFielder if the options declare extra keys.
func New(cfg Config, opts Options) (rewards.Scorer, error) {
	if opts.Placement != nil || opts.Signature != "" {
		return nil, errors.New("python: create a model or a function of groups with Functions")
	}
	s, err := newScorer(cfg, opts, nil)
	if err != nil {
		return nil, err
	}
	return s.scorer(), nil
}

// newScorer makes the scorer of a function that shares with others; nil: with none.
func newScorer(cfg Config, opts Options, with *share) (*Scorer, error) {
	cfg, opts = cfg.WithDefaults(), opts.WithDefaults()
	if err := errors.Join(cfg.Validate(), opts.Validate()); err != nil {
		return nil, err
	}
	if with == nil {
		with = newShare(cfg)
	}
	s := &Scorer{opts: opts, fields: fieldsOf(opts), pool: newPool(cfg, opts, with)}
	return s, nil
}

// fieldsOf are the extra fields that options declare, by name.
func fieldsOf(opts Options) (fields []rewards.Field) {
	for _, name := range slices.Sorted(maps.Keys(opts.ExtraKeys)) {
		fields = append(fields, rewards.Field{Name: name, Kind: opts.ExtraKeys[name]})
	}
	return fields
}

// scorer is the Scorer as others see it: whether it declares its extra fields
// depends on the options.
func (s *Scorer) scorer() rewards.Scorer {
	if s.opts.ExtraKeys != nil {
		return declared{s}
	}
	return s
}

// Spec describes the scorer "python" for a registry.
func (f *Functions) Spec() rewards.Spec {
	return rewards.Spec{
		Name:    "python",
		Summary: "a reward function in Python, run in child processes",
		Concurrency: "a synchronous function: one call for each process (pool.python.processes, one for each CPU); an async def function: 256 calls in one process; " +
			"if concurrency is set: that many calls in one process, in threads if the function is synchronous",
		Options: []rewards.Option{
			{Name: "path", Type: "string", Default: "none", Doc: "file such as my_reward.py, or pkg://<module>"},
			{Name: "name", Type: "string", Default: functionName, Doc: "name of the function or class in the file; the function may be async"},
			{Name: "kwargs", Type: "object", Default: "none", Doc: "keyword arguments of every call: the other keys of the component's entry, or reward_kwargs"},
			{Name: "extra_keys", Type: "object", Default: "as they come", Doc: "scalars that the function returns beside score: name and kind (number, bool or string)"},
			{Name: "pixels", Type: "string", Default: "auto", Doc: "form of pictures in a call: numpy, torch, pil, path (a file that exists during the call), or auto (torch if the module imports torch, else numpy)"},
			{Name: "interpreter", Type: "string", Default: "pool.python.interpreter", Doc: "Python program that runs the function, such as one of a virtual environment"},
			{Name: "signature", Type: "string", Default: "one sample", Doc: "arguments with which the function is called: " + strings.Join(Signatures(), ", ")},
			{Name: "reference", Type: "string", Default: "none", Doc: "field of the sample with a reference answer, which joins each group of validation as one more member: ground_truth, extra_info.y.0.content"},
			{Name: "placement", Type: "object", Default: "none", Doc: "placement of a model that runs in batches on devices; keys: batch, devices, num_replicas, fraction, max_batch_size, max_batch_pixels, batch_wait_timeout_s, warmup, load_timeout"},
			{Name: "timeout", Type: "integer", Default: "none", Doc: "timeout of the component in nanoseconds; the timeout of a model's batch follows from this timeout"},
			{Name: "concurrency", Type: "integer", Default: "256 async, else 1", Doc: "maximum number of calls that one process runs at a time; calls of a synchronous function run in threads"},
			{Name: "agent_concurrency", Type: "integer", Default: "1", Doc: "concurrency of a class whose compute_score is synchronous, if concurrency is not set"},
			{Name: "memory", Type: "integer", Default: "pool.python.memory", Doc: "maximum resident memory in bytes of a process together with the processes it starts"},
			{Name: "probe", Type: "array", Default: "by its parameters", Doc: "kinds of test samples with which the function is called at start: image, video, text; none: no call at start"},
			{Name: "env", Type: "array", Default: "all but secrets", Doc: "environment variables that the function gets from the server, besides those of Python and accelerators"},
		},
		Build: func(raw json.RawMessage) (rewards.Scorer, error) {
			var opts Options
			if err := rewards.DecodeOptions(raw, &opts); err != nil {
				return nil, err
			}
			return f.make(opts)
		},
		BuildGroup: func(raw json.RawMessage) (rewards.GroupScorer, error) {
			var opts Options
			if err := rewards.DecodeOptions(raw, &opts); err != nil {
				return nil, err
			}
			return f.makeGroup(opts)
		},
		Inspect: f.inspect,
	}
}

// Queues implements rewards.Queuer: the component's timeout starts when a process gets the call.
func (*Scorer) Queues() {}

// Warm starts the first process. If the function cannot be imported, Warm fails with the traceback.
func (s *Scorer) Warm(ctx context.Context) error { return s.pool.warm(ctx) }

// Close kills the processes. Calls in flight fail.
func (s *Scorer) Close() error {
	s.pool.stop()
	return nil
}

// Stats returns a snapshot of the processes.
func (s *Scorer) Stats() Stats { return s.pool.snapshot() }

// Score calls the function. Its errors have the class Timeout (deadline), Crashed (the process
// ended), Unavailable (no process starts, or the function itself raised a connection or timeout
// error), InvalidScore (None, NaN, an empty list, a wrong type), BadInput (the sample lacks
// something that the function needs), Panicked (sys.exit) or Internal (any other exception). They
// contain the name of the exception and the traceback. The blame is BlameNobody if the call was
// still waiting for a process, and BlameWorker if the process did not start or was killed from
// outside.
func (s *Scorer) Score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	r, err := s.ask(ctx, call{Op: "call", Sample: sample})
	if err != nil {
		return rewards.Score{}, err
	}
	return r.score(s.opts)
}

// ask has a process answer. A failure that the function reports is an error as well. A
// call whose process died is repeated: beside others if it was killed for another call,
// else in a trial.
func (s *Scorer) ask(ctx context.Context, what call) (reply, error) {
	s.pool.begin()
	var on *trial
	defer func() { s.pool.acquit(on) }()
	for begun := false; ; {
		w, err := s.pool.acquire(ctx, on)
		if err != nil {
			return reply{}, err
		}
		if !begun {
			begun = true
			var cancel context.CancelFunc
			ctx, cancel = rewards.Start(ctx) //nolint:fatcontext // once
			defer cancel()
		}
		r, err := s.send(ctx, w, what)
		var suspected *suspectError
		switch {
		case errors.As(err, &suspected):
			s.pool.acquit(on)
			on = suspected.trial
		case errors.Is(err, errGone), errors.Is(err, errBystander):
			// It is asked again, within ctx.
		case err != nil:
			return reply{}, err
		default:
			return r, r.failure(s.opts)
		}
	}
}

// send decodes what a sample shows, now that the call has its place, and has the place's
// process answer. Before the next wait for a place the pixels are given back.
func (s *Scorer) send(ctx context.Context, w *waiter, what call) (reply, error) {
	t := &payload{frames: s.opts.Frames}
	var err error
	if what.group != nil {
		t, err = what.group.decode(ctx)
		what.Group = &what.group.head
	} else if what.Sample != nil {
		what.Media, err = t.add(ctx, what.Sample)
	}
	defer t.giveBack()
	if err != nil {
		s.pool.release(w, false)
		return reply{}, err
	}
	return w.place.conn.call(ctx, w, what, t.body, t.size)
}

// payload is the media of samples as a process gets them.
type payload struct {
	frames rewards.FrameChoice // of videos
	body   [][]byte
	size   int
	given  []func() // gives back what was decoded
}

func (p *payload) giveBack() {
	for _, giveBack := range p.given {
		giveBack()
	}
}

// add describes the media of a sample and appends their bytes: a raw tensor as it came, a
// picture or video in any other encoding as 8-bit RGB. The bytes are read until they are given
// back, also after an error.
func (p *payload) add(ctx context.Context, sample *rewards.Sample) (media []tensor, err error) {
	for _, m := range sample.Media {
		t := tensor{Kind: m.Kind, Layout: m.Layout, DType: m.DType, Shape: m.Shape, FPS: m.FPS, SampleRate: m.SampleRate}
		data := [][]byte{m.Data}
		if visual := m.Kind == rewards.Image || m.Kind == rewards.Video; visual && (m.Encoding != rewards.Raw || m.Kind == rewards.Video && p.frames != rewards.AllFrames()) {
			v, giveBack, err := m.BorrowFrames(ctx, p.frames)
			if err != nil {
				return nil, err
			}
			p.given = append(p.given, giveBack)
			data = [][]byte{v.RGB}
			if len(v.At) < v.Count {
				data = data[:0]
				for i := range v.At {
					data = append(data, v.Bytes(i))
				}
			}
			t.DType, t.Layout, t.Shape, t.FPS = "U8", rewards.THWC, []int{len(v.At), v.Height, v.Width, 3}, v.FPS
			if m.Kind == rewards.Image {
				t.Layout, t.Shape = rewards.HWC, t.Shape[1:]
			}
		}
		if m.Kind == rewards.Audio && m.Encoding != rewards.Raw {
			s, giveBack, err := m.BorrowSound(ctx)
			if err != nil {
				return nil, err
			}
			p.given = append(p.given, giveBack)
			t.DType, t.Layout, t.Shape, t.SampleRate = s.DType, "TC", []int{s.Count, s.Channels}, s.Rate
			data = [][]byte{s.Data}
		}
		if pad := -p.size & 15; pad > 0 { // tensors begin at multiples of 16 bytes
			p.body, p.size = append(p.body, make([]byte, pad)), p.size+pad
		}
		t.At = p.size
		for _, part := range data {
			t.Size += len(part)
		}
		media, p.body, p.size = append(media, t), append(p.body, data...), p.size+t.Size
	}
	return media, nil
}

// failure is the failure that a process's answer tells of; nil for a result.
func (r reply) failure(opts Options) error {
	if r.Op == "skip" {
		return rewards.Skip(r.Message)
	}
	if r.Op != "error" {
		return nil
	}
	class := r.Class
	if !slices.Contains(classes, class) {
		class = rewards.Internal
	}
	message := r.Message
	if r.Output != "" {
		message += "\nit printed: " + r.Output
	}
	err := fmt.Errorf("%w: %s: %s", class, opts.label(), message)
	if r.Module != "" {
		return &lacking{err, r.Module}
	}
	return err
}

// score reads a process's result.
func (r reply) score(opts Options) (rewards.Score, error) {
	if r.Op != "result" || r.Score == nil {
		return rewards.Score{}, fmt.Errorf("%w: %s: the process answered %q", rewards.Internal, opts.label(), r.Op)
	}
	value, err := r.Score.Float64()
	if err != nil || math.IsInf(value, 0) {
		return rewards.Score{}, fmt.Errorf("%w: %s: the score is %s", rewards.InvalidScore, opts.label(), *r.Score)
	}
	out := rewards.Score{Value: value, Steps: r.Steps, Extra: r.Extra, Details: r.Details}
	for name, v := range out.Extra {
		if n, ok := v.(json.Number); ok {
			out.Extra[name] = number(n)
		}
	}
	if r.Output != "" {
		out.Details = withPrinted(out.Details, r.Output)
	}
	return out, nil
}

// withPrinted adds what a call printed to details.
func withPrinted(details map[string]any, output string) map[string]any {
	if details == nil {
		details = map[string]any{}
	}
	details["printed"] = output
	return details
}

// classes are what a process may say of a failure.
//
//nolint:gochecknoglobals // a table
var classes = []rewards.Class{rewards.InvalidScore, rewards.BadInput, rewards.Unavailable, rewards.Internal, rewards.Panicked}

func number(n json.Number) any {
	if i, err := n.Int64(); err == nil {
		return i
	}
	if f, err := n.Float64(); err == nil {
		return f
	}
	return nil
}

// decodeNumbers decodes JSON and keeps integers exact.
func decodeNumbers(js []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(js))
	d.UseNumber()
	return d.Decode(into)
}
