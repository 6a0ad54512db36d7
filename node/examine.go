package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// maxExamined is how much of a text is printed, in code points.
const maxExamined = 2000

// examine prints a sample with its reward, for people.
func (n *Node) examine(x loop.Examined) {
	if n.examined == nil {
		return
	}
	text := describe(x)
	n.printing.Lock()
	defer n.printing.Unlock()
	_, _ = n.examined.Write([]byte(text)) // who cannot read it misses nothing else
}

// describe is a sample and its result in a few readable lines.
func describe(x loop.Examined) string {
	s, r := x.Sample, x.Result
	var b strings.Builder
	split := s.Split
	if split == "" {
		split = rewards.Train
	}
	fmt.Fprintf(&b, "── run %s, %s step %d, sample %s", printed(s.Run), split, s.Step, printed(s.ID))
	if s.UID != "" {
		fmt.Fprintf(&b, ", group %s", printed(s.UID))
	}
	if s.DataSource != "" {
		fmt.Fprintf(&b, ", %s", printed(s.DataSource))
	}
	b.WriteByte('\n')
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "   %-12s %s\n", name, indent(printed(text)))
		}
	}
	line("prompt", s.Prompt)
	line("response", s.Response)
	for _, m := range s.Media {
		line(string(m.Kind), medium(m))
	}
	line("ground truth", string(s.GroundTruth))
	line("reward", reward(r))
	for _, k := range slices.Sorted(maps.Keys(r.ExtraInfo)) {
		if v := r.ExtraInfo[k]; v != nil && v != "" && !strings.HasPrefix(k, "rewardloop/") {
			line("", fmt.Sprintf("%s = %v", k, v))
		}
	}
	for _, e := range r.Errors {
		line("failed", fmt.Sprintf("%s %s: %s", e.Component, e.Class, e.Message))
	}
	return b.String()
}

func medium(m *rewards.Media) string {
	switch m.Encoding {
	case rewards.Raw:
		return fmt.Sprintf("%v %s %s", m.Shape, m.Layout, m.DType)
	case rewards.Frames:
		return fmt.Sprintf("%d frames", len(m.Frames))
	}
	return fmt.Sprintf("%s, %v bytes", m.Encoding, m.Shape)
}

func reward(r *wire.Result) string {
	if r.RewardScore != nil {
		return fmt.Sprint(*r.RewardScore)
	}
	text := string(r.Outcome)
	if r.Fallback != nil && r.Fallback.Value != nil {
		text += fmt.Sprintf("; its fallback is %v (%s)", *r.Fallback.Value, r.Fallback.Policy)
	}
	return text
}

// printed is a text without what would move the cursor or change colours, cut short.
func printed(text string) string {
	text = strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
	if utf8.RuneCountInString(text) > maxExamined {
		return string([]rune(text)[:maxExamined]) + " …"
	}
	return text
}

// indent puts the further lines of a text below its first.
func indent(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n                ")
}
