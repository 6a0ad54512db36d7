package ranking_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/ranking"
)

type item struct{ value, name, place int }

type byValue struct{}

func (byValue) Before(a, b *item) bool {
	return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.name, b.name)) < 0
}
func (byValue) Place(i *item) *int { return &i.place }

// What is added, moved and removed in any order comes out in order.
func TestTheFirstItemIsAlwaysTheLeast(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var h ranking.Heap[*item, byValue]
	var model []*item
	for n := range 20_000 {
		switch {
		case len(model) == 0 || rng.IntN(3) == 0:
			i := &item{value: rng.IntN(100), name: n}
			h.Move(i)
			model = append(model, i)
		case rng.IntN(2) == 0:
			i := model[rng.IntN(len(model))]
			i.value = rng.IntN(100)
			h.Move(i)
		default:
			at := rng.IntN(len(model))
			h.Remove(model[at])
			h.Remove(model[at]) // it is in no heap any more
			require.Zero(t, model[at].place)
			model = slices.Delete(model, at, at+1)
		}
		require.Equal(t, len(model), h.Len())
		if len(model) > 0 {
			require.Same(t, slices.MinFunc(model, func(a, b *item) int {
				return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.name, b.name))
			}), h.First())
		}
	}
}
