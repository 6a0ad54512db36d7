package compare_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/compare"
)

func ids(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "s" + strconv.Itoa(i)
	}
	return out
}

func TestEverybodyMeetsTheSameNumberOfOthersAndNobodyIsCutOff(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 17; n++ {
		for k := range n + 2 {
			if k == 1 {
				continue // refused
			}
			pairs := compare.Plan(ids(n), k, false)
			want := min(k, n-1)
			if k == 0 {
				want = n - 1
			}
			met, reached := make([]map[int]bool, n), map[int]bool{0: true}
			for i := range met {
				met[i] = map[int]bool{}
			}
			for _, p := range pairs {
				require.NotEqual(t, p[0], p[1])
				require.False(t, met[p[0]][p[1]], "%v twice", p)
				met[p[0]][p[1]], met[p[1]][p[0]] = true, true
			}
			more := 0
			for i := range met {
				require.GreaterOrEqual(t, len(met[i]), want, "n %d k %d", n, k)
				more += len(met[i]) - want
			}
			assert.Equal(t, n*want%2, more, "n %d k %d", n, k)
			for range n {
				for i := range met {
					for j := range met[i] {
						if reached[i] {
							reached[j] = true
						}
					}
				}
			}
			assert.Len(t, reached, n, "n %d k %d", n, k)
		}
	}
}

func TestWhoMeetsWhomIsDrawnByWhoTheyAreAndNotByTheirPlaces(t *testing.T) {
	t.Parallel()
	named := func(list []string, pairs [][2]int) []string {
		var out []string
		for _, p := range pairs {
			a, b := list[p[0]], list[p[1]]
			out = append(out, fmt.Sprint(min(a, b), max(a, b)))
		}
		slices.Sort(out)
		return out
	}
	list := ids(9)
	turned := slices.Clone(list)
	slices.Reverse(turned)
	assert.Equal(t, named(list, compare.Plan(list, 4, false)), named(turned, compare.Plan(turned, 4, false)))
}

func TestTheReferenceMeetsEveryMember(t *testing.T) {
	t.Parallel()
	assert.Len(t, compare.Plan(ids(8), 2, true), 8+8)
	assert.Len(t, compare.Plan(ids(4), 0, true), 6+4)
	assert.Equal(t, [][2]int{{0, 1}}, compare.Plan(ids(1), 0, true))
	assert.Empty(t, compare.Plan(ids(1), 0, false))
}
