package ocr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
)

// Line is one line of text that a reader found.
type Line struct {
	Text string `json:"text"`
	// Confidence is the reader's confidence, 0 to 1. Lines of confidence 0 do not count.
	Confidence float64 `json:"confidence"`
	// Box is x0, y0, x1, y1 in pixels of the frame; x1 and y1 are exclusive.
	Box [4]int `json:"box"`
}

// TextReader reads text from pixels. It never gets a prompt or a target. A TextReader whose calls
// wait for an executor must be a rewards.Queuer and call rewards.Start.
type TextReader interface {
	// ReadText returns the lines of a frame in reading order. A frame without lines is not an
	// error. Its errors wrap a rewards.Class or ctx's error. It is safe for concurrent use.
	ReadText(ctx context.Context, px *rewards.Pixels, frame int) ([]Line, error)
}

// Named is a TextReader with a name: ReaderPPOCR, ReaderTesseract or ReaderVLM. The details of a
// score contain the name, because two readers may read the same picture differently.
type Named interface {
	TextReader
	Reader() string
}

// Turner is a TextReader with a limited number of executors, which serve the tenants in turn. A
// frame's pixels are decoded only when its turn has come, so that waiting frames take no memory.
type Turner interface {
	TextReader
	// Turn waits for an executor. Its errors are like those of ReadText.
	Turn(ctx context.Context) (Turn, error)
}

// Turn is an idle executor of a Turner, reserved for one frame.
type Turn interface {
	// ReadText reads a frame, like TextReader.ReadText. It may be called once.
	ReadText(ctx context.Context, px *rewards.Pixels, frame int) ([]Line, error)
	// Done releases the executor. It may be called twice.
	Done()
}

// Scorer is the ocr reward, from 0 (none of the text was read) to 1 (the text was read).
type Scorer struct {
	reader  TextReader
	options Options
}

var (
	_ rewards.Scorer       = (*Scorer)(nil)
	_ rewards.ExtraFielder = (*Scorer)(nil)
	_ rewards.Warmer       = (*Scorer)(nil)
	_ rewards.Queuer       = (*Scorer)(nil)
	_ rewards.Concurrent   = (*Scorer)(nil)
)

// Concurrency returns the concurrency of the reader.
func (s *Scorer) Concurrency() int { return rewards.ConcurrencyOf(s.reader) }

// ConcurrencyReason returns the reader's reason for its concurrency.
func (s *Scorer) ConcurrencyReason() string { return rewards.ConcurrencyReason(s.reader) }

// Queues marks that the component's timeout starts when a reader begins with a frame.
func (*Scorer) Queues() {}

// New returns a scorer. The owner of the reader closes the reader; several scorers may share one.
func New(reader TextReader, options Options) (*Scorer, error) {
	if reader == nil {
		return nil, errors.New("ocr: no text reader")
	}
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("ocr: %w", err)
	}
	return &Scorer{reader: reader, options: options}, nil
}

// Spec describes the scorer for a registry. The scorer gets its reader from readers.
func Spec(readers Readers) rewards.Spec {
	return rewards.Spec{
		Name:        "ocr",
		Summary:     "similarity of the text in an image or video to the quoted text of the prompt (flow_grpo, verl-omni, deepgen, cosmos, unirl, flow_factory)",
		Options:     documentation(),
		Concurrency: "as many pictures as the reader reads at the same time: with Tesseract pool.tesseract.slots (one for each CPU); with a model " + localmodel.Concurrency,
		Build: func(raw json.RawMessage) (rewards.Scorer, error) {
			o, err := ParseOptions(raw)
			if err != nil {
				return nil, err
			}
			if readers == nil {
				return nil, errors.New("ocr: no text reader")
			}
			reader, err := readers.Reader(o.ReaderOptions)
			if err != nil {
				return nil, fmt.Errorf("ocr: %w", err)
			}
			return New(reader, o)
		},
	}
}

// ExtraFields returns distance (the edit distance without the substring rule, at most target_len;
// for a video the mean over its frames) and target_len (the code points of the normalised target,
// or of all targets together).
func (s *Scorer) ExtraFields() []rewards.Field {
	return []rewards.Field{{Name: "distance", Kind: rewards.Number}, {Name: "target_len", Kind: rewards.Number}}
}

// Warm calls Warm of the reader, if the reader has one.
func (s *Scorer) Warm(ctx context.Context) error {
	if w, ok := s.reader.(rewards.Warmer); ok {
		return w.Warm(ctx)
	}
	return nil
}

// Score reads the sample's first image or video. If a frame cannot be read, the sample fails,
// because an unread picture is not a picture without text.
func (s *Scorer) Score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	targets, err := s.options.Targets(sample)
	if err != nil {
		return rewards.Score{}, err
	}
	m, err := sample.Visual()
	if err != nil {
		return rewards.Score{}, err
	}
	if len(targets) == 0 { // no_target: zero
		return nothingAsked(), nil
	}
	// Found out before anything is waited for.
	if _, err := s.options.CompareLines(targets, nil); err != nil {
		return rewards.Score{}, fmt.Errorf("sample %q: %w", sample.ID, err)
	}
	frames, read, err := s.read(ctx, m)
	if err != nil {
		return rewards.Score{}, fmt.Errorf("sample %q %w", sample.ID, err)
	}
	video := m.Kind == rewards.Video
	var t total
	for i, lines := range read {
		if err := s.add(&t, frames[i], lines, targets, video); err != nil {
			return rewards.Score{}, fmt.Errorf("sample %q frame %d: %w", sample.ID, frames[i], err)
		}
	}
	details := s.wanted(targets)
	if reader, ok := s.reader.(Named); ok {
		details["reader"] = reader.Reader()
	}
	return t.score(details, video), nil
}

