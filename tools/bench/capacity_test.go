package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

func TestOnlyThePartOfATimeThatComputesGrowsOnASlowerMachine(t *testing.T) {
	t.Parallel()
	target := beyondScaled(2.5, "waits_s", "bare_per_s")
	reference := Readings{"bare_per_s": 100}
	for name, tt := range map[string]struct{ bare, want float64 }{
		"as fast": {100, 2.5}, "faster": {200, 2.5}, "half as fast": {50, 4},
	} {
		b, err := target(Readings{"waits_s": 1, "bare_per_s": tt.bare}, reference)
		require.NoError(t, err, name)
		assert.InDelta(t, tt.want, b.Value, 1e-9, name)
		assert.True(t, b.Most, name)
	}
	_, err := target(Readings{"waits_s": 1, "bare_per_s": 1}, Readings{})
	require.ErrorContains(t, err, "-write-reference")
}

func TestAnExperimentMayScaleWithTheReferencesOfAnother(t *testing.T) {
	t.Parallel()
	suites := fakeSuite(rates(60, 25))
	suites[0].Experiments[0].Name, suites[0].Experiments[0].CalibratedAs = "y", "x"
	var out bytes.Buffer
	_, err := measure(t.Context(), suites, place(t, ""), &out)
	require.NoError(t, err)
	assert.Contains(t, out.String(), "≥ 50/s (scaled by bare_per_s: 25 of 50)")
}

// ask asks an engine once and returns what it said.
func ask(ctx context.Context, url, key, text string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(res.Body)
	return res.Status + string(body), errors.Join(err, res.Body.Close())
}

func TestTheEngineSaysHowLongEachCallTookInAPlaceAndComesBackWhereItWas(t *testing.T) {
	t.Parallel()
	e, err := newTimedEngine(t.Context(), 1)
	require.NoError(t, err)
	defer e.kill()
	both := make(chan error, 2)
	for i := range 2 {
		go func() {
			_, err := ask(t.Context(), e.url(), "k", prompt(7+i, 100*time.Millisecond))
			both <- err
		}()
	}
	require.NoError(t, errors.Join(<-both, <-both))
	took, err := e.times(7, 2)
	require.NoError(t, err)
	for _, s := range took {
		assert.GreaterOrEqual(t, s, 0.1, "it waits as long as it was told to")
	}
	_, err = e.times(8, 2)
	require.ErrorContains(t, err, "never asked for call 9")
	said, err := ask(t.Context(), e.url(), "k", "")
	require.NoError(t, err)
	assert.Contains(t, said, "list", "its health")

	url := e.url()
	e.kill()
	e.kill()
	_, err = ask(t.Context(), url, "k", prompt(1, 0))
	require.Error(t, err)
	require.NoError(t, e.start(t.Context()))
	assert.Equal(t, url, e.url())
	said, err = ask(t.Context(), url, "k", prompt(1, 0))
	require.NoError(t, err)
	assert.Contains(t, said, "score>1")
}

func TestTheEngineResetsTheConnectionsOfOneKeyOnly(t *testing.T) {
	t.Parallel()
	e, err := newTimedEngine(t.Context(), 4)
	require.NoError(t, err)
	defer e.kill()
	e.reset("w0")
	_, err = ask(t.Context(), e.url(), "w0", prompt(1, 0))
	require.Error(t, err)
	_, err = ask(t.Context(), e.url(), "w1", prompt(1, 0))
	require.NoError(t, err)
	e.reset("")
	_, err = ask(t.Context(), e.url(), "w0", prompt(2, 0))
	require.NoError(t, err)
}

func TestABrokenEngineHasTheFaultThatWasAskedFor(t *testing.T) {
	t.Parallel()
	for fault, want := range map[engineFault]string{closedPort: "refused", silent: "deadline", answers500: "500"} {
		url, end, err := brokenEngine(t.Context(), fault)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		said, err := ask(ctx, url, "", "a question")
		cancel()
		if err != nil {
			said = err.Error()
		}
		assert.Contains(t, said, want, fault)
		end()
	}
}

func TestARunThatGetsNothingDoneHasAllItsSamplesInTheFullForm(t *testing.T) {
	t.Parallel()
	for _, f := range failures() {
		full, short := f.load(stuckLasts), f.load(stuckLasts/4)
		if !f.stuck {
			assert.Equal(t, full.inFlight, short.inFlight, f.name)
			continue
		}
		assert.Equal(t, stuckSamples, full.inFlight, f.name)
		assert.Equal(t, stuckSamples/4, short.inFlight, f.name)
		assert.True(t, full.takeBack, f.name)
		s := full.sample(1)
		assert.Equal(t, f.pixels, len(s.Media) == 1, f.name)
		if f.pixels {
			assert.Len(t, s.Media[0].Data, stuckPixels)
		}
	}
}

func TestTheIdealOfAReaderBesideAJudgeEndsWithTheLaterOfBoth(t *testing.T) {
	t.Parallel()
	trial := &mixedTrial{reads: 100 * time.Millisecond}
	// Four readers take a sample each, two slow ones the next two; all at once.
	ends, slowly, err := trial.ideal(make([]float64, 6), []float64{1, 1, 1, 1, 1, 1})
	require.NoError(t, err)
	assert.InDelta(t, 1, ends, 1e-9, "the judge is the last")
	assert.InDelta(t, 1.0/3, slowly, 1e-9)
	ends, _, err = trial.ideal(make([]float64, 6), make([]float64, 6))
	require.NoError(t, err)
	assert.InDelta(t, 0.4, ends, 1e-9, "the slow reader is the last")
}

func TestRatesCountScoredResultsOfATimeByWorker(t *testing.T) {
	t.Parallel()
	res := func(worker string, o rewards.Outcome) *wire.Result { return &wire.Result{Worker: worker, Outcome: o} }
	b := &batch{
		done: []float64{1, 2, 3, 3.5, 4, 9, 3},
		results: []*wire.Result{
			res("w1", rewards.Scored), res("w1", rewards.Scored), res(cutWorker, rewards.Scored), res("w2", rewards.Scored),
			res("w1", rewards.Scored), res("w1", rewards.Scored), nil,
		},
	}
	others, cutOff := b.rates(2, 4)
	assert.InDelta(t, 1, others, 1e-9, "two in two seconds")
	assert.InDelta(t, 0.5, cutOff, 1e-9)
}

func TestTheOutageIsThreeMinutesInTheFullForm(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 3*time.Minute, planOutage(Options{Lasting: outageLasts}).outage)
	assert.Equal(t, 10*time.Second, planOutage(Options{Lasting: outageLasts / 4}).outage)
	for _, o := range []Options{{Lasting: outageLasts}, {Lasting: time.Second}, {Quick: true}} {
		p := planOutage(o)
		assert.Greater(t, p.needs(), p.lead+4*p.takes, "it happens in the middle of the step")
	}
}

// TestAQuickRunOfCapacityWorks starts the program as it was built.
func TestAQuickRunOfCapacityWorks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	root := rootWithPython(t)
	if _, err := rewardloopProgram(root); err != nil {
		t.Skipf("SKIPPED: %v: the benchmarks of capacity were not tried", err)
	}
	var out, stderr bytes.Buffer
	code := run(t.Context(), suites(), []string{"-quick", "-rows", "async256/|engine1024/|mixed/|replicas/|weights-runs/"}, &out, &stderr)
	require.Equal(t, exitHeld, code, stderr.String())
	assert.NotContains(t, out.String(), "not measured")
	assert.Contains(t, out.String(), "mixed/over-ideal")
}
