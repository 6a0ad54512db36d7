package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func run(t *testing.T, events ...string) (output string, ok bool) {
	t.Helper()
	var out strings.Builder
	s := newSummary(&out)
	require.NoError(t, s.read(strings.NewReader(strings.Join(events, "\n"))))
	ok = s.close()
	return out.String(), ok
}

func TestASkipIsShownWithItsReason(t *testing.T) {
	t.Parallel()
	out, ok := run(t,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: no GPU here\n"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestA"}`,
		`{"Action":"pass","Package":"p","Test":"TestB"}`,
		`{"Action":"pass","Package":"p","Elapsed":1.25}`,
	)
	assert.True(t, ok)
	assert.Contains(t, out, "ok  \tp\t1.2s\n")
	assert.Contains(t, out, "  p TestA: a_test.go:7: no GPU here\n")
	assert.True(t, strings.HasSuffix(out, "\n1 passed, 0 failed, 1 skipped\n"), out)
}

func TestOnlyWhatFailedIsPrinted(t *testing.T) {
	t.Parallel()
	out, ok := run(t,
		`{"Action":"output","Package":"p","Test":"TestGood","Output":"chatter\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestGood"}`,
		`{"Action":"output","Package":"p","Test":"TestBad","Output":"want 1, got 2\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestBad"}`,
		`{"Action":"output","Package":"p","Output":"-test.shuffle 17\n"}`,
		`{"Action":"fail","Package":"p","Elapsed":0.1}`,
	)
	assert.False(t, ok)
	assert.NotContains(t, out, "chatter")
	assert.Contains(t, out, "want 1, got 2\n")
	assert.Contains(t, out, "-test.shuffle 17\n")
	assert.Contains(t, out, "FAIL\tp\t0.1s\n")
	assert.Contains(t, out, "\n1 passed, 1 failed, 0 skipped\n")
}

func TestAPackageThatDoesNotBuildIsAFailure(t *testing.T) {
	t.Parallel()
	out, ok := run(t,
		`{"ImportPath":"p [p.test]","Action":"build-output","Output":"p/a.go:1:1: syntax error\n"}`,
		`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
		`{"Action":"fail","Package":"p","Elapsed":0,"FailedBuild":"p [p.test]"}`,
		`{"Action":"pass","Package":"q","Test":"TestA"}`,
		`{"Action":"pass","Package":"q","Elapsed":1}`,
	)
	assert.False(t, ok)
	assert.Contains(t, out, "p/a.go:1:1: syntax error\n")
	assert.Contains(t, out, "[build failed]")
	assert.Contains(t, out, "\n1 passed, 1 failed, 0 skipped\n")
}

func TestAPanicShowsTheTestThatNeverEnded(t *testing.T) {
	t.Parallel()
	out, ok := run(t,
		`{"Action":"output","Package":"p","Test":"TestStuck","Output":"goroutine 1 [chan receive]\n"}`,
		`{"Action":"fail","Package":"p","Elapsed":900}`,
	)
	assert.False(t, ok)
	assert.Contains(t, out, "goroutine 1 [chan receive]\n")
	assert.Contains(t, out, "\n0 passed, 1 failed, 0 skipped\n")
}

func TestARunWithoutATestIsNotASuccess(t *testing.T) {
	t.Parallel()
	_, ok := run(t, `{"Action":"skip","Package":"p"}`)
	assert.False(t, ok)
}

func TestWhatIsNoEventIsPassedOn(t *testing.T) {
	t.Parallel()
	out, _ := run(t, "go: warning: something\n", `{"not":"an event"}`)
	assert.Contains(t, out, "go: warning: something\n")
	assert.Contains(t, out, `{"not":"an event"}`)
}

func TestEndlessOutputIsCut(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	line := strings.Repeat("x", 1<<16)
	for range 64 {
		keep(&b, line)
	}
	assert.LessOrEqual(t, b.Len(), maxOutput+len(line)+len(cut))
	assert.True(t, strings.HasSuffix(b.String(), cut))
}
