package ppocr

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/internal/pytext"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// Inferer runs one model on one item.
type Inferer interface {
	// Infer returns the outputs of the item, without a batch axis. It returns when ctx ends. Its
	// errors wrap the sentinels of package infer or ctx's error. After Infer has returned a nil
	// error, the item's data is no longer read. Infer is safe for concurrent use.
	Infer(ctx context.Context, req infer.Request) ([]infer.Tensor, error)
}

// describer is an Inferer that loads its model and says what it is.
type describer interface {
	Info(ctx context.Context) (infer.Info, error)
}

// Models are the models of a Reader. Inputs are planes of floats, (3, height, width). The detector
// returns probabilities (1, height, width), and the recogniser probabilities of classes (steps,
// classes).
type Models struct {
	// Det finds the lines of a picture, and Rec reads one line. Both are required, except that
	// Config.WholePicture uses no Det.
	Det, Rec Inferer
}

// Result is a line of text and its position.
type Result struct {
	// Text is the text of the line; it is never empty.
	Text string
	// Confidence is the mean probability of the characters, 0 to 1.
	Confidence float64
	// Quad holds the corners top left, top right, bottom right, bottom left, as x, y in pixels of
	// the frame.
	Quad [4][2]float64
	// Detection is the mean probability of the region. It is 1 for a whole picture.
	Detection float64
}

// Reader reads text with PP-OCR models. It is safe for concurrent use.
type Reader struct {
	cfg       Config
	constants constants
	models    Models
	detTable  *table
	lineTable *table
	scratch   scratch

	alphabet *localmodel.Once[dictionary] // made when the models are loaded

	mu     sync.Mutex // guards closed, and adding to busy against it
	closed bool
	busy   sync.WaitGroup  // frames being read
	ctx    context.Context //nolint:containedctx // ends with the reader, and with it every frame
	cancel context.CancelCauseFunc
}

var (
	_ ocr.Turner     = (*Reader)(nil)
	_ rewards.Warmer = (*Reader)(nil)
	_ rewards.Closer = (*Reader)(nil)
	_ rewards.Queuer = (*Reader)(nil)

	_ rewards.Concurrent = (*Reader)(nil)
)

// Concurrency returns the concurrency of the model whose device executes the fewest calls at the
// same time.
func (r *Reader) Concurrency() int { return rewards.ConcurrencyOf(r.narrowest()) }

// ConcurrencyReason returns the reason for the result of Concurrency.
func (r *Reader) ConcurrencyReason() string { return rewards.ConcurrencyReason(r.narrowest()) }

func (r *Reader) narrowest() Inferer { return rewards.Narrowest(r.first(), r.models.Rec) }

// first is the model that a frame is made ready for.
func (r *Reader) first() Inferer {
	if r.cfg.WholePicture {
		return r.models.Rec
	}
	return r.models.Det
}

// Queues marks that the component's timeout starts when a model begins with a frame or a line.
func (*Reader) Queues() {}

// New checks the configuration and returns a Reader. It loads no models.
func New(cfg Config, models Models) (*Reader, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("ppocr: %w", err)
	}
	if models.Rec == nil || (models.Det == nil && !cfg.WholePicture) {
		return nil, errors.New("ppocr: a detector and a recogniser are needed; whole pictures need no detector")
	}
	c := cfg.Profile.constants()
	r := &Reader{
		cfg: cfg, constants: c, models: models,
		detTable: c.detectorTable(), lineTable: lineTable(),
		alphabet: localmodel.NewOnce[dictionary](nil),
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r, nil
}

// Turn waits for permission to prepare a frame for the device of its first model, if the number of
// prepared frames is limited. The component's timeout does not start with Turn, but when the first
// model begins.
func (r *Reader) Turn(ctx context.Context) (ocr.Turn, error) {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	leave, err := infer.Enter(ctx, r.first())
	if err != nil {
		return nil, r.classify(ctx, fmt.Errorf("waiting for a model: %w", err))
	}
	return visit{r, leave}, nil
}

// visit is leave to make a frame ready.
type visit struct {
	*Reader

	leave func()
}

// Done implements ocr.Turn.
func (v visit) Done() { v.leave() }

var _ ocr.Named = (*Reader)(nil)

// Reader implements ocr.Named.
func (*Reader) Reader() string { return ocr.ReaderPPOCR }

// ReadText reads one frame. Errors have the class BadInput (larger than MaxPixels or
// MaxDetectorPixels, or so flat that a resized side would be 0), Crashed, Timeout, Unavailable,
// Panicked or Internal, or wrap ctx's cancellation.
func (r *Reader) ReadText(ctx context.Context, px *rewards.Pixels, frame int) ([]ocr.Line, error) {
	if frame < 0 || frame >= px.Count || px.Width < 1 || px.Height < 1 || len(px.RGB) != px.Count*px.Width*px.Height*3 {
		return nil, fmt.Errorf("%w: frame %d of %d with %d bytes for %dx%d", rewards.Internal, frame, px.Count, len(px.RGB), px.Width, px.Height)
	}
	found, err := r.Read(ctx, px.Frame(frame), px.Width, px.Height)
	if err != nil {
		return nil, err
	}
	lines := make([]ocr.Line, len(found))
	for i, f := range found {
		lines[i] = ocr.Line{Text: f.Text, Confidence: f.Confidence, Box: f.Box(px.Width, px.Height)}
	}
	return lines, nil
}

