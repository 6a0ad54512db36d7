package ocr

import "strings"

// Bounds of candidates: ngrams. A reader may return a megabyte, in single letters.
const (
	maxTokens = 4096
	maxNgram  = 8
	// maxTokenWork bounds the steps of the distances to all runs, which take 50 ms;
	// folding doubles it. Runs of up to n lines hold each line n·(n+1)/2 times. With
	// the three of deepgen a target of 20 letters is compared with 140 kB of lines.
	maxTokenWork = 16 << 20
)

// candidates are what a target is compared with: the texts of which the closest
// counts, each normalised.
type candidates struct {
	whole string
	runs  []string // without the whole
	fold  bool
}

// candidates makes them of the lines of a picture, for targets of n code points
// together. By "whole" the lines are joined first and then normalised, by "ngrams"
// the other way round, each as in its original.
//
// Lines beyond the bounds are in the whole only.
func (o Options) candidates(lines []string, n int) candidates {
	if o.Candidates != ngrams {
		return candidates{whole: o.normalise(strings.Join(lines, "")), fold: o.FoldConfusions}
	}
	tokens := make([]string, 0, len(lines))
	for _, l := range lines {
		if l = o.normalise(l); l != "" {
			tokens = append(tokens, l)
		}
	}
	c := candidates{whole: strings.Join(tokens, ""), fold: o.FoldConfusions}
	tokens = tokens[:min(len(tokens), maxTokens)]
	work := 0
	for i, t := range tokens {
		if work += len(t) * n * o.NgramMax * (o.NgramMax + 1) / 2; work > maxTokenWork {
			tokens = tokens[:i]
			break
		}
	}
	seen := map[string]bool{c.whole: true}
	for size := 1; size <= o.NgramMax; size++ {
		for from := 0; from+size <= len(tokens); from++ {
			if run := strings.Join(tokens[from:from+size], ""); !seen[run] {
				seen[run] = true
				c.runs = append(c.runs, run)
			}
		}
	}
	return c
}

// distance is the smallest edit distance of the target, which is normalised, and
// a candidate, at most the target's length, which is the second result.
func (c candidates) distance(target string) (best, length int) {
	want := []rune(target)
	length = len(want)
	folded := want
	if c.fold {
		folded = fold(want)
	}
	best = length
	try := func(text string) {
		read := head(text, 2*length)
		best = distance(want, read, best)
		if c.fold && best > 0 {
			best = distance(folded, fold(read), best)
		}
	}
	try(c.whole)
	for _, run := range c.runs {
		if best == 0 {
			break
		}
		try(run)
	}
	return best, length
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

// fold replaces characters that readers take for one another, of each group by
// one. The table is deepgen's, which has lower case only.
func fold(text []rune) []rune {
	out := make([]rune, len(text))
	for i, r := range text {
		switch r {
		case '0':
			r = 'o'
		case '1', 'i', 'j':
			r = 'l'
		case '5':
			r = 's'
		case 'v':
			r = 'w'
		}
		out[i] = r
	}
	return out
}
