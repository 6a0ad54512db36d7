package judge

import (
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
	UseActivation bool   `json:"use_activation"`
}

// Words of the options.
const (
	apiVLLM        = "vllm"
	apiSGLang      = "sglang"
	templateChatML = "chatml"
	templateLlama3 = "llama3"
)

func (o *disrmOptions) validate() error {
	errs := rewards.Faults{o.calibration.validate(), oneOf("api", o.API, apiVLLM, apiSGLang)}
	errs.Add(o.UseActivation && o.API != apiVLLM, "use_activation: only vllm knows it")
	return errors.Join(errs...)
}

func disrmSpec(d Deps) rewards.Spec {
	return rewards.Spec{
		AsksEngine: true,
		Name:       "disrm",
		Summary:    "a discriminative reward model behind vLLM's /classify or SGLang's /v1/embeddings rates a response (verl)",
		Options: append(
			chat.EndpointDocs(),
			rewards.Option{Name: "api", Type: "string", Default: apiVLLM, Doc: "vllm (POST /classify) or sglang (POST /v1/embeddings)"},
			rewards.Option{Name: "template", Type: "string", Default: templateChatML, Doc: "the chat template of the reward model: chatml, llama3, or a text with {prompt} and {response}"},
			rewards.Option{Name: "use_activation", Type: "bool", Default: "false", Doc: "vllm: let the engine apply softmax or sigmoid; verl does not"},
			rewards.Option{Name: "scale", Type: "number", Default: "1", Doc: "the reward is score·scale + offset"},
			rewards.Option{Name: "offset", Type: "number", Default: "0", Doc: "see scale"},
			rewards.Option{Name: "table", Type: "list", Default: "none", Doc: "instead: points [score, reward], joined by straight lines"},
		),
		Build: func(raw json.RawMessage) (rewards.Scorer, error) {
			o := disrmOptions{API: apiVLLM, Template: templateChatML, calibration: calibration{Scale: 1}}
			if err := rewards.DecodeOptions(raw, &o); err != nil {
				return nil, err
			}
			if err := o.validate(); err != nil {
				return nil, err
			}
			sc := &disrm{options: o}
			if err := sc.setTemplate(o.Template); err != nil {
				return nil, err
			}
			if d.Engines == nil {
				return nil, errNoEngine
			}
			var err error
			if sc.engine, sc.model, err = d.Engines.Engine(o.Endpoint); err != nil {
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
			err = fmt.Errorf("template: %q is neither %s nor %s, nor a text with {response} in it", clipTo(name, 50), templateChatML, templateLlama3)
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
	input, err := d.render(s)
	if err != nil {
		return rewards.Score{}, err
	}
	if err := prompt.Bounded(s, "chat", input); err != nil {
		return rewards.Score{}, err
	}
	body := map[string]any{"model": d.model, "input": input}
	path := "/v1/embeddings"
	if d.options.API == apiVLLM {
		body["use_activation"], path = d.options.UseActivation, "/classify"
	}
	data, err := json.Marshal(body)
	if err != nil {
		return rewards.Score{}, fmt.Errorf("%w: sample %q: %w", rewards.Internal, s.ID, err)
	}
	var raw float64
	_, err = d.engine.Do(ctx, &outbound.Call{
		Path: path, Body: data, Tokens: len(input) / 4, Header: http.Header{"Content-Type": {"application/json"}},
		MaxBytes: 16 << 20, // an embedding of 100,000 dimensions takes 2
		Check: func(a *outbound.Answer) (err error) {
			raw, err = d.read(a.Body)
			return err
		},
	})
	if err != nil {
		return rewards.Score{}, fmt.Errorf("sample %q: %w", s.ID, err)
	}
	return rewards.Score{
		Value:   d.options.of(raw),
		Extra:   map[string]any{"raw_score": raw},
		Details: map[string]any{"input": clip(input)},
	}, nil
}

// read takes the last number of the last entry: data[-1].probs[-1] of vLLM,
// data[-1].embedding[-1] of SGLang. An answer without one is Unavailable, as that
// of any engine in trouble.
func (d *disrm) read(data []byte) (float64, error) {
	broken := func(what string) error {
		return fmt.Errorf("%w: %s: %s", rewards.Unavailable, what, chat.Excerpt(string(data)))
	}
	var a struct {
		Data []struct {
			Probs     []*float64 `json:"probs"`
			Embedding []*float64 `json:"embedding"`
		} `json:"data"`
	}
	if json.Unmarshal(data, &a) != nil {
		return 0, broken("the answer is no " + d.options.API + " classification")
	}
	if len(a.Data) == 0 {
		return 0, broken("the answer has no data")
	}
	last := a.Data[len(a.Data)-1]
	scores := last.Probs
	if d.options.API == apiSGLang {
		scores = last.Embedding
	}
	if len(scores) == 0 {
		return 0, broken("the answer has no score")
	}
	if v := scores[len(scores)-1]; v != nil {
		return *v, nil
	}
	return 0, fmt.Errorf("%w: the score is null: %s", rewards.InvalidScore, chat.Excerpt(string(data)))
}
