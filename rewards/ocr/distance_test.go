package ocr_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// plain is the textbook recurrence with a full matrix.
func plain(a, b []rune) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		for j := range d[i] {
			switch {
			case i == 0:
				d[i][j] = j
			case j == 0:
				d[i][j] = i
			case a[i-1] == b[j-1]:
				d[i][j] = d[i-1][j-1]
			default:
				d[i][j] = 1 + min(d[i-1][j-1], d[i-1][j], d[i][j-1])
			}
		}
	}
	return d[len(a)][len(b)]
}

func FuzzDistance(f *testing.F) {
	f.Add("kitten", "sitting", 3)
	f.Add("", "abc", 9)
	f.Add("ab", "ba", 1)
	f.Add("日本語", "日本", 0)
	f.Add("abc", "xbd", math.MaxInt)
	f.Add("abc", "xbd", math.MinInt)
	f.Fuzz(func(t *testing.T, x, y string, limit int) {
		a, b := []rune(x), []rune(y)
		if len(a) > 200 || len(b) > 200 {
			return
		}
		want := plain(a, b)
		if full := ocr.Distance(a, b, len(a)+len(b)+1); full != want || full != ocr.Distance(b, a, len(a)+len(b)+1) {
			t.Fatalf("distance %d, want %d", full, want)
		}
		if got, capped := ocr.Distance(a, b, limit), max(0, min(want, limit)); got != capped {
			t.Fatalf("distance below %d is %d, want %d", limit, got, capped)
		}
	})
}

func TestTheDistanceOfLongTextsIsBandedByItsLimit(t *testing.T) {
	t.Parallel()
	a, b := make([]rune, 1_000_000), make([]rune, 1_000_005)
	for i := range a {
		a[i] = rune('a' + i%23)
	}
	for i := range b {
		b[i] = rune('a' + i%29)
	}
	began := time.Now()
	require.Equal(t, 10, ocr.Distance(a, b, 10))
	require.Equal(t, 4096, ocr.Distance(a[:5000], b, 4096))
	require.Less(t, time.Since(began), 30*time.Second)
}

func BenchmarkDistance(b *testing.B) {
	want, read := []rune("quartzmeadowstation"), []rune("quarizmeadowstatlonxx")
	for b.Loop() {
		ocr.Distance(want, read, len(want))
	}
}
