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

// Asking selects the engine, and the number of retries for unreadable answers.
type Asking struct {
	Endpoint
	// AnswerRetries is the number of retries for an answer that cannot be parsed; the default is 1.
	AnswerRetries int `json:"answer_retries"`
	// ExtraBody is sent with every request, for parameters that only some engines support.
	ExtraBody map[string]any `json:"extra_body"`
}

// Sampling contains the sampling parameters of answers. For a nil parameter the engine uses its
// default.
type Sampling struct {
	Temperature *float64 `json:"temperature"`
	TopP        *float64 `json:"top_p"`
	MaxTokens   int      `json:"max_tokens"`
	// Seed makes sampling repeatable, so that its answers can be cached. Each retry for an
	// unreadable answer adds 1.
	Seed *int64 `json:"seed"`
}

// maxAnswerRetries bounds an option: more is a slip of the keyboard.
const maxAnswerRetries = 10

// DefaultAsking returns options with one retry for an unreadable answer.
func DefaultAsking() Asking { return Asking{AnswerRetries: 1} }

// Greedy returns options that select the most likely token, up to maxTokens tokens; 0: the engine's
// limit.
func Greedy(maxTokens int) Sampling { return Sampling{Temperature: new(float64), MaxTokens: maxTokens} }

// Validate returns an error if a field is invalid.
func (a *Asking) Validate() error {
	if a.AnswerRetries < 0 || a.AnswerRetries > maxAnswerRetries {
		return fmt.Errorf("answer_retries: %d, want 0 to %d", a.AnswerRetries, maxAnswerRetries)
	}
	return nil
}

// Validate returns an error that lists all invalid fields.
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

// Question returns a request with these options: the system message, unless it is empty, and one
// user message with the pictures before the text.
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

// About returns a context for questions about the subject with that id: a sample's id, or a prompt
// group's uid.
func About(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, subjectKey{}, id)
}

// alikeKey is the context key of Alike.
type alikeKey struct{}

// Alike returns a context for questions that have the same beginning as all questions with the same
// name, such as those about the members of a prompt group. Such questions are preferably sent to
// the same server, which caches the beginning.
func Alike(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, alikeKey{}, name)
}

// Seeded is a Client that adds a seed to requests without one. The seed is derived from the subject
// of the question (About), so that every repetition gets the same answer. Each retry for an
// unreadable answer adds 1, as with a configured seed. A question without a subject is not changed.
type Seeded struct {
	*Client
}

// Chat calls Client.Chat.
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
