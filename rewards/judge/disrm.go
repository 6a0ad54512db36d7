package judge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

type disrmOptions struct {
	chat.Endpoint
	calibration
	API           string `json:"api"`
	Template      string `json:"template"`
	Task          string `json:"task"`
	UseActivation *bool  `json:"use_activation"`
}

// Words of the options.
const (
	apiVLLM        = "vllm"
	apiSGLang      = "sglang"
	apiPooling     = "pooling"
	apiScore       = "score"
	apiRerank      = "rerank"
	templateChatML = "chatml"
	templateLlama3 = "llama3"
)

// scoringAPI is a route of an engine that gives a number for a text, or for a prompt and a response.
type scoringAPI struct {
	path string
	// pair says that prompt and response are sent by themselves, as first and second, and the engine puts them together; else
	// the chat is rendered here.
	pair          bool
	first, second string
	// read takes the score of an answer's JSON.
	read func(data []byte) (*float64, error)
}

// scoringAPIs are the values of the option api. The forms are those of vLLM 0.27.0 (vllm/entrypoints/pooling/*/protocol.py)
// and of verl's compute_score_disrm.
func scoringAPIs() map[string]scoringAPI {
	return map[string]scoringAPI{
		apiVLLM:    {path: "/classify", first: "input", read: lastOf("probs")},
		apiSGLang:  {path: "/v1/embeddings", first: "input", read: lastOf("embedding")},
		apiPooling: {path: "/pooling", first: "input", read: lastOf("data")},
		apiScore:   {path: "/score", pair: true, first: "text_1", second: "text_2", read: lastOf("score")},
		apiRerank:  {path: "/rerank", pair: true, first: "query", second: "documents", read: lastRank},
	}
}

func (o *disrmOptions) validate() error {
	errs := rewards.Faults{o.calibration.validate(), oneOf("api", o.API, apiVLLM, apiSGLang, apiPooling, apiScore, apiRerank)}
	errs.Add(o.UseActivation != nil && *o.UseActivation && o.API == apiSGLang, "use_activation: supported by vllm only")
	errs.Add(o.Template != "" && scoringAPIs()[o.API].pair, "template: not supported with api: %s, where the engine joins prompt and response with its own template", o.API)
	errs.Add(o.Task != "" && o.API != apiPooling, "task: supported by api: pooling only")
	return errors.Join(errs...)
}

func disrmSpec(d Deps) rewards.Spec {
	return rewards.Spec{
		AsksEngine: true,
		Name:       "disrm",
		Summary:    "a discriminative reward model behind vLLM's /classify, /pooling, /score or /rerank, or SGLang's /v1/embeddings, rates a response (verl)",
		Options: append(
			chat.EndpointDocs(),
			rewards.Option{Name: "api", Type: "string", Default: apiVLLM, Doc: "API of the engine: vllm (POST /classify), sglang (POST /v1/embeddings), or vLLM's pooling, score or rerank (POST to the route of that name)"},
			rewards.Option{Name: "template", Type: "string", Default: templateChatML, Doc: "chat template of the reward model: chatml, llama3, or a text with {prompt} and {response}; not allowed with api: score and rerank"},
			rewards.Option{Name: "task", Type: "string", Default: "the engine's", Doc: "task of a request to vLLM's pooling route, such as token_classify"},
			rewards.Option{Name: "use_activation", Type: "bool", Default: "false for vllm, else the engine's", Doc: "true: vLLM applies softmax or sigmoid to the score (verl sets false)"},
			rewards.Option{Name: "scale", Type: "number", Default: "1", Doc: "factor of the reward = score·scale + offset"},
			rewards.Option{Name: "offset", Type: "number", Default: "0", Doc: "summand of the reward = score·scale + offset"},
			rewards.Option{Name: "table", Type: "list", Default: "none", Doc: "list of points [score, reward], in place of scale and offset; the reward is interpolated linearly between the points"},
		),
		Build: func(raw json.RawMessage) (rewards.Scorer, error) {
			o := disrmOptions{API: apiVLLM, calibration: calibration{Scale: 1}}
			if err := rewards.DecodeOptions(raw, &o); err != nil {
				return nil, err
			}
			if err := o.validate(); err != nil {
				return nil, err
			}
			sc := &disrm{options: o, api: scoringAPIs()[o.API]}
			if err := sc.setTemplate(cmp.Or(o.Template, templateChatML)); err != nil {
				return nil, err
			}
			if d.Engines == nil {
				return nil, errNoEngine
			}
			var err error
			if sc.engine, sc.model, err = d.Engines.Engine(o.Endpoint, sc.trial); err != nil {
				return nil, fmt.Errorf("judge: %w", err)
			}
			if o.Model != "" {
				sc.model = o.Model
			}
			return sc, nil
		},
	}
}

