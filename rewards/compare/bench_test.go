package compare_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/rewardloop/rewardloop/rewards/compare"
)

// BenchmarkDGR is the exact way out of all cycles of a random tournament. The original
// takes 7.5 s for 9 participants in a simplified loop.
func BenchmarkDGR(b *testing.B) {
	for _, n := range []int{8, 9, 12, 16} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, uint64(n)))
			table := fill(keys(r, n), draw(r, n, false, true, false))
			b.ReportAllocs()
			for b.Loop() {
				compare.DGR(table)
			}
		})
	}
}

// BenchmarkMethods is what the others take for 16 participants.
func BenchmarkMethods(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 16))
	table := fill(keys(r, 16), draw(r, 16, false, true, false))
	for name, method := range methods {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				method(table)
			}
		})
	}
}
