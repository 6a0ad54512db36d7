package preference_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// foreseen are nets of devices that are known before a model is loaded.
type foreseen struct {
	infer.Nets
	after map[string]int // calls at a time by the base name of the file
}

type calls int

func (c calls) Concurrency() int          { return int(c) }
func (c calls) ConcurrencyReason() string { return rewards.Count(int(c), "call") }

func (foreseen) On(device string) any { return calls(len(device)) }

func (f foreseen) Net(m infer.Model) (infer.Net, error) {
	n, err := f.Nets.Net(m)
	return struct {
		infer.Net
		calls
	}{n, calls(f.after[m.Name])}, err
}

func TestAModelHasTheCallsOfItsDeviceAndOnceLoadedOfItsNarrowestGraph(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pickscore", "image_similarity"} {
		s := scorer(t, foreseen{towers(), map[string]int{"tiny-clip/vision": 7, "tiny-clip/text": 2}}, name, object(clipFolder(t), ""))
		assert.Equal(t, len("cpu"), rewards.ConcurrencyOf(s))
		assert.Equal(t, "3 calls", rewards.ConcurrencyReason(s))
		require.NoError(t, s.(rewards.Warmer).Warm(t.Context()))
		assert.Equal(t, 2, rewards.ConcurrencyOf(s))
		assert.Equal(t, "2 calls", rewards.ConcurrencyReason(s))
	}
}