// Box returns the smallest upright box around the corners, within the frame: x0, y0, x1, y1, where
// x1 and y1 are exclusive.
func (r Result) Box(width, height int) [4]int {
	x0, y0, x1, y1 := math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	for _, c := range r.Quad {
		x0, x1 = min(x0, c[0]), max(x1, c[0])
		y0, y1 = min(y0, c[1]), max(y1, c[1])
	}
	return [4]int{
		int(math.Floor(x0)), int(math.Floor(y0)),
		min(int(math.Floor(x1))+1, width), min(int(math.Floor(y1))+1, height),
	}
}

// Read is like ReadText, but also returns the corners of the lines. rgb holds height rows of width
// pixels of three bytes each.
func (r *Reader) Read(ctx context.Context, rgb []byte, width, height int) ([]Result, error) {
	if width < 1 || height < 1 || width > len(rgb) || len(rgb) != width*height*3 {
		return nil, fmt.Errorf("%w: %d bytes for %dx%d", rewards.Internal, len(rgb), width, height)
	}
	if n := width * height; n > r.cfg.MaxPixels {
		return nil, fmt.Errorf("%w: a frame of %dx%d, ppocr reads at most %d pixels", rewards.BadInput, width, height, r.cfg.MaxPixels)
	}
	alphabet, err := r.load(ctx)
	if err != nil {
		return nil, err
	}
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var out []Result
	err = rewards.Guard(func() (err error) {
		out, err = r.read(ctx, bitmap{W: width, H: height, Pix: rgb}, alphabet)
		return err
	})
	if err != nil {
		return nil, r.classify(ctx, err)
	}
	return out, nil
}

func (r *Reader) read(ctx context.Context, src bitmap, alphabet dictionary) ([]Result, error) {
	if r.cfg.WholePicture {
		return r.readWhole(ctx, src, alphabet)
	}
	p, err := r.constants.prepare(src, r.cfg.MaxPixels)
	if err != nil {
		return nil, err
	}
	regions, err := r.detect(ctx, p)
	if err != nil {
		return nil, err
	}
	regions, lines, err := r.recognise(ctx, p, regions, alphabet)
	if err != nil {
		return nil, err
	}
	var out []Result
	for i, l := range lines {
		if !r.keeps(l) {
			continue
		}
		out = append(out, Result{Text: l.text, Confidence: l.confidence, Quad: p.restore(regions[i].Quad), Detection: regions[i].Score})
	}
	return out, nil
}

// keeps tells whether a line counts: it has text, and enough confidence.
func (r *Reader) keeps(l reading) bool {
	return strings.TrimFunc(l.text, pytext.IsSpace) != "" && l.confidence >= r.cfg.TextScore
}

// fast tells whether a page is read in fast mode.
func (r *Reader) fast(p page) bool { return r.cfg.Mode == Fast && !long(p.W, p.H) }

// begin counts a frame in, unless the reader is closed. The context that it returns ends
// with ctx or with the reader; end counts the frame out.
func (r *Reader) begin(ctx context.Context) (context.Context, func(), error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil, rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: ppocr: %w", rewards.Unavailable, errClosed))
	}
	r.busy.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(r.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		r.busy.Done()
	}, nil
}

var errClosed = errors.New("the reader is closed")

// classify gives an error of the models its class; the reader's end comes before it.
func (r *Reader) classify(ctx context.Context, err error) error {
	if r.ctx.Err() != nil {
		return rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: ppocr: %w", rewards.Unavailable, errors.Join(errClosed, err)))
	}
	return localmodel.Classify(ctx, fmt.Errorf("ppocr: %w", err))
}

// Close cancels the readings in progress and waits for them. It does not close the models, which
// belong to their owner.
func (r *Reader) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel(errClosed)
	r.busy.Wait()
	return nil
}

// scratch keeps buffers between frames: at 736x736 a detector's input has 6.5 MB,
// which would otherwise be cleared and collected each time. Contents are whatever
// they were. A buffer whose Infer failed is not put back: whoever runs the model
// may still be reading it.
type scratch struct {
	floatPool sync.Pool // *[]float32
	bytePool  sync.Pool // *[]byte
}

func (s *scratch) floats(n int) []float32 {
	if p, ok := s.floatPool.Get().(*[]float32); ok && cap(*p) >= n {
		return (*p)[:n]
	}
	return make([]float32, n)
}

func (s *scratch) putFloats(b []float32) { s.floatPool.Put(&b) }

func (s *scratch) bytes(n int) []byte {
	if p, ok := s.bytePool.Get().(*[]byte); ok && cap(*p) >= n {
		return (*p)[:n]
	}
	return make([]byte, n)
}

func (s *scratch) putBytes(b []byte) { s.bytePool.Put(&b) }
