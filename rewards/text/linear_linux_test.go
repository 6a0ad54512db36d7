package text_test

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/text"
	"github.com/rewardloop/rewardloop/testkit/race"
)

// shape is a degenerate response: one unit again and again between two ends.
type shape struct{ begin, unit, end string }

func (s shape) text(bytes int) string {
	return s.begin + strings.Repeat(s.unit, bytes/len(s.unit)) + s.end
}

// load is a scorer and the degenerate responses that give it the most to do.
type load struct {
	scorer, options string
	shapes          []shape
}

// loads are what the rules look for, in amounts that nobody writes: openings that
// are never closed, closings that were never opened, digits, spaces, and the
// longest answers.
func loads() []load {
	const (
		think = "<think></think>"
		call  = `<tool_call>{"name": 1, "arguments": 2}</tool_call> `
	)
	numbers := []shape{{unit: "#### 1,"}, {unit: "1"}, {unit: "Answer: $"}, {unit: `\boxed{`}}
	words := []shape{
		{unit: "</answer>"}, {begin: "<answer>", unit: "a ", end: "</answer>"}, {begin: "<answer>", unit: "AΣ.", end: "</answer>"},
	}
	tags := []shape{
		{unit: "<answer>"},
		{unit: "<think>"},
		{begin: think, unit: call},
		{begin: think + call, unit: "</tool_call> "},
		{begin: think + "<tool_call>", unit: "[", end: "</tool_call>"},
		{begin: think + "<answer>", unit: " ", end: "</answer>"},
	}
	return []load{
		{"gsm8k", `{}`, numbers},
		{"gsm8k", `{"method": "flexible"}`, numbers},
		{"math_dapo", `{}`, numbers},
		{"math_reward", `{}`, []shape{
			{unit: `\boxed{`},
			{unit: `\boxed `},
			{begin: `\boxed{`, unit: `\frac1`, end: "}"},
			{begin: `\boxed{`, unit: `\sqrt3`, end: "}"},
			{begin: `\boxed{`, unit: "1", end: "/3}"},
			{begin: `\boxed{`, unit: `\text{ `, end: "}"},
		}},
		{"search_r1_qa_em", `{}`, append(words, tags[0])},
		{"search_r1_qa_subem", `{}`, words},
		{"choice", `{}`, []shape{tags[0], tags[5]}},
		{"mmk12", `{"values": "equal_text"}`, []shape{
			tags[0], {begin: "<answer>", unit: "1 ", end: "°</answer>"}, {begin: "<answer>1", unit: " ", end: "</answer>\\circ"}, {unit: `1\circ`},
		}},
		{"geo3k_format", `{}`, []shape{{unit: "<think>"}, {begin: think, unit: `\boxed{`}}},
		{"format", `{}`, tags},
		{"format", `{"form": "tool_call"}`, tags},
		{"length", `{}`, words[1:]},
		{"overlong", required("overlong"), words[1:2]},
		{"ngram_repetition", `{"n": 32}`, words},
		{"ngram_repetition", `{"tokenizer_type": "chars", "analyze_scope": "thought"}`, []shape{{unit: "<think>"}, {begin: "<think>", unit: "ab", end: "</think>"}}},
		{"rouge_l", `{}`, words},
		{"rouge_l", `{"tokenizer_type": "chars"}`, words},
		{"f1", `{}`, words},
		{"f1", `{"mode": "squad"}`, words},
		{"regex", `{"pattern": "(x+x+)+y|(?s)<(.*)>.*</(.*)>"}`, []shape{{unit: "x"}, {unit: "<answer>"}}},
		{"regex", `{"pattern": "(?s).*Answer: (.*?)\\$", "equals_ground_truth": true}`, []shape{{unit: "Answer: "}, {unit: "Answer: $"}}},
	}
}

// cpu is the processor time of the calling thread: load by others does not count.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_THREAD, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cost is the least processor time of some runs on a text of that length.
func cost(t *testing.T, scorer rewards.Scorer, sh shape, bytes, runs int) time.Duration {
	t.Helper()
	truth := quoted(t, strings.Repeat("a ", 4000)) // Nearly as long as rouge_l takes.
	s := sample(sh.text(bytes), truth, `{"response_length": 7}`)
	least := time.Hour
	for range runs {
		before := cpu(t)
		_, err := scorer.Score(t.Context(), s)
		least = min(least, cpu(t)-before)
		if err != nil {
			require.ErrorIs(t, err, rewards.BadInput)
		}
	}
	return least
}

// enough is the time below which a megabyte is fast, whatever a quarter of it takes.
const enough = 250 * time.Millisecond

// megabyte is what the degenerate responses are long: a sixteenth of one where each step is
// ten times dearer.
func megabyte() int {
	if race.Enabled {
		return 1 << 16
	}
	return 1 << 20
}

// A megabyte takes a moment, or else at most twice the four times longer that a
// quarter of it takes; a quadratic rule takes minutes and sixteen times longer.
// Processor time is compared with processor time, and only after a slow first run.
func TestADegenerateMegabyteTakesFourTimesAsLongAsAQuarterOfIt(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, l := range loads() {
		tested[l.scorer] = true
		t.Run(l.scorer, func(t *testing.T) {
			t.Parallel()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			scorer := newScorer(t, l.scorer, l.options)
			long := megabyte()
			for _, sh := range l.shapes {
				whole := cost(t, scorer, sh, long, 1)
				if whole <= enough {
					t.Logf("%s %q: %v for %d bytes", l.options, sh, whole, long)
					continue
				}
				quarter := cost(t, scorer, sh, long/4, 3)
				whole = min(whole, cost(t, scorer, sh, long, 2))
				assert.LessOrEqual(t, whole, 8*quarter, "%s on %q: %v for %d bytes, %v for a quarter", l.options, sh, whole, long, quarter)
			}
		})
	}
	for _, spec := range text.Specs() {
		assert.True(t, tested[spec.Name], "%s is not tested", spec.Name)
	}
}
