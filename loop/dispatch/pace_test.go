package dispatch_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop/dispatch"
)

// What is usual must not follow the stragglers: a mean that forgets over 16 samples, as
// runs are charged by, would move the patience of backups by half and more each time.
func TestTheUsualServiceTimeBearsStragglers(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	usual, mean := dispatch.Usual(20_000, func() float64 { return straggling(rng) })
	t.Logf("share of the time within 30%% of the true mean without stragglers: %.3f, of the plain mean %.3f", usual, mean)
	require.Greater(t, usual, 0.98)
	require.Less(t, mean, 0.85)
}

func TestARunRemembersThePaceOfSoManyWorkersOnly(t *testing.T) {
	t.Parallel()
	kept, first, last := dispatch.PacesOf(5000)
	require.Equal(t, 4096, kept)
	require.False(t, first, "the one that answered longest ago goes first")
	require.True(t, last)
}

// straggling is 2 % of attempts that take as long as ten samples do on average.
func straggling(rng *rand.Rand) float64 {
	if rng.Float64() < 0.02 {
		return 10
	}
	return 0.8 / 0.98
}
