package judge

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// scorer is a reward made of answers. It holds no state of samples and may be used
// by any number of goroutines.
type scorer struct {
	client   chat.Chatter
	asking   chat.Asking
	sampling chat.Sampling
	pictures chat.Pictures
	// top is how many log probabilities each answer comes with; 0: none.
	top    int
	format *chat.Schema
	// looks says that every question shows pictures, and pair that some show two.
	looks  bool
	pair   bool
	fields []rewards.Field
	// prepare makes the questions of a sample without looking at its pixels.
	prepare func(s *rewards.Sample) (*inquiry, error)
	breadth outbound.Breadth
}

var (
	_ rewards.Scorer       = (*scorer)(nil)
	_ rewards.ExtraFielder = (*scorer)(nil)
	_ rewards.Queuer       = (*scorer)(nil)
	_ rewards.Concurrent   = (*scorer)(nil)
)

// Concurrency is how many samples the engine's questions at a time are enough for.
func (sc *scorer) Concurrency() int { return sc.breadth.Calls(rewards.ConcurrencyOf(sc.client)) }

// Dependency is the engine.
func (sc *scorer) Dependency() rewards.Dependency { return rewards.DependencyOf(sc.client) }

// ConcurrencyReason is the engine's, with how many questions a sample has at a time.
func (sc *scorer) ConcurrencyReason() string {
	return sc.breadth.Reason(rewards.ConcurrencyReason(sc.client))
}

// Queues says that the component's time begins when the engine is asked.
func (*scorer) Queues() {}

// inquiry is what is asked about one sample: every question with every group of frames.
type inquiry struct {
	system    string
	shows     choice
	questions []question
	// steps says that each question is about a step of the response, in their order.
	steps bool
	// join makes one reading of those of all questions about the same frames, in the questions' order; nil: their
	// weighted mean.
	join func([]reading) reading
}

// question is one text, and how its answer is read.
type question struct {
	label  string // of a rubric; empty: there is only one
	text   string
	weight float64
	read   func(r chat.Reply) (reading, error)
	// of are the pictures that this question shows, in this order; nil: those that shows of the inquiry says.
	of []*rewards.Media
}

// one is an inquiry of a single question.
func one(shows choice, text string, read func(chat.Reply) (reading, error)) *inquiry {
	return &inquiry{shows: shows, questions: []question{{text: text, weight: 1, read: read}}}
}

// reading is what an answer says.
type reading struct {
	value float64
	// fields are the extra fields; the mean of those who have a field becomes the sample's.
	fields map[string]float64
}

// call is one request: a question about some frames, of one picture or of each of several.
type call struct {
	question
	frames []int
	views  []*view
}

// result is what came of a call.
type result struct {
	reading
	reply *chat.Reply
	tries int
}

// ExtraFields declares the columns beside the value.
func (sc *scorer) ExtraFields() []rewards.Field { return sc.fields }

// maxCallsAtOnce bounds the requests of one sample that are under way together, and
// with it the encoded pictures in memory.
const maxCallsAtOnce = 32

