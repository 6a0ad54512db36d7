package text

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

func geo3kFormatSpec() rewards.Spec {
	return rewards.Spec{
		Name:    "geo3k_format",
		Summary: `1 if the response has <think> tags and then an answer in \boxed{}, else 0 (the format part of verl's geometry3k)`,
		Build:   build(noOptions{}, newGeo3kFormat),
	}
}

func newGeo3kFormat(noOptions) (*scorer, error) {
	return &scorer{rate: func(_ context.Context, _ *rewards.Sample, response string) (rewards.Score, error) {
		return rewards.Score{Value: number(isGeo3k(response))}, nil
	}}, nil
}

// isGeo3k is a full match of <think>.*</think>.*\boxed{.*}.* over lines.
func isGeo3k(s string) bool {
	rest, ok := strings.CutPrefix(s, openThink)
	for _, next := range []string{endThink, boxed, "}"} {
		if ok {
			_, rest, ok = strings.Cut(rest, next)
		}
	}
	return ok
}

// The forms of format.
const (
	reasoningForm = "reasoning"
	toolCallForm  = "tool_call"
)

type formatOptions struct {
	// Form is "reasoning" (default): thinking and an answer, in any order and amount;
	// or "tool_call": thinking once, then either one answer or calls of tools.
	Form string `json:"form"`
	// ThinkToken and AnswerToken name the tags of the form reasoning.
	ThinkToken  string `json:"think_token"`
	AnswerToken string `json:"answer_token"`
}

var tagName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

func (o formatOptions) validate() error {
	errs := []error{oneOf("form", o.Form, reasoningForm, toolCallForm)}
	for _, tag := range []struct{ option, name, normal string }{{"think_token", o.ThinkToken, "think"}, {"answer_token", o.AnswerToken, "answer"}} {
		switch {
		case !tagName.MatchString(tag.name):
			errs = append(errs, fmt.Errorf("%s: %q is not the name of a tag, want 1 to 32 of A-Z, a-z, 0-9, _ and -", tag.option, tag.name))
		case o.Form == toolCallForm && tag.name != tag.normal:
			errs = append(errs, fmt.Errorf("%s: the form tool_call has fixed tags; leave it out", tag.option))
		}
	}
	return errors.Join(errs...)
}

func formatSpec() rewards.Spec {
	return rewards.Spec{
		Name:    "format",
		Summary: "1 if the response has the required form: thinking and answer, or thinking and tool calls; else 0 (RM-Gallery)",
		Options: []rewards.Option{
			{Name: "form", Type: "string", Default: reasoningForm, Doc: "required form: reasoning, <think> and <answer>; or tool_call, <think>, then one <answer> or <tool_call>s with valid JSON"},
			{Name: "think_token", Type: "string", Default: "think", Doc: "name of the tag around the thinking, with form: reasoning"},
			{Name: "answer_token", Type: "string", Default: "answer", Doc: "name of the tag around the answer, with form: reasoning"},
		},
		Build: build(formatOptions{Form: reasoningForm, ThinkToken: "think", AnswerToken: "answer"}, newFormat),
	}
}

func newFormat(o formatOptions) (*scorer, error) {
	fault := toolCallFault
	if o.Form == reasoningForm {
		fault = o.reasoningFault
	}
	return &scorer{rate: func(_ context.Context, _ *rewards.Sample, response string) (rewards.Score, error) {
		if why := fault(response); why != "" {
			return rewards.Score{Details: map[string]any{"fault": why}}, nil
		}
		return rewards.Score{Value: 1}, nil
	}}, nil
}

// reasoningFault says what the response lacks; "" is nothing.
func (o formatOptions) reasoningFault(s string) string {
	for _, tag := range []string{o.ThinkToken, o.AnswerToken} {
		if _, ok := between(s, "<"+tag+">", "</"+tag+">"); !ok {
			return "no <" + tag + ">…</" + tag + ">"
		}
	}
	return ""
}

// toolCallFault says what is wrong with a response that may answer or call tools.
func toolCallFault(s string) string {
	_, thinks := between(s, openThink, endThink)
	_, answers := between(s, openAnswer, endAnswer)
	_, calls := between(s, openCall, endCall)
	switch {
	case !thinks:
		return "no <think>…</think>"
	case strings.Count(s, openThink) != 1 || strings.Count(s, endThink) != 1:
		return "more than one thinking tag"
	case answers == calls:
		return "want either <answer> or <tool_call>, not both or neither"
	case answers:
		return answerFault(s)
	}
	return callFault(s)
}

// afterThinking is what stands between the thinking and the end, without the
// whitespace around it; false: something stands before the thinking.
func afterThinking(s string) (string, bool) {
	s, ok := strings.CutPrefix(strip(s), openThink)
	_, s, _ = strings.Cut(s, endThink)
	return strip(s), ok
}

func answerFault(s string) string {
	rest, ok := afterThinking(s)
	switch {
	case strings.Count(s, openAnswer) != 1 || strings.Count(s, endAnswer) != 1:
		return "more than one answer tag"
	case !ok || !strings.HasPrefix(rest, openAnswer) || !strings.HasSuffix(rest, endAnswer):
		return "text outside <think>…</think><answer>…</answer>"
	}
	return ""
}

// callFault leaves text between two calls unnoticed, as the original does.
func callFault(s string) string {
	rest, ok := afterThinking(s)
	switch {
	case !ok || !strings.HasPrefix(rest, openCall) || !strings.HasSuffix(rest, endCall):
		return "text outside <think>…</think><tool_call>…</tool_call>"
	case strings.Count(s, openCall) != strings.Count(s, endCall):
		return "a <tool_call> that is not closed, or not opened"
	case repeats(s, openCall) || repeats(s, endCall):
		return "twice the same <tool_call> tag in a row"
	}
	for call := range allBetween(s, openCall, endCall) {
		if !isCall(strip(call)) {
			return "a <tool_call> without a JSON object with name and arguments"
		}
	}
	return ""
}

// repeats reports whether a tag follows itself with nothing but whitespace between.
func repeats(s, tag string) bool {
	for {
		_, rest, ok := strings.Cut(s, tag)
		if !ok {
			return false
		}
		s = strings.TrimLeftFunc(rest, isSpace)
		if strings.HasPrefix(s, tag) {
			return true
		}
	}
}

func isCall(s string) bool {
	var call map[string]json.RawMessage
	if json.Unmarshal([]byte(s), &call) != nil {
		return false
	}
	_, name := call["name"]
	_, arguments := call["arguments"]
	return name && arguments
}
