package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/loop/trace"
)

// latency is a distribution of reward times, as --reward names it.
type latency struct {
	name string
	draw func(*rand.Rand) float64 // seconds; nil: none was named
}

// parseLatency reads 2s, uniform:1s,40s, lognormal:2s,1.0 or normal:2s,0.5s.
func parseLatency(text string) (latency, error) {
	if text == "" {
		return latency{}, nil
	}
	refuse := func(why string) (latency, error) {
		return latency{}, fmt.Errorf("--reward %q: %s; write 2s, uniform:1s,40s, lognormal:2s,1.0 (median and σ) or normal:2s,0.5s (mean and standard deviation)", text, why)
	}
	kind, rest, named := strings.Cut(text, ":")
	if !named {
		v, err := seconds(text)
		if err != nil {
			return refuse(err.Error())
		}
		return latency{text, func(*rand.Rand) float64 { return v }}, nil
	}
	first, second, two := strings.Cut(rest, ",")
	if !two {
		return refuse("two numbers are needed")
	}
	a, err := seconds(first)
	if err != nil {
		return refuse(err.Error())
	}
	var b float64
	if kind == "lognormal" {
		if b, err = strconv.ParseFloat(second, 64); err == nil && !(b >= 0 && b <= 5) {
			err = fmt.Errorf("σ is %v, must be 0…5", b)
		}
	} else {
		b, err = seconds(second)
	}
	if err != nil {
		return refuse(err.Error())
	}
	switch kind {
	case "uniform":
		if b < a {
			return refuse("the second is below the first")
		}
		return latency{text, func(rng *rand.Rand) float64 { return a + (b-a)*rng.Float64() }}, nil
	case "lognormal":
		return latency{text, func(rng *rand.Rand) float64 { return a * math.Exp(b*rng.NormFloat64()) }}, nil
	case "normal":
		return latency{text, func(rng *rand.Rand) float64 { return max(0, a+b*rng.NormFloat64()) }}, nil
	}
	return refuse("no distribution is named " + strconv.Quote(kind))
}

// seconds reads a duration such as 200ms or 40s.
func seconds(text string) (float64, error) {
	d, err := time.ParseDuration(strings.TrimSpace(text))
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration such as 40s", text)
	case d < 0:
		return 0, fmt.Errorf("%q is negative", text)
	}
	return d.Seconds(), nil
}

// parseArrivals returns when each of n samples is generated: evenly over the
// rollout, in bursts, or all at its end.
func parseArrivals(text string, n int, rollout float64) ([]float64, error) {
	burst := 1
	kind, size, sized := strings.Cut(text, ":")
	switch {
	case kind == "uniform" && !sized:
	case kind == "end" && !sized:
		burst = n
	case kind == "bursts":
		v, err := strconv.Atoi(size)
		if err != nil || v < 1 || v > n {
			return nil, fmt.Errorf("--arrivals %q: want bursts of 1…%d samples", text, n)
		}
		burst = v
	default:
		return nil, fmt.Errorf("--arrivals %q: must be uniform, bursts:N or end", text)
	}
	g := make([]float64, n)
	for i := range g {
		g[i] = rollout * min(1, float64((i/burst+1)*burst)/float64(n))
	}
	return g, nil
}

// numbers reads a list such as 256,1024.
func numbers(flag, text string, most int) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		v, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || v < 1 || v > most {
			return nil, fmt.Errorf("--%s %q: %q is not a whole number from 1 to %d", flag, text, part, most)
		}
		all = append(all, v)
	}
	if len(all) > maxValues {
		return nil, fmt.Errorf("--%s has %d values, at most %d", flag, len(all), maxValues)
	}
	return all, nil
}

// pair reads two numbers such as 0.02,10; both are 0 for an empty text.
func pair(flag, text, meaning string) (a, b float64, err error) {
	if text == "" {
		return 0, 0, nil
	}
	first, second, _ := strings.Cut(text, ",")
	a, errA := strconv.ParseFloat(strings.TrimSpace(first), 64)
	b, errB := strconv.ParseFloat(strings.TrimSpace(second), 64)
	if errA != nil || errB != nil || !(a >= 0 && b >= 0) || math.IsInf(a+b, 0) {
		return 0, 0, fmt.Errorf("--%s %q: must be %s", flag, text, meaning)
	}
	return a, b, nil
}

// recorded is a trace as a plan replays it: rows in prompt groups.
type recorded struct {
	g, r    []float64
	group   int
	servers int
	update  float64
}

// readRecorded reads a trace. Its unscored samples are left out.
func readRecorded(path string, stdin io.Reader) (*recorded, int, error) {
	t, err := readTrace(path, stdin)
	if err != nil {
		return nil, 0, err
	}
	spans := slices.DeleteFunc(slices.Clone(t.Spans), func(s trace.Span) bool { return !s.HasScore() })
	if len(spans) == 0 {
		return nil, 0, fmt.Errorf("%s: none of its %d samples was scored", path, len(t.Spans))
	}
	rec := &recorded{group: 1, servers: t.Servers, update: t.Update}
	order, sizes := map[string]int{}, map[string]int{}
	for _, s := range spans {
		if _, known := order[s.UID]; !known {
			order[s.UID] = len(order)
		}
		sizes[s.UID]++
	}
	slices.SortStableFunc(spans, func(a, b trace.Span) int { return order[a.UID] - order[b.UID] })
	if even := len(spans) / len(sizes); len(spans)%len(sizes) == 0 && spans[0].UID != "" {
		rec.group = even
		for _, size := range sizes {
			if size != even {
				rec.group = 1 // groups of several sizes
			}
		}
	}
	for _, s := range spans {
		rec.g, rec.r = append(rec.g, s.Generated), append(rec.r, s.Work())
	}
	return rec, len(t.Spans) - len(spans), nil
}
