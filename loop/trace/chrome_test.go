package trace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/trace"
)

// event is what a reader of the trace-event format sees.
type event struct {
	Name     string         `json:"name"`
	Phase    string         `json:"ph"`
	Category string         `json:"cat"`
	ID       string         `json:"id"`
	TS       json.Number    `json:"ts"`
	Duration json.Number    `json:"dur"`
	Process  int            `json:"pid"`
	Track    int            `json:"tid"`
	Args     map[string]any `json:"args"`
}

// drawn reads a drawn trace back.
func drawn(t *testing.T, rec trace.Trace) []event {
	t.Helper()
	var file bytes.Buffer
	require.NoError(t, rec.WriteChrome(&file))
	var all struct {
		Unit   string  `json:"displayTimeUnit"`
		Events []event `json:"traceEvents"`
	}
	d := json.NewDecoder(&file)
	d.UseNumber()
	require.NoError(t, d.Decode(&all))
	require.Equal(t, "ms", all.Unit)
	return all.Events
}

func value(t *testing.T, n json.Number) float64 {
	t.Helper()
	v, err := n.Float64()
	require.NoError(t, err)
	return v
}

func TestADrawnTraceHasEverySampleAndNoTrackWithTwoAtOnce(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(41, 42))
	for range 20 {
		g, r, servers := load(rng)
		s, err := sim.IdealQueue(g, r, servers)
		require.NoError(t, err)
		rec := trace.FromSchedule(s)
		for i := range rec.Spans { // half the servers are places of one worker
			if s.Server[i] < servers/2 {
				rec.Spans[i].Worker = "many"
			}
		}
		instants, scored, queued := map[string]int{}, map[string]int{}, map[string]int{}
		named, last := map[[2]int]bool{}, map[[2]int]float64{}
		counters := 0.0
		for _, e := range drawn(t, rec) {
			where := [2]int{e.Process, e.Track}
			switch e.Phase {
			case "M":
				named[where] = true
			case "i":
				instants[e.Name]++
			case "b", "e":
				require.Equal(t, "queue", e.Category)
				queued[e.ID]++
			case "C":
				counters = value(t, e.Args["queued"].(json.Number)) + value(t, e.Args["in flight"].(json.Number))
				require.GreaterOrEqual(t, counters, 0.0)
			case "X":
				scored[e.Name]++
				require.GreaterOrEqual(t, value(t, e.TS), last[where], "two spans at once on a track")
				last[where] = value(t, e.TS) + value(t, e.Duration)
			default:
				t.Fatalf("phase %q", e.Phase)
			}
		}
		require.Zero(t, counters, "in the end nothing is queued or in flight")
		require.Len(t, instants, len(g))
		require.Len(t, scored, len(g))
		require.Len(t, queued, len(g))
		require.LessOrEqual(t, len(last), servers)
		for where := range last {
			require.True(t, named[where], "track %v has no name", where)
		}
	}
}

func TestADrawnTraceShowsEveryAttemptAndTheSampleNobodyScored(t *testing.T) {
	t.Parallel()
	rec := recorded()
	rec.Spans = append(rec.Spans, trace.Span{ID: "e", Generated: 20, Outcome: "expired"})
	spans, backups, unscored := 0, 0, false
	for _, e := range drawn(t, rec) {
		if e.Phase == "X" {
			spans++
			if e.Args["backup"] == true {
				backups++
				assert.Equal(t, "d", e.Name)
				assert.Equal(t, "g", e.Args["uid"])
				assert.Equal(t, json.Number("9000000.000"), e.TS)
				assert.Equal(t, json.Number("4000000.000"), e.Duration)
			}
		}
		unscored = unscored || e.Phase == "i" && e.Name == "e" && e.Args["outcome"] == "expired"
	}
	assert.Equal(t, 6, spans, "a and b once, c and d twice")
	assert.Equal(t, 1, backups)
	assert.True(t, unscored)
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestATraceThatCannotBeDrawnIsAnError(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, (trace.Trace{}).WriteChrome(&bytes.Buffer{}), trace.ErrTrace)
	far := trace.Trace{Servers: 1, Spans: []trace.Span{{ID: "a", Generated: 1e11}}}
	require.ErrorIs(t, far.WriteChrome(&bytes.Buffer{}), trace.ErrTrace)
	require.ErrorContains(t, oneStep().WriteChrome(fullDisk{}), "no space left")
}
