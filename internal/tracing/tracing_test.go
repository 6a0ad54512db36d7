package tracing_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/tracing"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestATraceparentIsReadAndWrittenAgain(t *testing.T) {
	t.Parallel()
	c, err := tracing.Parse(parent)
	require.NoError(t, err)
	assert.True(t, c.Traced())
	assert.Equal(t, parent, c.String())
	c, err = tracing.Parse(parent[:53] + "00")
	require.NoError(t, err)
	assert.False(t, c.Traced())
	assert.Equal(t, parent[:53]+"00", c.String())
	later, err := tracing.Parse("cc" + parent[2:] + "-what comes later")
	require.NoError(t, err)
	assert.Equal(t, parent, later.String())
	assert.Empty(t, tracing.Context{}.String())
}

func TestWhatIsNoTraceparentIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "00", parent[:54], parent + "-more", parent + "0", "ff" + parent[2:], "cc" + parent[2:] + "0", strings.ToUpper(parent), "0x" + parent[2:],
		"00-" + strings.Repeat("0", 32) + parent[35:], parent[:36] + strings.Repeat("0", 16) + parent[52:], strings.Replace(parent, "-", "_", 1),
		"cc" + parent[2:] + "-" + strings.Repeat("x", tracing.MaxBytes),
	} {
		_, err := tracing.Parse(text)
		require.Error(t, err, text)
	}
}

func TestATracerFollowsItsTrainerAndElseItsRatio(t *testing.T) {
	t.Parallel()
	for _, ratio := range []float64{0, 1} {
		tracer := tracing.New(ratio, nil)
		own, up := tracer.Begin(parent)
		assert.True(t, own.Traced())
		assert.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", own.String()[3:35])
		assert.Equal(t, "00f067aa0ba902b7", tracing.Context{Trace: own.Trace, Span: up}.String()[36:52])
		own, _ = tracer.Begin(parent[:53] + "00")
		assert.False(t, own.Traced(), "its trainer does not record it")
		own, up = tracer.Begin("")
		assert.Equal(t, ratio == 1, own.Traced())
		assert.Zero(t, up)
	}
	half, traced := tracing.New(0.5, nil), 0
	for range 10_000 {
		if own, _ := half.Begin(""); own.Traced() {
			traced++
		}
	}
	assert.InDelta(t, 5000, traced, 500)
}

func TestBothSidesDeriveTheSameAttemptAndNoTwoAttemptsAreOne(t *testing.T) {
	t.Parallel()
	own, _ := tracing.New(1, nil).Begin("")
	there, err := tracing.Parse(own.String())
	require.NoError(t, err)
	seen := map[tracing.SpanID]bool{own.Span: true}
	for n := range 3 {
		for _, worker := range []string{"a", "b", "1b"} {
			assert.Equal(t, own.Attempt(n, worker), there.Attempt(n, worker))
			assert.False(t, seen[own.Attempt(n, worker).Span])
			seen[own.Attempt(n, worker).Span] = true
		}
	}
}

func TestATracerThatIsNotThereCostsNoAllocation(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts those of all
	var none *tracing.Tracer
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if own, _ := none.Begin(parent); own.Traced() {
			panic("nothing is traced")
		}
	}))
}

func TestAFailureIsCutWithinItsBound(t *testing.T) {
	t.Parallel()
	s := tracing.Span{Start: time.Now()}
	s.Fail("timeout", strings.Repeat("ü", 400))
	assert.Less(t, len(s.Error), 520)
	assert.True(t, strings.HasPrefix(s.Error, "timeout: ü"))
	assert.Equal(t, []tracing.Attribute{tracing.Text("error.type", "timeout")}, s.Attributes)
}
