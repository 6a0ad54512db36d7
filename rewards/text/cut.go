package text

import (
	"iter"
	"strings"
)

// The tags of the published prompts.
const (
	openAnswer = "<answer>"
	endAnswer  = "</answer>"
	openThink  = "<think>"
	endThink   = "</think>"
	openCall   = "<tool_call>"
	endCall    = "</tool_call>"
	boxed      = `\boxed{`
)

// allBetween yields what stands between an opening and the closing next to it,
// again and again from left to right: Python's re.finditer of open(.*?)end with
// DOTALL. An opening inside is part of the text.
func allBetween(s, open, end string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			_, rest, ok := strings.Cut(s, open)
			if !ok {
				return
			}
			inside, after, ok := strings.Cut(rest, end)
			if !ok || !yield(inside) {
				return
			}
			s = after
		}
	}
}

// between is the first of allBetween.
func between(s, open, end string) (string, bool) {
	for inside := range allBetween(s, open, end) {
		return inside, true
	}
	return "", false
}

// lastBetween is the last of allBetween.
func lastBetween(s, open, end string) (last string, ok bool) {
	for inside := range allBetween(s, open, end) {
		last, ok = inside, true
	}
	return last, ok
}

// lastBoxed returns what the last \boxed{…} holds, to the brace that closes it.
func lastBoxed(s string) (string, bool) {
	i := strings.LastIndex(s, boxed)
	if i < 0 {
		return "", false
	}
	s = s[i+len(boxed):]
	depth := 1
	for j := range len(s) {
		switch s[j] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return s[:j], true
			}
		}
	}
	return "", false
}
