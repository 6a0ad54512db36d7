package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/rewards"
)

// Reply is the reply to a question. Its slices are shared with other callers of the same question
// and must not be modified.
type Reply struct {
	// Text is the message, without the part that the engine marks as reasoning.
	Text string
	// Reasoning is the engine's reasoning_content (or reasoning); empty: the reply has none.
	Reasoning string
	// Logprobs are the log probabilities of the first tokens of the answer, at most 16, if the
	// request asked for them. They include reasoning tokens, because engines count these tokens
	// too.
	Logprobs []Token
	// FinishReason is "stop", "length" or another value of the engine.
	FinishReason string
	// Usage is zero if the engine does not report it.
	Usage Usage
	// Cached means that this question caused no request, because the reply was cached or another
	// caller was waiting for it.
	Cached bool
}

// Token is a token of the answer, or an alternative to it.
type Token struct {
	Text string
	// Logprob is a natural logarithm, at most 0.
	Logprob float64
	// Top contains the most likely tokens at the position, including the token itself, the most
	// likely first; nil in an alternative.
	Top []Token
}

// Usage is the number of tokens of a question and its answer.
type Usage struct {
	PromptTokens, CompletionTokens int64
}

// keepTokens bounds the tokens whose log probabilities a Reply keeps: they tell the
// yes from the no, and a long answer has a megabyte of them.
const keepTokens = 16

// excerptLen is how many characters of an answer an error quotes.
const excerptLen = 200

// Excerpt returns the beginning of a text for an error message: 200 characters on one line.
func Excerpt(s string) string {
	s, more := s[:min(len(s), excerptLen*utf8.UTFMax)], len(s) > excerptLen*utf8.UTFMax
	runes := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " "))
	if len(runes) > excerptLen {
		runes, more = runes[:excerptLen], true
	}
	if more {
		return fmt.Sprintf("%q…", string(runes))
	}
	return fmt.Sprintf("%q", string(runes))
}

// The parts of an answer that are looked at.
type (
	wireAnswer struct {
		Object  string          `json:"object"`
		Error   json.RawMessage `json:"error"`
		Choices []wireChoice    `json:"choices"`
		Usage   *wireUsage      `json:"usage"`
	}
	wireChoice struct {
		Message      *wireMessage  `json:"message"`
		Logprobs     *wireLogprobs `json:"logprobs"`
		FinishReason string        `json:"finish_reason"`
	}
	wireMessage struct {
		Content          *string `json:"content"`
		Refusal          string  `json:"refusal"`
		ReasoningContent string  `json:"reasoning_content"`
		Reasoning        string  `json:"reasoning"`
	}
	wireLogprobs struct {
		Content []wireToken `json:"content"`
	}
	wireToken struct {
		Token   *string     `json:"token"`
		Logprob *float64    `json:"logprob"`
		Top     []wireToken `json:"top_logprobs"`
	}
	wireUsage struct {
		PromptTokens     int64 `json:"prompt_tokens"`
		CompletionTokens int64 `json:"completion_tokens"`
	}
)

// decode reads an answer of status 2xx. What an engine in trouble says (a page of a
// proxy, an error in JSON, nothing) is Unavailable, for another attempt may get an
// answer; a message without text is InvalidScore, for it would not; log probabilities that
// the engine does not give are the engine's fault, permanently.
func decode(data []byte, wantLogprobs bool) (*Reply, error) {
	broken := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w: %s", rewards.Unavailable, fmt.Errorf(format, args...), Excerpt(string(data)))
	}
	var a wireAnswer
	// encoding/json refuses the NaN and Infinity that Python writes, numbers beyond
	// float64, and nesting beyond 10,000.
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, broken("the answer is not a chat completion: %w", err)
	}
	switch {
	case a.Object == "error" || (len(a.Error) > 0 && !bytes.Equal(a.Error, []byte("null"))):
		return nil, broken("the engine answers with an error")
	case len(a.Choices) == 0:
		return nil, broken("the answer has no choices")
	case a.Choices[0].Message == nil:
		return nil, broken("the answer has no message")
	}
	choice, message := a.Choices[0], a.Choices[0].Message
	r := &Reply{FinishReason: choice.FinishReason, Reasoning: message.ReasoningContent}
	if r.Reasoning == "" {
		r.Reasoning = message.Reasoning
	}
	if message.Content == nil {
		return nil, noContent(r, message.Refusal)
	}
	r.Text = *message.Content
	if wantLogprobs {
		switch {
		case choice.Logprobs == nil:
			return nil, rewards.Permanent(rewards.BlameDependency, fmt.Errorf(
				"%w: the engine returned no log probabilities, which the reward needs: %s", rewards.Internal, Excerpt(string(data))))
		case len(choice.Logprobs.Content) == 0:
			return nil, fmt.Errorf("%w: the answer has no tokens, and so no log probabilities: %s", rewards.InvalidScore, Excerpt(string(data)))
		}
		tokens := choice.Logprobs.Content
		var err error
		if r.Logprobs, err = decodeTokens(tokens[:min(len(tokens), keepTokens)], true); err != nil {
			return nil, broken("the log probabilities: %w", err)
		}
	}
	if u := a.Usage; u != nil {
		if u.PromptTokens < 0 || u.CompletionTokens < 0 {
			return nil, broken("the usage is negative")
		}
		r.Usage = Usage(*u)
	}
	return r, nil
}

func noContent(r *Reply, refusal string) error {
	switch {
	case refusal != "":
		return fmt.Errorf("%w: the engine refuses to answer: %s", rewards.InvalidScore, Excerpt(refusal))
	case r.Reasoning != "":
		return fmt.Errorf("%w: the answer ended (%s) while still reasoning; raise max_tokens, or turn thinking off: %s",
			rewards.InvalidScore, r.FinishReason, Excerpt(r.Reasoning))
	}
	return fmt.Errorf("%w: the answer has no text (finish_reason %q)", rewards.InvalidScore, r.FinishReason)
}

func decodeTokens(tokens []wireToken, top bool) ([]Token, error) {
	out := make([]Token, 0, len(tokens))
	for _, t := range tokens {
		// A few engines round a probability of 1 to a logarithm of 1e-6.
		if t.Token == nil || t.Logprob == nil || *t.Logprob > 1e-3 {
			return nil, fmt.Errorf("token %d has no log probability of 0 or less", len(out))
		}
		d := Token{Text: *t.Token, Logprob: min(*t.Logprob, 0)}
		if top {
			var err error
			if d.Top, err = decodeTokens(t.Top, false); err != nil {
				return nil, fmt.Errorf("token %d: alternative %w", len(out), err)
			}
		}
		out = append(out, d)
	}
	return out, nil
}