// Score asks and reads. One question without a readable answer fails the sample, and
// ends the others.
func (sc *scorer) Score(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
	inq, err := sc.prepare(s)
	if err != nil {
		return rewards.Score{}, err
	}
	ctx = chat.Alike(chat.About(ctx, s.ID), cmp.Or(s.UID, s.Prompt))
	calls, err := sc.calls(ctx, s, inq)
	if err != nil {
		return rewards.Score{}, err
	}
	sc.breadth.Saw(min(len(calls), maxCallsAtOnce))
	results := make([]result, len(calls))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxCallsAtOnce)
	for i, c := range calls {
		g.Go(func() error {
			return rewards.Guard(func() (err error) { // on a goroutine of its own nobody else would catch a panic
				results[i], err = sc.call(ctx, inq.system, c)
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return rewards.Score{}, fmt.Errorf("sample %q: %w", s.ID, err)
	}
	score := combine(inq, calls, results)
	if inq.steps {
		score.Steps, score.Value = inSteps(results, len(calls)/len(inq.questions))
	}
	return score, nil
}

// calls are all requests about a sample, those about the same frames one after the other.
func (sc *scorer) calls(ctx context.Context, s *rewards.Sample, inq *inquiry) (calls []call, err error) {
	groups := [][]int{nil}
	var shown []*view
	if inq.shows.shown {
		m, err := s.Visual()
		if err != nil {
			return nil, err
		}
		v, err := look(ctx, sc.pictures, s, m, inq.shows.frames)
		if err != nil {
			return nil, err
		}
		if groups, err = inq.shows.groups(v.numbers); err != nil {
			return nil, fmt.Errorf("sample %q: %w", s.ID, err)
		}
		shown = []*view{v}
	}
	views := map[*rewards.Media]*view{}
	for _, g := range groups {
		for _, q := range inq.questions {
			c := call{q, g, shown}
			if q.of != nil {
				c.frames, c.views = []int{0}, nil
			}
			for _, m := range q.of {
				if views[m] == nil {
					if views[m], err = look(ctx, sc.pictures, s, m, rewards.FirstFrame()); err != nil {
						return nil, err
					}
				}
				c.views = append(c.views, views[m])
			}
			calls = append(calls, c)
		}
	}
	return calls, nil
}

// trial is a question with all that those of the scorer ask for.
func (sc *scorer) trial() chat.Request {
	pictures := 0
	switch {
	case sc.pair:
		pictures = 2
	case sc.looks:
		pictures = 1
	}
	r := chat.Trial(sc.asking, sc.sampling, pictures)
	r.Logprobs, r.TopLogprobs, r.ResponseFormat = sc.top > 0, sc.top, sc.format
	return r
}

// call sends one request, pictures before text.
func (sc *scorer) call(ctx context.Context, system string, c call) (result, error) {
	var parts []chat.Part
	for _, v := range c.views {
		of, err := v.parts(ctx, c.frames)
		if err != nil {
			return result{}, err
		}
		parts = append(parts, of...)
	}
	r := chat.Question(sc.asking, sc.sampling, system, parts, c.text)
	r.Logprobs, r.TopLogprobs, r.ResponseFormat = sc.top > 0, sc.top, sc.format
	var got reading
	reply, tries, err := chat.Ask(ctx, sc.client, r, sc.asking.AnswerRetries, func(reply chat.Reply) (err error) {
		got, err = readFinite(c.read, reply)
		return err
	})
	if err != nil && c.label != "" {
		return result{}, fmt.Errorf("%s: %w", c.label, err)
	}
	return result{got, reply, tries}, err // it names endpoint and class
}

// readFinite reads an answer and refuses NaN and infinities.
func readFinite(read func(chat.Reply) (reading, error), reply chat.Reply) (reading, error) {
	got, err := read(reply)
	if err != nil {
		return reading{}, err
	}
	if !finite(got.value) {
		return reading{}, fmt.Errorf("the value is %v", got.value)
	}
	for name, v := range got.fields {
		if !finite(v) {
			return reading{}, fmt.Errorf("%s is %v", name, v)
		}
	}
	return got, nil
}

// combine makes the weighted mean of the readings, or the mean of what join makes of them.
func combine(inq *inquiry, calls []call, results []result) rewards.Score {
	readings, weights := make([]reading, len(results)), make([]float64, len(results))
	for i, r := range results {
		readings[i], weights[i] = r.reading, calls[i].weight
	}
	if inq.join != nil {
		var joined []reading
		for of := range slices.Chunk(readings, len(inq.questions)) {
			joined = append(joined, inq.join(of))
		}
		readings, weights = joined, slices.Repeat([]float64{1}, len(joined))
	}
	value, weight := 0.0, 0.0
	sums, counts := map[string]float64{}, map[string]float64{}
	for i, r := range readings {
		value += weights[i] * r.value
		weight += weights[i]
		for name, v := range r.fields {
			sums[name] += v
			counts[name]++
		}
	}
	extra := make(map[string]any, len(sums))
	for name := range maps.Keys(sums) {
		extra[name] = sums[name] / counts[name]
	}
	return rewards.Score{Value: value / weight, Extra: extra, Details: details(inq, calls, results)}
}

// inSteps are the values of the steps, each the mean over the groups of frames it was
// judged with, and their sum, which is what a trainer makes of a row of step scores.
func inSteps(results []result, groups int) (steps []float64, sum float64) {
	n := len(results) / groups
	steps = make([]float64, n)
	for i, r := range results { // every group has every question, in their order
		steps[i%n] += r.value / float64(groups)
	}
	for _, v := range steps {
		sum += v
	}
	return steps, sum
}

// Bounds of what goes into details, per sample and per text.
const (
	maxDetailAnswers = 64
	maxDetailText    = 4096
)

// answer is what the details hold of a call.
type answer struct {
	// Label is the rubric's name, where there are several.
	Label string `json:"label,omitempty"`
	// Frames are those that were shown.
	Frames []int   `json:"frames,omitempty"`
	Value  float64 `json:"value"`
	Text   string  `json:"text"`
	// Reasoning is what the engine kept apart.
	Reasoning string `json:"reasoning,omitempty"`
	// Tries counts the questions it took to get an answer that can be read.
	Tries int `json:"tries"`
	// Cached says that the answer was there already.
	Cached bool `json:"cached,omitempty"`
}

func details(inq *inquiry, calls []call, results []result) map[string]any {
	n := min(len(results), maxDetailAnswers)
	answers := make([]answer, 0, n)
	for i, r := range results[:n] {
		answers = append(answers, answer{
			Label: calls[i].label, Frames: calls[i].frames, Value: r.value, Text: clip(r.reply.Text),
			Reasoning: clip(r.reply.Reasoning), Tries: r.tries, Cached: r.reply.Cached,
		})
	}
	d := map[string]any{"answers": answers, "asked": len(results), "question": clip(inq.questions[0].text)}
	if inq.system != "" {
		d["system"] = clip(inq.system)
	}
	return d
}

func clip(s string) string {
	for i := range s {
		if i >= maxDetailText {
			return s[:i] + "… of " + strconv.Itoa(len(s)) + " bytes"
		}
	}
	return s
}

// numbers declares fields that are numbers.
func numbers(names ...string) []rewards.Field {
	fields := make([]rewards.Field, 0, len(names))
	for _, name := range names {
		fields = append(fields, rewards.Field{Name: name, Kind: rewards.Number})
	}
	return fields
}
