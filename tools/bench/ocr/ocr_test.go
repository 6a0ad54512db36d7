package main

import (
	"bytes"
	"context"
	"encoding/json"
	"image"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/tools/bench/report"
)

func at(text string, x, y float64) line {
	return line{text: text, score: .9, quad: [4][2]float64{{x, y}, {x + 50, y}, {x + 50, y + 20}, {x, y + 20}}}
}

func TestLinesArePairedByTheirCornersAndCountedByTheLargerNumber(t *testing.T) {
	t.Parallel()
	var c tally
	p := picture{File: "a.png", Kind: "plain", Prompt: `a sign "open"`}
	require.NoError(t, c.add(p, []line{at("open", 10, 10), at("daily", 10, 60)}, []line{at("dai1y", 11, 60), at("open", 10, 10), at("x", 300, 300)}))
	assert.Equal(t, 3, c.lines)
	assert.Equal(t, 1, c.texts)
	assert.Equal(t, 2, c.corners)
	assert.Equal(t, []int{1, 1}, []int{c.rewards, c.sameRewards}, "the text that was asked for is there")
	require.Len(t, c.differences, 2)
	assert.Equal(t, `"daily" and "dai1y"`, c.differences[0].What)
	assert.Equal(t, `only ours has "x"`, c.differences[1].What)

	doubtful := at("open", 10, 10)
	doubtful.score = .51
	require.NoError(t, c.add(p, []line{doubtful}, nil))
	assert.Equal(t, "its confidence, 0.510, is near the bound of 0.5", c.differences[2].Cause)
	assert.Equal(t, theLines, c.differences[3].Cause)
	assert.Equal(t, []int{2, 1}, []int{c.rewards, c.sameRewards})

	require.NoError(t, c.add(picture{File: "b.png", Kind: "none"}, nil, []line{at("y", 0, 0)}))
	assert.Equal(t, 2, c.rewards, "nobody asked for a text")
	require.NoError(t, c.add(p, []line{at("far", 0, 0)}, []line{at("far", 5, 0)}))
	assert.Equal(t, `"far", corners 5 px apart`, c.differences[len(c.differences)-1].What)
	require.NoError(t, c.add(p, []line{at("far", 0, 0)}, []line{at("fur", 5, 0)}))
	assert.Contains(t, c.differences[len(c.differences)-1].Cause, "another crop")
}

func TestFidelityIsMeasuredAgainstWhatIsWritten(t *testing.T) {
	t.Parallel()
	var f fidelity
	p := picture{Prompt: `a sign "abcd"`, Rendered: "abxd"}
	require.NoError(t, f.add(p, []line{at("abxd", 0, 0)}))
	require.NoError(t, f.add(p, []line{at("abcd", 0, 0)}), "read better than written")
	require.NoError(t, f.add(picture{Prompt: `a sign "abcd"`}, nil))
	assert.Equal(t, 2, f.pictures)
	assert.InDelta(t, .125, f.mean(), 1e-12)
	assert.InDelta(t, .25, f.worst, 1e-12)
	assert.InDelta(t, .5, f.share(), 1e-12)
}

// measured is a run in which everything holds but what the change says.
func measured() (*comparison, map[string][]timing) {
	c := &comparison{
		parity: tally{pictures: 2, lines: 100, texts: 100, corners: 99, rewards: 100, sameRewards: 100},
		fast:   tally{pictures: 2, lines: 100, rewards: 100, sameRewards: 98},
		errors: map[string]*fidelity{
			rapidDefault: {pictures: 100, exact: 100}, oursParity: {pictures: 100, exact: 100}, oursFast: {pictures: 100, exact: 90, sum: .4},
		},
	}
	return c, map[string][]timing{
		rapidDefault: {{Rate: 3, CPU: 600}, {Rate: 6, CPU: 600}}, rapidTwo: {{Rate: 5, CPU: 400}, {Rate: 5, CPU: 400}},
		oursParity: {{Rate: 10, CPU: 200, Own: 20}, {Rate: 12, CPU: 200, Own: 20}}, oursFast: {{Rate: 20, CPU: 100, Own: 10}, {Rate: 18, CPU: 100, Own: 10}},
	}
}

