package chat

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
)

// What the scorers that chat have as options. They embed the structs, whose fields are
// checked by Validate and described by the functions at the end.

// Asking says who is asked, and how often.
type Asking struct {
	Endpoint
	// AnswerRetries is how often an answer that cannot be read is asked for again. 1.
	AnswerRetries int `json:"answer_retries"`
	// ExtraBody is sent with every request, for what only some engines know.
	ExtraBody map[string]any `json:"extra_body"`
}

// Sampling says how answers are drawn. Null leaves a parameter to the engine.
type Sampling struct {
	Temperature *float64 `json:"temperature"`
	TopP        *float64 `json:"top_p"`
	MaxTokens   int      `json:"max_tokens"`
	// Seed makes draws repeatable, and their answers worth remembering. A further
	// attempt at an answer adds 1 to it.
	Seed *int64 `json:"seed"`
}

// maxAnswerRetries bounds an option: more is a slip of the keyboard.
const maxAnswerRetries = 10

// DefaultAsking asks for an unreadable answer once more.
func DefaultAsking() Asking { return Asking{AnswerRetries: 1} }

// Greedy takes the likeliest token, up to maxTokens of them; 0: as many as the engine
// gives.
func Greedy(maxTokens int) Sampling { return Sampling{Temperature: new(float64), MaxTokens: maxTokens} }

// Validate says what is wrong.
func (a *Asking) Validate() error {
	if a.AnswerRetries < 0 || a.AnswerRetries > maxAnswerRetries {
		return fmt.Errorf("answer_retries: %d, want 0 to %d", a.AnswerRetries, maxAnswerRetries)
	}
	return nil
}

// Validate names everything that is wrong.
func (s *Sampling) Validate() error {
	var errs rewards.Faults
	if t := s.Temperature; t != nil && !(*t >= 0 && *t <= 100) {
		errs = append(errs, fmt.Errorf("temperature: %v, want 0 to 100", *t))
	}
	if p := s.TopP; p != nil && !(*p > 0 && *p <= 1) {
		errs = append(errs, fmt.Errorf("top_p: %v, want above 0, at most 1", *p))
	}
	errs.Add(s.MaxTokens < 0, "max_tokens: %d, want 0 (the engine's) or more", s.MaxTokens)
	return errors.Join(errs...)
}

// Question is a request of these options: the system message, where it is not empty, and
// one turn of the user's, pictures before text.
func Question(a Asking, s Sampling, system string, pictures []Part, text string) Request {
	r := Request{
		Model: a.Model, Extra: a.ExtraBody,
		Temperature: s.Temperature, TopP: s.TopP, MaxTokens: s.MaxTokens, Seed: s.Seed,
	}
	if system != "" {
		r.Messages = append(r.Messages, Message{Role: System, Parts: []Part{Text(system)}})
	}
	r.Messages = append(r.Messages, Message{Role: User, Parts: append(slices.Clip(pictures), Text(text))})
	return r
}

// EndpointDocs describes the options of Endpoint.
func EndpointDocs() []rewards.Option {
	return []rewards.Option{
		{Name: "engine", Type: "string", Default: "the engines of reward_model", Doc: "name of the engine (an entry of engines: in the configuration) that gets the questions"},
		{Name: "model", Type: "string", Default: "the engine's", Doc: "name of the model at the engine"},
	}
}

// AskingDocs describes the options of Asking.
func AskingDocs() []rewards.Option {
	return append(EndpointDocs(),
		rewards.Option{Name: "answer_retries", Type: "int", Default: "1", Doc: "number of further requests, without the cache, when no score can be read from the answer"},
		rewards.Option{Name: "extra_body", Type: "object", Default: "none", Doc: `further fields of every request: {"chat_template_kwargs": {"enable_thinking": false}}`})
}

// SamplingDocs describes the options of Sampling with a scorer's defaults.
func SamplingDocs(temperature, topP, maxTokens string) []rewards.Option {
	return []rewards.Option{
		{Name: "temperature", Type: "number", Default: temperature, Doc: "sampling temperature; null: the engine's own default"},
		{Name: "top_p", Type: "number", Default: topP, Doc: "nucleus sampling (top-p), 0 to 1; null: the engine's own default"},
		{Name: "max_tokens", Type: "int", Default: maxTokens, Doc: "maximum number of tokens of an answer; 0: the engine's own limit"},
		{Name: "seed", Type: "int", Default: "none", Doc: "seed of the engine's sampling; with a seed answers are repeatable, and are kept in the cache"},
	}
}

// subjectKey is the context key of About.
type subjectKey struct{}

// About says whose question is asked with the context: the id of a sample, or a prompt
// group's uid.
func About(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, subjectKey{}, id)
}

// alikeKey is the context key of Alike.
type alikeKey struct{}

// Alike says that questions asked with contexts of the same name begin alike, as those about the members
// of a prompt group do, and had better go to one server, which remembers the beginning.
func Alike(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, alikeKey{}, name)
}

// Seeded asks with a seed that follows from whom the question is about (About) where a
// request has none: whoever asks, and however often, draws the same answer. A further
// attempt at an answer adds 1, as with a seed of the configuration. A question about
// nobody is left as it is.
type Seeded struct {
	*Client
}

// Chat is Client.Chat.
func (s Seeded) Chat(ctx context.Context, r *Request) (*Reply, error) {
	if id, known := ctx.Value(subjectKey{}).(string); known && r.Seed == nil {
		own := *r
		own.Seed = new(seedOf(id) + int64(r.Attempt))
		r = &own
	}
	return s.Client.Chat(ctx, r)
}

// seedOf is the seed of an id: the lower 63 bits of its FNV-1a hash of 64, less 16 so
// that no attempt overflows.
func seedOf(id string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))                  // never fails
	return max(int64(h.Sum64()&^(1<<63))-16, 0) // 63 bits
}