// disrm is the reward of a model that classifies: verl's compute_score_disrm.
type disrm struct {
	options disrmOptions
	api     scoringAPI
	engine  outbound.Doer
	model   string
	render  func(s *rewards.Sample) (string, error)
}

var (
	_ rewards.Scorer       = (*disrm)(nil)
	_ rewards.ExtraFielder = (*disrm)(nil)
	_ rewards.Queuer       = (*disrm)(nil)
	_ rewards.Concurrent   = (*disrm)(nil)
)

// Concurrency is the engine's: a sample is one question.
func (d *disrm) Concurrency() int { return rewards.ConcurrencyOf(d.engine) }

// Dependency is the engine.
func (d *disrm) Dependency() rewards.Dependency { return rewards.DependencyOf(d.engine) }

// ConcurrencyReason is the engine's.
func (d *disrm) ConcurrencyReason() string { return rewards.ConcurrencyReason(d.engine) }

// Queues says that the component's time begins when the engine is asked.
func (*disrm) Queues() {}

// ExtraFields declares raw_score, what the model says before calibration.
func (d *disrm) ExtraFields() []rewards.Field { return numbers("raw_score") }

// setTemplate says how a chat becomes the text the engine is given: by one of two
// known chat templates, or one of the user's. Engines render no chat on these paths.
func (d *disrm) setTemplate(name string) error {
	turn := ""
	switch name {
	case templateChatML: // Qwen and others
		turn = "<|im_start|>%s\n%s<|im_end|>\n"
	case templateLlama3: // without the token of the beginning, which the engine adds
		turn = "<|start_header_id|>%s<|end_header_id|>\n\n%s<|eot_id|>"
	default:
		t, err := parseTemplate("template", name)
		if err == nil && !strings.Contains(name, "{response}") {
			err = fmt.Errorf("template: %q, want %s, %s or a text with {response}", clipTo(name, 50), templateChatML, templateLlama3)
		}
		d.render = t.Fill
		return err
	}
	d.render = func(s *rewards.Sample) (string, error) {
		turns, err := chatOf(s)
		if err != nil {
			return "", err
		}
		var b strings.Builder
		for _, t := range turns {
			fmt.Fprintf(&b, turn, t.Role, t.Content)
		}
		return b.String(), nil
	}
	return nil
}

type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chatOf is the chat that is rated: extra_info.raw_prompt where it is a list of
// turns, as verl keeps it, else the prompt as the user's turn; then the response.
func chatOf(s *rewards.Sample) ([]turn, error) {
	answer, err := prompt.Of(s, prompt.Response)
	if err != nil {
		return nil, err
	}
	var turns []turn
	if raw := prompt.ExtraInfo(s)["raw_prompt"]; len(raw) == 0 || json.Unmarshal(raw, &turns) != nil || len(turns) == 0 {
		caption, err := prompt.Of(s, prompt.Prompt)
		if err != nil {
			return nil, err
		}
		turns = []turn{{chat.User, caption}}
	}
	return append(turns, turn{chat.Assistant, answer}), nil
}

// Score asks the engine once; its attempts and limits are the engine's own.
func (d *disrm) Score(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
	var raw float64
	call, shown, err := d.call(s, d.model)
	if err != nil {
		return rewards.Score{}, err
	}
	call.Check = func(a *outbound.Answer) (err error) {
		raw, err = d.read(a.Body)
		return err
	}
	_, err = d.engine.Do(ctx, call)
	if err != nil {
		return rewards.Score{}, fmt.Errorf("sample %q: %w", s.ID, err)
	}
	return rewards.Score{
		Value:   d.options.of(raw),
		Extra:   map[string]any{"raw_score": raw},
		Details: map[string]any{"input": clip(shown)},
	}, nil
}