func TestEveryPromiseBecomesARow(t *testing.T) {
	t.Parallel()
	c, timings := measured()
	all, err := rows(c, timings, []float64{10})
	require.NoError(t, err)
	require.Len(t, all, len(promises))
	for i, r := range all {
		assert.Equal(t, prefix+promises[i].name, r.Row)
		assert.True(t, r.Held, "%s: %v", r.Row, r.Value)
	}
	assert.InDelta(t, (20./5+18./6)/2, all[7].Value, 1e-9, "over the better one of each repetition")
	c.fast.sameRewards = 97
	c.errors[oursFast].sum = math.NaN()
	_, err = rows(c, timings, []float64{10})
	require.ErrorContains(t, err, "ocr/fast-error-added is NaN")
}

func TestContendersTakeTurns(t *testing.T) {
	t.Parallel()
	calls := map[string]int{}
	var who []contender
	for _, name := range []string{"a", "b"} {
		who = append(who, contender{name, func(context.Context, []picture) (usage, error) {
			calls[name]++
			return usage{took: time.Second, own: time.Second, ort: time.Second}, nil
		}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	timings, err := race(ctx, who, make([]picture, 4), 2, true, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"a": 2, "b": 2}, calls)
	assert.Len(t, timings["a"], 2)
	assert.InDelta(t, 4, timings["b"][1].Rate, 0)
	assert.InDelta(t, 500, timings["b"][1].CPU, 0)
	cancel()
	_, err = race(ctx, who, make([]picture, 4), 1, true, io.Discard)
	require.ErrorIs(t, err, context.Canceled)
	who[1].read = func(context.Context, []picture) (usage, error) { return usage{}, io.ErrUnexpectedEOF }
	_, err = race(t.Context(), who, nil, 1, true, io.Discard)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestAMissFailsUnlessItIsListed(t *testing.T) {
	t.Parallel()
	c, timings := measured()
	c.fast.sameRewards = 97
	all, err := rows(c, timings, []float64{10})
	require.NoError(t, err)
	var out bytes.Buffer
	unlisted, mended := report.Judge(all, nil)
	report.Tell(all, unlisted, mended, &out)
	assert.Len(t, unlisted, 1)
	assert.Contains(t, out.String(), "MISS: ocr/fast-rewards is 0.97, target ≥ 0.98")
	list := filepath.Join(t.TempDir(), "misses.yml")
	require.NoError(t, os.WriteFile(list, []byte("misses:\n  - {row: jpeg25k/throughput, measured: 1, reason: another suite's}\n"+
		"  - {row: ocr/fast-rewards, measured: 0.97, reason: known}\n  - {row: ocr/exact, measured: 0.5, reason: gone}\n"), 0o600))
	known, err := readMisses(list)
	require.NoError(t, err)
	out.Reset()
	unlisted, mended = report.Judge(all, known)
	report.Tell(all, unlisted, mended, &out)
	assert.Empty(t, unlisted)
	assert.Contains(t, out.String(), "known miss: ocr/fast-rewards")
	assert.Contains(t, out.String(), "mended: ocr/exact")
	require.NoError(t, os.WriteFile(list, []byte("misses:\n  - {row: ocr/nothing, measured: 0.97, reason: known}\n  - {row: ocr/exact}\n"), 0o600))
	_, err = readMisses(list)
	require.ErrorContains(t, err, "ocr/nothing")
	require.ErrorContains(t, err, `"ocr/exact" needs`)
	known, err = readMisses(filepath.Join("..", "misses.yml"))
	require.NoError(t, err, "the committed list")
	t.Logf("%d misses are listed", len(known))
}

func TestTheReportIsWrittenForMachinesAndPeople(t *testing.T) {
	t.Parallel()
	c, timings := measured()
	r := &results{Report: report.Report{Suite: "ocr", About: about, Quick: true, Dirty: true}, Timings: timings, Pictures: map[string]int{"plain": 2}, Errors: map[string]float64{oursFast: .1}, Exact: map[string]float64{oursFast: .9}}
	var err error
	r.Rows, err = rows(c, timings, []float64{10})
	require.NoError(t, err)
	r.Rows[0].Miss, r.Rows[0].Held = &report.Miss{Reason: "because | of it"}, false
	r.Rows[1].Held = false
	r.Parity = []difference{{"a.png", "plain", `only ours has "x|y"`, "cause"}}
	dir := filepath.Join(t.TempDir(), "results")
	require.NoError(t, r.Write(dir))
	data, err := os.ReadFile(filepath.Join(dir, "ocr.json"))
	require.NoError(t, err)
	var back struct {
		Suite string
		Rows  []struct {
			Row  string
			Held bool
		}
	}
	require.NoError(t, json.Unmarshal(data, &back))
	assert.Len(t, back.Rows, len(promises))
	page, err := os.ReadFile(filepath.Join(dir, "ocr.md"))
	require.NoError(t, err)
	for _, want := range []string{"Quick", "with changes", `because \| of it`, `x\|y`, "| ours, fast | 19.00 | 100 ms | 10.0 ms |", "Nowhere.", "- plain: 2", "**no**"} {
		assert.Contains(t, string(page), want)
	}
}

func TestVisibleDarkIsLaidOverWhiteAndLightOverBlack(t *testing.T) {
	t.Parallel()
	for ink, ground := range map[uint8]uint8{10: 255, 240: 0} {
		img := image.NewNRGBA(image.Rect(0, 0, 2, 1))
		img.SetNRGBA(0, 0, color.NRGBA{ink, ink, ink, 255})
		px := flatten(img)
		assert.Equal(t, []byte{ink, ink, ink, ground, ground, ground}, px.RGB)
	}
	assert.Equal(t, []byte{255, 255, 255}, flatten(image.NewNRGBA(image.Rect(0, 0, 1, 1))).RGB, "nothing is visible")
}

// fakePython is a shell that plays RapidOCR.
func fakePython(t *testing.T, script string) settings {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "tools", "bench", "ocr"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "tools", "bench", "ocr", "reference.py"), []byte(script), 0o600))
	return settings{root: root, python: "/bin/sh"}
}

