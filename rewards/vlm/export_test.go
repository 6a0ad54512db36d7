package vlm

import (
	"context"
	"errors"
	"slices"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// What the tests name of a conversation.
type (
	Turn   = turn
	Part   = part
	Family = family
)

// Sidecar is judge.json.
type Sidecar = sidecar

// ParseSidecar reads one.
func ParseSidecar(data []byte) (Sidecar, error) { return parseSidecar(data) }

// Inspection is everything that is made on the way from a conversation to its answers.
type Inspection struct {
	IDs        []int64
	Positions  []int64
	Grids      [][2]int
	Pixels     []byte // of all items, one behind the other
	Features   []float32
	Logits     []float32 // of the last place, over the whole vocabulary
	Greedy     []int64
	Logprobs   []float64
	Stopped    bool
	Text       string
	Candidates []float64
}

// Inspect asks a judge, as its scorers do, and keeps what they do not.
func (j *Judge) Inspect(ctx context.Context, turns []Turn, px []*rewards.Pixels, candidates []string, most int) (in Inspection, err error) {
	l, err := j.ready(ctx)
	if err != nil {
		return in, err
	}
	var views []*view
	for _, p := range px {
		v, err := j.look(l, p, 0)
		if err != nil {
			return in, err
		}
		views = append(views, v)
		in.Grids = append(in.Grids, v.Grid)
		for _, item := range v.Items {
			in.Pixels = append(in.Pixels, item.Inputs[0].U8...)
		}
	}
	o, err := j.put(ctx, l, inquiry{turns: func(int) []Turn { return turns }}, views)
	if err != nil {
		return in, err
	}
	in.IDs = o.prompt.ids
	if o.prompt.positions != nil {
		in.Positions = o.prompt.positions.I64
	}
	for _, s := range o.seen {
		in.Features = append(in.Features, s.features...)
	}
	out, err := l.run(ctx, "logits", o.prompt, o.seen, nil, infer.Generate{Keep: 1})
	if err != nil {
		return in, err
	}
	logits, err := named(out, "logits", infer.F32)
	if err != nil {
		return in, err
	}
	in.Logits = logits.F32
	a, err := l.say(ctx, "greedy", o.prompt, o.seen, most, 0)
	if err != nil {
		return in, err
	}
	in.Greedy, in.Stopped, in.Text = a.tokens, a.stopped, a.text
	for _, v := range a.logprobs {
		in.Logprobs = append(in.Logprobs, float64(v))
	}
	if len(candidates) > 0 {
		in.Candidates, err = l.likelihoods(ctx, o, candidates)
	}
	return in, err
}

// CountEncodings counts the texts that a judge's tokenizer is given from now on. It is
// not safe with questions under way.
func (j *Judge) CountEncodings(ctx context.Context, count func(text string)) error {
	l, err := j.ready(ctx)
	if err != nil {
		return err
	}
	l.tokenizer = counted{l.tokenizer, count}
	return nil
}

type counted struct {
	tokenizer
	count func(string)
}

func (c counted) Encode(text string, special bool) ([]int64, error) {
	c.count(text)
	return c.tokenizer.Encode(text, special)
}

// Words are the ids that end an answer, and those of yes and no.
func (j *Judge) Words(ctx context.Context) (stops, yes, no []int64, err error) {
	l, err := j.ready(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	return l.stops, l.words.yes, l.words.no, nil
}

// Own says whether the family's own renderer is in use, and Rendered renders.
func Own(family Family, source string, bos string) (bool, error) {
	_, own, err := newRenderer(family, chatTemplate{source, "chat_template.jinja"}, tokenizerConfig{BOS: token{bos}})
	return own, err
}

// Jinja renders a conversation with a template.
func Jinja(source string, turns []Turn) (string, error) {
	j, err := compile(source)
	if err != nil {
		return "", err
	}
	return j.render(turns, tokenizerConfig{BOS: token{"<s>"}, EOS: token{"</s>"}})
}

// Chosen is the renderer that a judge would use for a template.
func Chosen(family Family, source string, turns []Turn) (string, error) {
	render, _, err := newRenderer(family, chatTemplate{source, "chat_template.jinja"}, tokenizerConfig{})
	if err != nil {
		return "", err
	}
	return render(turns)
}

// The families without a folder.
func SmolVLM() Family  { return &idefics3{opening: "<|im_start|>", tokens: 4} }
func Idefics3() Family { return &idefics3{opening: "<|begin_of_text|>", tokens: 4} }
func Qwen() Family     { return &qwen{} }

// ParseConfigs reads the three files of Hugging Face's that are looked at.
func ParseConfigs(data []byte) error {
	var c config
	var t tokenizerConfig
	err := errors.Join(decodeLoose("config.json", data, &c), decodeLoose("tokenizer_config.json", data, &t))
	_, _ = c.imageToken()
	if c.context() < 1 || c.context() > maxContext {
		return errors.New("a context beyond its bound")
	}
	_, more := namedTemplate(t.ChatTemplate)
	_, special := readSpecial(data)
	return errors.Join(err, more, special)
}

// Extract finds a score as the options say.
func Extract(tag, regex, match, text string) (float64, error) {
	o := defaultScorerOptions()
	o.Mode, o.Template, o.Tag, o.Regex, o.Match = modeGenerate, "x", tag, regex, match
	if err := o.validate(); err != nil {
		return 0, err
	}
	var got float64
	var err error
	probe := o.readScore()
	l := &loaded{family: Qwen(), context: 1000, tokenizer: fixed{text}, language: talker{}}
	r, err := probe(context.Background(), l, opened{}, asked{})
	if err == nil {
		got = r.value
	}
	return got, err
}

// fixed is a tokenizer for which everything is the same text.
type fixed struct{ text string }

func (fixed) Encode(string, bool) ([]int64, error)   { return []int64{1}, nil }
func (f fixed) Decode([]int64, bool) (string, error) { return f.text, nil }
func (fixed) ID(string) (int64, bool)                { return 0, false }
func (fixed) Size() int                              { return 2 }

// talker is a language model that says one token.
type talker struct{}

func (talker) Info(context.Context) (infer.Info, error) { return infer.Info{}, nil }

func (talker) Infer(_ context.Context, r infer.Request) ([]infer.Tensor, error) {
	n := r.Generate.MaxNew
	tokens := slices.Repeat([]int64{-1}, n)
	tokens[0] = 1
	return []infer.Tensor{
		{Name: "tokens", DType: infer.I64, Shape: []int{n}, I64: tokens},
		infer.Floats("logprobs", make([]float32, n), n),
		{Name: "stopped", DType: infer.I64, Shape: []int{1}, I64: []int64{1}},
	}, nil
}

// Shares, AddLog and Yes are the arithmetic of scores.
func Shares(logs []float64) (shares []float64, total float64) { return softmax(logs) }
func Yes(yes, no float64) float64                             { return share(yes, no) }
func AddLog(a, b float64) float64                             { return addLog(a, b) }

// Harmless makes a text mean nothing but text.
func Harmless(special []string, text string) string { return harmless(special).Replace(text) }
