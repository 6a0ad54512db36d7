package ocr

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/rewardloop/rewardloop/internal/pytext"
	"github.com/rewardloop/rewardloop/rewards"
)

// Match is the result of comparing the read text with the target.
type Match struct {
	// Value is the reward, 0 to 1: 1 − min(d, n)/n for a target of n code points and an edit
	// distance d, where d is 0 if the substring rule applies. For several targets, Value is the
	// mean weighted by n, which is 1 − Σ min(d, n)/Σ n. With raw_target, Value can be below 0 if
	// normalising makes a target longer (İ becomes two code points in lower case) and little of the
	// target was read; the original (cosmos) has the same property.
	Value float64
	// Distance is the edit distance without the substring rule. It is at most Length. For several
	// targets, Distance is the sum.
	Distance int
	// Length is the number of code points of the normalised target, or of all targets together.
	Length int
}

// Text joins the lines as the reference implementations do: without a separator, and without lines
// of confidence 0.
func Text(lines []Line) string { return strings.Join(Options{}.counted(lines), "") }

// counted are the texts of the lines that are confident enough.
func (o Options) counted(lines []Line) []string {
	texts := make([]string, 0, len(lines))
	for _, l := range lines {
		if l.Confidence > 0 && l.Confidence >= o.MinConf {
			texts = append(texts, l.Text)
		}
	}
	return texts
}

// Compare scores a text against one target. If the normalised target is empty and EmptyTarget is
// "fail", Compare returns an error of class BadInput (flow_grpo divides by zero in this case and
// loses the whole batch).
func (o Options) Compare(target, text string) (Match, error) {
	return o.compare([]string{target}, []string{text}, o.Substring)
}

// CompareLines scores the lines of a picture against all targets. It fails like Compare if all
// normalised targets are empty.
func (o Options) CompareLines(targets []string, lines []Line) (Match, error) {
	return o.compare(targets, o.counted(lines), o.Substring)
}

func (o Options) compare(targets, lines []string, substring bool) (Match, error) {
	wanted, m, divisor := make([]string, len(targets)), Match{}, 0
	for i, target := range targets {
		wanted[i] = o.normalise(target)
		n := utf8.RuneCountInString(wanted[i])
		m.Length += n
		if o.Denominator == rawTarget {
			n = utf8.RuneCountInString(target)
		}
		divisor += n
	}
	read := o.candidates(lines, m.Length)
	if m.Length == 0 {
		return o.nothingWanted(read.whole)
	}
	missing := 0
	for _, target := range wanted {
		d, n := read.distance(target)
		m.Distance += d
		if substring && n >= o.MinLenForSubstring && strings.Contains(read.whole, target) {
			d = 0
		}
		missing += d
	}
	m.Value = 1 - float64(missing)/float64(divisor)
	return m, nil
}

// nothingWanted is the match of an empty target.
func (o Options) nothingWanted(read string) (Match, error) {
	switch {
	case o.EmptyTarget == fail:
		return Match{}, fmt.Errorf("%w: the target text is empty", rewards.BadInput)
	case o.EmptyTarget == met, o.EmptyTarget == matchEmpty && read == "":
		return Match{Value: 1}, nil
	}
	return Match{}, nil
}

// normalise removes what does not count, and lower-cases as Python's str.lower.
func (o Options) normalise(s string) string {
	if o.NFKC {
		s = norm.NFKC.String(s)
	}
	if o.Whitespace == allSpace {
		s = strings.Map(func(r rune) rune {
			if pytext.IsSpace(r) {
				return -1
			}
			return r
		}, s)
	} else {
		s = strings.ReplaceAll(s, " ", "")
	}
	if o.IgnorePunct {
		s = strings.Map(func(r rune) rune {
			if '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' {
				return r
			}
			return -1
		}, s)
	}
	if !o.CaseSensitive {
		s = pytext.Lower(s)
	}
	return s
}
