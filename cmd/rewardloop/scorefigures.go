package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/distribution"
)

// maxComponents bounds the components whose figures are kept.
const maxComponents = 32

// figures are how the reward and its components are spread over the samples that were scored.
type figures struct {
	reward     distribution.Column
	components map[string]*distribution.Column
	pairs      map[[2]string]*distribution.Correlation // names in their order
}

// add takes a scored sample in.
func (f *figures) add(r *outputLine) {
	f.reward.Add(*r.RewardScore)
	values := componentsOf(r)
	names := slices.Sorted(maps.Keys(values))
	if f.components == nil {
		f.components, f.pairs = map[string]*distribution.Column{}, map[[2]string]*distribution.Correlation{}
	}
	for i, name := range names {
		c := f.components[name]
		if c == nil {
			if len(f.components) == maxComponents {
				continue
			}
			c = new(distribution.Column)
			f.components[name] = c
		}
		c.Add(values[name])
		for _, other := range names[:i] {
			pair := [2]string{other, name}
			if f.components[other] == nil {
				continue
			}
			if f.pairs[pair] == nil {
				f.pairs[pair] = new(distribution.Correlation)
			}
			f.pairs[pair].Add(values[other], values[name])
		}
	}
}

// componentsOf are the values that the components of a result gave, without what was put in
// the place of one. A component is told by the flag beside its value.
func componentsOf(r *outputLine) map[string]float64 {
	const prefix, flag = "reward/", "/imputed"
	values := map[string]float64{}
	for key, imputed := range r.ExtraInfo {
		name, found := strings.CutSuffix(key, flag)
		if !found || imputed != false || !strings.HasPrefix(name, prefix) {
			continue
		}
		switch v := r.ExtraInfo[name].(type) {
		case float64:
			values[name[len(prefix):]] = v
		case int64:
			values[name[len(prefix):]] = float64(v)
		case bool:
			values[name[len(prefix):]] = 0
			if v {
				values[name[len(prefix):]] = 1
			}
		}
	}
	return values
}

// String is a table of at most 80 columns; of no samples it is empty.
func (f *figures) String() string {
	if f.reward.Count() == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n  %-12s %8s %8s %8s %8s %8s%12s%s\n", "", "mean", "10 %", "median", "90 %", "least", "", "greatest")
	row := func(name string, c *distribution.Column) {
		fmt.Fprintf(&b, "  %-12s %8s %8s %8s %8s %8s %s %s\n", shorten(name, 12), brief(c.Mean()), brief(c.Quantile(0.1)), brief(c.Quantile(0.5)),
			brief(c.Quantile(0.9)), brief(c.Min()), blocks(c.Bins(10)), brief(c.Max()))
	}
	row("reward", &f.reward)
	for _, name := range slices.Sorted(maps.Keys(f.components)) {
		row(name, f.components[name])
	}
	if f.reward.Sampled() {
		fmt.Fprintln(&b, "  The shares are those of a uniform draw of the samples.")
	}
	return b.String()
}

// brief is a number in at most eight characters.
func brief(v float64) string {
	text := ""
	for digits := 3; digits >= 0; digits-- {
		if text = strconv.FormatFloat(v, 'g', digits, 64); len(text) <= 8 {
			break
		}
	}
	return text
}

func shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// blocks draws a histogram in one line.
func blocks(bins []int) string {
	steps := []rune("▁▂▃▄▅▆▇█")
	most := max(1, slices.Max(bins))
	out := make([]rune, len(bins))
	for i, n := range bins {
		out[i] = ' '
		if n > 0 {
			out[i] = steps[(n*len(steps)-1)/most]
		}
	}
	return string(out)
}