// call is the question about a sample, and its text for people.
func (d *disrm) call(s *rewards.Sample, model string) (c *outbound.Call, shown string, err error) {
	body, shown, err := d.body(s, model)
	if err != nil {
		return nil, "", err
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, "", fmt.Errorf("%w: sample %q: %w", rewards.Internal, s.ID, err)
	}
	return &outbound.Call{
		Path: d.api.path, Body: data, Tokens: len(shown) / 4, Header: http.Header{"Content-Type": {"application/json"}},
		MaxBytes: 16 << 20, // an embedding of 100,000 dimensions takes 2
	}, shown, nil
}

// trial is a question about a sample that nobody sent.
func (d *disrm) trial(model string) outbound.Call {
	c, _, err := d.call(&rewards.Sample{ID: "trial", Prompt: "Is two more than one?", Response: "Yes"}, cmp.Or(d.options.Model, model))
	if err != nil {
		return outbound.Call{}
	}
	c.Check = func(a *outbound.Answer) error {
		_, err := d.read(a.Body)
		return err
	}
	return *c
}

// body is the request, and its text for people.
func (d *disrm) body(s *rewards.Sample, model string) (body map[string]any, shown string, err error) {
	body = map[string]any{"model": model}
	switch use := d.options.UseActivation; {
	case use != nil && d.options.API != apiSGLang:
		body["use_activation"] = *use
	case d.options.API == apiVLLM:
		body["use_activation"] = false // as verl
	}
	if d.options.Task != "" {
		body["task"] = d.options.Task
	}
	if !d.api.pair {
		if shown, err = d.render(s); err != nil {
			return nil, "", err
		}
		body[d.api.first] = shown
		return body, shown, prompt.Bounded(s, "chat", shown)
	}
	question, err := prompt.Of(s, prompt.Prompt)
	if err != nil {
		return nil, "", err
	}
	answer, err := prompt.Of(s, prompt.Response)
	if err != nil {
		return nil, "", err
	}
	body[d.api.first], body[d.api.second] = question, answer
	if d.options.API == apiRerank {
		body[d.api.second] = []string{answer}
	}
	shown = question + "\n\n" + answer
	return body, shown, prompt.Bounded(s, "chat", shown)
}

// read takes the score of an answer. One without a score is Unavailable, as that of any engine in trouble.
func (d *disrm) read(data []byte) (float64, error) {
	v, err := d.api.read(data)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: the answer of %s %w: %s", rewards.Unavailable, d.api.path, err, chat.Excerpt(string(data)))
	case v == nil:
		return 0, fmt.Errorf("%w: the score is null: %s", rewards.InvalidScore, chat.Excerpt(string(data)))
	}
	return *v, nil
}

var (
	errNoJSON  = errors.New("is not an object with a list data")
	errNoData  = errors.New("has no data")
	errNoScore = errors.New("has no score")
)

// lastOf reads the last number of a key of the last entry of data: data[-1].<key>, or data[-1].<key>[-1], or
// data[-1].<key>[-1][-1] where there is a row of numbers for each token. A number that is null is nil.
func lastOf(key string) func([]byte) (*float64, error) {
	return func(text []byte) (*float64, error) {
		var answer struct {
			Data []map[string]json.RawMessage `json:"data"`
		}
		if json.Unmarshal(text, &answer) != nil {
			return nil, errNoJSON
		}
		if len(answer.Data) == 0 {
			return nil, errNoData
		}
		return last(answer.Data[len(answer.Data)-1][key], 2)
	}
}

// last is a number, or the last one of a list, as many lists deep at most.
func last(raw json.RawMessage, deep int) (*float64, error) {
	var list []json.RawMessage
	if len(raw) > 0 && raw[0] == '[' && deep > 0 {
		if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
			return nil, errNoScore
		}
		return last(list[len(list)-1], deep-1)
	}
	var v *float64
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return nil, errNoScore
	}
	return v, nil
}

// lastRank reads results[-1].relevance_score: one document was sent.
func lastRank(text []byte) (*float64, error) {
	var answer struct {
		Results []map[string]json.RawMessage `json:"results"`
	}
	if json.Unmarshal(text, &answer) != nil {
		return nil, errors.New("is not an object with a list results")
	}
	if len(answer.Results) == 0 {
		return nil, errors.New("has no results")
	}
	return last(answer.Results[len(answer.Results)-1]["relevance_score"], 0)
}
