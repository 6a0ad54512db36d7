package failures_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop/failures"
	"github.com/rewardloop/rewardloop/rewards"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func sample(id string) failures.Sample {
	return failures.Sample{ID: id, Run: "run", Step: 3, Split: rewards.Train, Worker: "w1", Attempts: 1, Outcome: rewards.Failed}
}

func raised(message string) []rewards.ComponentError {
	return []rewards.ComponentError{{Component: "judge", Class: rewards.Internal, Blame: rewards.BlameReward, Message: message}}
}

func TestFailuresThatAreAlikeAreOneRecord(t *testing.T) {
	t.Parallel()
	b := failures.NewBook()
	for i := range 100 {
		s := sample(fmt.Sprint("step3-", i))
		s.Worker = fmt.Sprint("w", i%20)
		if i == 7 {
			s.Outcome = rewards.Scored // the component is not required
		}
		b.Note(begin.Add(time.Duration(i)*time.Second), "mixed", s, raised(fmt.Sprintf("sample %s: box %d of 0.%d is outside %q", s.ID, i, i, s.ID)))
	}
	b.Note(begin, "mixed", sample("x"), raised("another one"))
	b.Note(begin, "", sample("x"), raised("another one"))
	list, total := b.Newest()
	require.EqualValues(t, 102, total)
	require.Len(t, list, 3)
	f := list[0]
	require.Equal(t, "mixed", f.Reward)
	require.Equal(t, "judge", f.Component)
	require.Equal(t, rewards.Internal, f.Class)
	require.Equal(t, rewards.BlameReward, f.Blame)
	require.Equal(t, `sample <id>: box # of # is outside "…"`, f.Shape)
	require.Equal(t, `sample step3-99: box 99 of 0.99 is outside "step3-99"`, f.Message)
	require.EqualValues(t, 100, f.Count)
	require.EqualValues(t, 1, f.Scored)
	require.Equal(t, begin, f.First)
	require.Equal(t, begin.Add(99*time.Second), f.Last)
	require.Len(t, f.Workers, 8)
	require.Len(t, f.Samples, 5)
	require.Equal(t, "step3-99", f.Samples[0].ID)
	require.Equal(t, f.Last, f.Samples[0].At)
}

func TestTheFirstIsLoggedAtOnceAndThenHowManyEveryTenSeconds(t *testing.T) {
	t.Parallel()
	b := failures.NewBook()
	note := func(at time.Duration, message string) []failures.Line {
		return b.Note(begin.Add(at), "", sample("x"), raised(message))
	}
	require.Zero(t, b.Due())
	lines := note(0, "boom 1")
	require.Len(t, lines, 1)
	require.EqualValues(t, 1, lines[0].Since)
	require.Equal(t, "boom 1", lines[0].Message)
	require.Zero(t, b.Due(), "nothing has followed")
	for i := range 500 {
		require.Empty(t, note(time.Duration(i)*time.Millisecond, fmt.Sprint("boom ", i)))
	}
	require.Len(t, note(2*time.Second, "another"), 1)
	require.Equal(t, begin.Add(10*time.Second), b.Due())
	require.Empty(t, b.Tick(begin.Add(9*time.Second)))
	lines = b.Tick(begin.Add(10 * time.Second))
	require.Len(t, lines, 1)
	require.EqualValues(t, 500, lines[0].Since)
	require.EqualValues(t, 501, lines[0].Count)
	require.Equal(t, "boom 499", lines[0].Message)
	require.Zero(t, b.Due())
	require.Empty(t, note(11*time.Second, "boom 7"), "ten seconds have not passed since the last line")
	require.Len(t, b.Tick(begin.Add(20*time.Second)), 1)
	require.Len(t, note(time.Hour, "boom 8"), 1)
}

func TestWhatWasCancelledIsNoFailure(t *testing.T) {
	t.Parallel()
	b := failures.NewBook()
	errs := append(raised("boom"), rewards.ComponentError{Component: "ocr", Class: rewards.Cancelled, Message: "a required component failed"})
	require.Len(t, b.Note(begin, "", sample("x"), errs), 1)
	list, total := b.Newest()
	require.Len(t, list, 1)
	require.EqualValues(t, 1, total)
}

// A reward may say something new each time.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	b := failures.NewBook()
	word := func(i int) string {
		return string([]rune{rune('a' + i/676), rune('a' + i/26%26), rune('a' + i%26)})
	}
	for i := range 10_000 {
		b.Note(begin.Add(time.Duration(i)*time.Second), "", sample("x"), raised(word(i)+strings.Repeat(" traceback", 5000)))
	}
	list, total := b.Newest()
	require.Len(t, list, failures.MaxRecords)
	require.EqualValues(t, 10_000, total)
	size := 0
	for _, f := range list {
		size += len(f.Message) + len(f.Shape)
	}
	require.Less(t, size, failures.MaxRecords*3<<10)
	require.Equal(t, begin.Add(9999*time.Second), list[0].Last)
	require.Equal(t, begin.Add((10_000-failures.MaxRecords)*time.Second), list[len(list)-1].Last, "those that happened last are kept")
}

func TestAShapeHasNothingThatDiffersFromSampleToSample(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"":                                  "",
		"no target":                         "no target",
		"timeout after 30s":                 "timeout after #",
		"30.5 s of 1e-3, -7":                "# s of #, -#",
		"HTTP 503 from 10.0.0.7:8000":       "HTTP # from #",
		"clip2 and v1beta":                  "clip2 and v1beta",
		`cannot read "a \" b" or 'x y'`:     `cannot read "…" or "…"`,
		"can't, won't":                      "can't, won't",
		`an open " quote`:                   `an open " quote`,
		"line one\n\tline  two":             "line one line two",
		"sample img-17 at 0x7f3a2b: img-17": "sample <id> at #: <id>",
		"Größe 12×34":                       "Größe #",
	} {
		require.Equal(t, want, failures.Shape(message, "img-17"), message)
	}
	long := failures.Shape(strings.Repeat("ü", 5000)+" ValueError", "")
	require.LessOrEqual(t, len(long), 240)
	require.True(t, utf8.ValidString(long))
	require.True(t, strings.HasSuffix(long, " ValueError"), "the end of a traceback has the exception")
}

func FuzzAShapeIsShortAndValid(f *testing.F) {
	f.Add("sample 7 'x", "7")
	f.Add("\xff\"\\", "")
	f.Fuzz(func(t *testing.T, message, id string) {
		s := failures.Shape(message, id)
		require.LessOrEqual(t, len(s), 300)
		require.True(t, utf8.ValidString(s))
	})
}