// nothingAsked is the score of a sample whose prompt asks for no text, by
// no_target: zero. The picture is not read.
func nothingAsked() rewards.Score {
	return rewards.Score{
		Extra:   map[string]any{"distance": 0.0, "target_len": int64(0)},
		Details: map[string]any{"targets": []string{}, "no_target": true},
	}
}

// wanted is what the details hold of the targets: "target", or "targets" by the
// rule that may give several.
func (s *Scorer) wanted(targets []string) map[string]any {
	if s.options.TargetRule == everyQuoted {
		return map[string]any{"targets": targets}
	}
	return map[string]any{"target": targets[0]}
}

// maxFramesAtOnce bounds the frames of one video that are with the reader together:
// enough to keep its slots busy, and one long video does not fill its queue.
const maxFramesAtOnce = 8

// read reads the frames, several at a time: the first, which shows how many there are, and
// then the others. The first failure ends the others, and is the error.
func (s *Scorer) read(ctx context.Context, m *rewards.Media) (frames []int, read [][]Line, err error) {
	g, all := errgroup.WithContext(ctx)
	g.SetLimit(maxFramesAtOnce)
	start := func(place, frame int, into *[]Line, seen func(v rewards.View)) {
		g.Go(func() error {
			err := rewards.Guard(func() (err error) { // on a goroutine of its own nobody else would catch a panic
				*into, err = s.frame(all, m, place, seen)
				return err
			})
			if err != nil {
				return fmt.Errorf("frame %d: %w", frame, err)
			}
			return nil
		})
	}
	var first []Line
	numbers := make(chan []int, 1)
	start(0, 0, &first, func(v rewards.View) { numbers <- v.Number })
	select {
	case frames = <-numbers:
		read = make([][]Line, len(frames))
		for i, frame := range frames[1:] {
			start(i+1, frame, &read[i+1], func(rewards.View) {})
		}
	case <-all.Done(): // the first has failed, or the caller has left
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	if frames == nil {
		return nil, nil, fmt.Errorf("frame 0: %w", ctx.Err())
	}
	read[0] = first
	return frames, read, nil
}

// frame waits for its turn at the reader, and then decodes and reads the frame at a place of those that are chosen.
func (s *Scorer) frame(ctx context.Context, m *rewards.Media, place int, seen func(v rewards.View)) ([]Line, error) {
	reader := s.reader.ReadText
	if t, ok := s.reader.(Turner); ok {
		turn, err := t.Turn(ctx)
		if err != nil {
			return nil, err
		}
		defer turn.Done()
		reader = turn.ReadText
	} else if _, queues := s.reader.(rewards.Queuer); !queues {
		var cancel context.CancelFunc
		ctx, cancel = rewards.Start(ctx)
		defer cancel()
	}
	v, giveBack, err := m.BorrowFrames(ctx, rewards.FramesOr(s.options.Frames, rewards.EveryFrame(s.options.FrameInterval)))
	if err != nil {
		return nil, err
	}
	defer giveBack()
	seen(v)
	return reader(ctx, v.Pixels, v.At[place])
}

// add takes what was read in a frame into the sample's score.
func (s *Scorer) add(t *total, frame int, lines []Line, targets []string, video bool) error {
	positive := video && s.options.Video == positiveMean
	texts := s.options.counted(lines)
	text := strings.Join(texts, "")
	m, err := s.options.compare(targets, texts, s.options.Substring && !positive)
	if err != nil {
		return err
	}
	t.frames++
	t.distance += m.Distance
	t.length = m.Length
	if m.Value > 0 || !positive {
		t.value += m.Value
		t.counted++
	}
	t.read = append(t.read, reading{Frame: frame, Value: m.Value, Text: clip(text), Lines: lines[:min(len(lines), maxDetailLines)]})
	return nil
}

// Bounds of what goes into details, per frame and per sample: a reader may
// return a megabyte.
const (
	maxDetailLines  = 100
	maxDetailText   = 4096
	maxDetailFrames = 64
)

// reading is what the details hold of a frame.
type reading struct {
	Frame int     `json:"frame"`
	Value float64 `json:"value"`
	Text  string  `json:"text"`
	Lines []Line  `json:"lines"`
}

func clip(s string) string {
	for i := range s {
		if i >= maxDetailText {
			return s[:i] + "… of " + strconv.Itoa(len(s)) + " bytes"
		}
	}
	return s
}

// total adds up the frames of a sample.
type total struct {
	value    float64
	counted  int // frames in the mean
	frames   int // frames read
	distance int
	length   int
	read     []reading
}

func (t *total) score(details map[string]any, video bool) rewards.Score {
	value := 0.0 // of positive_mean without a positive frame, as in the original
	if t.counted > 0 {
		value = t.value / float64(t.counted)
	}
	if video {
		details["frames"] = t.read[:min(len(t.read), maxDetailFrames)]
		details["frames_read"] = t.frames
	} else {
		details["text"], details["lines"] = t.read[0].Text, t.read[0].Lines
	}
	return rewards.Score{
		Value: value,
		Extra: map[string]any{
			"distance":   float64(t.distance) / float64(t.frames),
			"target_len": int64(t.length),
		},
		Details: details,
	}
}
