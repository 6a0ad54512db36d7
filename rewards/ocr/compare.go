package ocr

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"

	"github.com/rewardloop/rewardloop/rewards"
)

// Match is how one read text compares with the target.
type Match struct {
	// Value is the reward, 0 to 1: 1 − min(d, n)/n for a target of n code points
	// and an edit distance d, with d = 0 where the substring rule applies.
	Value float64
	// Distance is the edit distance without the substring rule, at most Length.
	Distance int
	// Length is the number of code points of the normalised target.
	Length int
}

// Text joins what was read the way the reference implementations do: line after
// line without a separator, lines of confidence 0 left out.
func Text(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		if l.Confidence > 0 {
			b.WriteString(l.Text)
		}
	}
	return b.String()
}

// Compare scores a text against the target. It fails with class BadInput on a
// target that is empty after normalising, unless EmptyTarget says otherwise:
// flow_grpo divides by zero there and loses the whole batch.
func (o Options) Compare(target, text string) (Match, error) {
	return o.compare(target, text, true)
}

func (o Options) compare(target, text string, substring bool) (Match, error) {
	target, text = o.normalise(target), o.normalise(text)
	want := []rune(target)
	n := len(want)
	if n == 0 {
		if o.EmptyTarget == failEmpty {
			return Match{}, fmt.Errorf("%w: the target text is empty", rewards.BadInput)
		}
		if text == "" {
			return Match{Value: 1}, nil
		}
		return Match{}, nil
	}
	m := Match{Length: n, Distance: Distance(want, head(text, 2*n), n)}
	d := m.Distance
	if substring && n >= o.MinLenForSubstring && strings.Contains(text, target) {
		d = 0
	}
	m.Value = 1 - float64(d)/float64(n)
	return m, nil
}

// head decodes at most limit+1 code points: whatever is longer than that is as
// far from the target as can be.
func head(s string, limit int) []rune {
	rs := make([]rune, 0, min(len(s), limit+1))
	for _, r := range s {
		if rs = append(rs, r); len(rs) > limit {
			break
		}
	}
	return rs
}

// normalise removes whitespace and lower-cases. Lower-casing is Python's
// str.lower, which unlike strings.ToLower knows the final sigma and keeps the
// dot of İ; a Caser is stateful, so each call has its own.
func (o Options) normalise(s string) string {
	if o.NFKC {
		s = norm.NFKC.String(s)
	}
	if o.Whitespace == allSpace {
		s = strings.Map(func(r rune) rune {
			// Python's \s has U+001C to U+001F beside Unicode's White_Space.
			if unicode.IsSpace(r) || (r >= 0x1c && r <= 0x1f) {
				return -1
			}
			return r
		}, s)
	} else {
		s = strings.ReplaceAll(s, " ", "")
	}
	if !o.CaseSensitive {
		s = cases.Lower(language.Und).String(s)
	}
	return s
}