func TestSeveralReferencesShareThePictures(t *testing.T) {
	t.Parallel()
	s := fakePython(t, `echo '{"version":"3.10.0","onnxruntime":"1.29.0"}'
while read -r order; do
	case $order in
	*load*) n=$(echo "$order" | tr ',' '\n' | wc -l); echo "{\"loaded\":$n}" ;;
	*) printf '{"cpu":20,"pages":['; i=1; while [ $i -lt $n ]; do printf '{"texts":[],"boxes":[],"scores":[]},'; i=$((i+1)); done
	   echo '{"texts":["a"],"boxes":[[[1,2],[3,2],[3,4],[1,4]]],"scores":[0.5]}]}' ;;
	esac
done
`)
	var two team
	for range 2 {
		r, err := s.startRapid(t.Context(), 1)
		require.NoError(t, err)
		two = append(two, r)
	}
	assert.Equal(t, "RapidOCR 3.10.0, ONNX Runtime 1.29.0", two[0].version)
	took, cpu, pages, err := two.read(make([]picture, 5))
	require.NoError(t, err)
	assert.Positive(t, took)
	assert.Equal(t, 40*time.Millisecond, cpu)
	require.Len(t, pages, 5)
	assert.Empty(t, pages[0].lines())
	assert.Equal(t, "a", pages[4].lines()[0].text, "the last of the first one's three")
	assert.Equal(t, "a", pages[3].lines()[0].text, "the last of the second one's two")
	for _, r := range two {
		require.NoError(t, r.close())
	}
}

func TestAReferenceThatDoesNotStartSaysSo(t *testing.T) {
	t.Parallel()
	_, err := fakePython(t, "exit 3\n").startRapid(t.Context(), 1)
	require.ErrorContains(t, err, "exit status 3")
	s := fakePython(t, "")
	s.python = filepath.Join(s.root, "none")
	_, err = s.startRapid(t.Context(), 1)
	require.ErrorContains(t, err, "venv.sh")
}

func TestQuickThinsBothOrigins(t *testing.T) {
	t.Parallel()
	var all []picture
	for i := range 328 {
		kind := "plain"
		if i < 128 {
			kind = golden
		}
		all = append(all, picture{Kind: kind})
	}
	few := thin(all, 12)
	assert.InDelta(t, 25, len(few), 2)
	assert.Equal(t, golden, few[0].Kind)
	assert.Equal(t, "plain", few[len(few)-1].Kind)
}

func TestFlagsThatMakeNoSenseAreNamed(t *testing.T) {
	t.Setenv("REWARDLOOP_MODELS", t.TempDir())
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"more"}, `unknown argument "more"`},
		{[]string{"-n", "0"}, "both must be above 0"},
		{[]string{"-model", "none"}, "none"},
		{nil, "rewardloop models pull ppocr-v4-mobile"},
	} {
		var out, errs bytes.Buffer
		assert.Equal(t, exitUsage, run(t.Context(), c.args, &out, &errs), "%v", c.args)
		assert.Contains(t, errs.String(), c.want)
	}
	var help bytes.Buffer
	assert.Equal(t, exitHeld, run(t.Context(), []string{"-h"}, &help, &help))
	assert.True(t, strings.HasPrefix(help.String(), "Measures the reader"))
}
