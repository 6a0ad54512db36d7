package report

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNoBoundKeepsWhatIsNoNumber(t *testing.T) {
	t.Parallel()
	for _, most := range []bool{false, true} {
		b := Bound{Value: 1, Most: most}
		assert.True(t, b.Keeps(1))
		assert.False(t, b.Keeps(math.NaN()))
		assert.Equal(t, most, b.Keeps(0))
		assert.Equal(t, !most, b.Keeps(2))
	}
}

func TestTheMedianIsTheMiddle(t *testing.T) {
	t.Parallel()
	assert.InDelta(t, 2, Median([]float64{3, 1, 2}), 0)
	assert.InDelta(t, 2.5, Median([]float64{4, 1, 2, 3}), 0)
	assert.True(t, math.IsNaN(Median(nil)))
	assert.True(t, math.IsNaN(Median([]float64{1, math.NaN(), 2})))
}

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.5: "0.5", 0.12345: "0.123", 0.0123: "0.012", 1.23456: "1.235", 12.3456: "12.35", 123.456: "123.5", 999.96: "1,000",
		1000: "1,000", 12345.6: "12,346", 1234567: "1,234,567", -9.659: "-9.659", -1234: "-1,234", math.Inf(1): "+Inf",
	} {
		assert.Equal(t, want, Number(v))
	}
	assert.Equal(t, "12/s", With(12, "/s"))
	assert.Equal(t, "12 ms", With(12, "ms"))
	assert.Equal(t, "12", With(12, ""))
}

func TestTheTableShowsTargetMachineLoadAndCommit(t *testing.T) {
	t.Parallel()
	page := table([]Report{{
		Suite: "one", About: "What it is.", Date: "2031-02-03T04:05:06Z", Commit: "abc", Dirty: true, LoadBefore: "1 2 3", LoadAfter: "4 5 6", Repetitions: 5, Disturbed: 2,
		Machine: Machine{CPU: "Chip", Cores: 2, Go: "go1", OS: "os/arch"},
		Rows: []Figure{
			{Row: "x/rate", Issue: "≥ 100/s", Unit: "/s", Value: 1234, Target: &Bound{Value: 1000, Note: "scaled"}, Held: true, Beside: map[string]float64{"b": 2, "a": 1}},
			{Row: "x/size", Unit: "KiB", Value: 70, Target: &Bound{Value: 64, Most: true}, Miss: &Miss{Reason: "a | b"}},
			{Row: "x/new", Value: 3, Target: &Bound{Value: 4}},
			{Row: "x/told", Unit: "ms", Value: 3, Held: true},
		},
	}}, []string{"/folder/one-more.svg", "/folder/two.svg"})
	assert.Contains(t, page, "![one-more](one-more.svg)")
	assert.NotContains(t, page, "two.svg", "it is of another suite")
	for _, want := range []string{
		"## one\n\nWhat it is.\n\nChip, 2 cores, os/arch, go1. Load 1 2 3 before, 4 5 6 after. Commit abc with changes, 2031-02-03T04:05:06Z, median of 5. Other processes disturbed 2 of the repetitions: latencies and absolute rates are partly theirs.\n",
		"| x/rate | 1,234/s | ≥ 1,000/s (scaled) | yes | a 1, b 2 |\n",
		"| x/size | 70 KiB | ≤ 64 KiB | **no**: a \\| b |  |\n",
		"| x/new | 3 | ≥ 4 | **no** |  |\n",
		"| x/told | 3 ms | – | – |  |\n",
		"- `x/rate`: “≥ 100/s”\n",
	} {
		assert.Contains(t, page, want)
	}
}

func TestTheProcessorIsNamed(t *testing.T) {
	t.Parallel()
	assert.NotEmpty(t, cpuModel("/proc/cpuinfo"))
	assert.NotEmpty(t, cpuModel("/nowhere"))
	assert.NotEmpty(t, LoadAverage())
}

func TestTheListOfMissesIsCheckedAsAWhole(t *testing.T) {
	t.Parallel()
	mine := func(row string) bool { return !strings.HasPrefix(row, "ocr/") }
	path := filepath.Join(t.TempDir(), "misses.yml")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("misses: [{row: a}, {row: a, measured: 0, reason: r}, {row: b, measured: 1, reason: r}]")
	_, err := ReadMisses(path, mine, []string{"a"})
	for _, fault := range []string{`"a" needs the measured value`, `"a" needs a reason`, `"a" is listed twice`, `"b" is not measured`} {
		require.ErrorContains(t, err, fault)
	}
	write("misses: [{row: ocr/any, measured: 1, reason: r}]")
	misses, err := ReadMisses(path, mine, []string{"a"})
	require.NoError(t, err, "a row of another program is in the same list")
	require.Empty(t, misses)
	write("missed: []")
	_, err = ReadMisses(path, mine, nil)
	require.ErrorContains(t, err, "missed")
}
