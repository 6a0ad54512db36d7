package cards_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool/cards"
)

const gib = 1 << 30

// some are healthy cards of 80 GiB.
func some(n int) []cards.Card {
	out := make([]cards.Card, n)
	for i := range out {
		out[i] = cards.Card{Index: i, UUID: uuid(i), Name: "H100", MemoryBytes: 80 * gib, FreeBytes: 79 * gib}
	}
	return out
}

// devices are those of each owner that fits.
func devices(p cards.Plan) map[string][]string {
	out := map[string][]string{}
	for _, h := range p.Owners {
		out[h.Owner] = h.Devices
	}
	return out
}

func TestEachWantThatFitsHasItsDevices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cards, pool int
		wants       []cards.Want
		has         map[string][]string
		inPool      []string
	}{
		"the CPU needs no card": {0, 0, []cards.Want{{Owner: "a", Device: "cpu"}}, map[string][]string{"a": {"cpu"}}, nil},
		"one card by name":      {2, 0, []cards.Want{{Owner: "a", Device: "cuda:1"}}, map[string][]string{"a": {"cuda:1"}}, nil},
		"every card":            {3, 0, []cards.Want{{Owner: "a", Device: "cuda"}}, map[string][]string{"a": {"cuda:0", "cuda:1", "cuda:2"}}, []string{"cuda:0", "cuda:1", "cuda:2"}},
		"every card of a pool":  {8, 2, []cards.Want{{Owner: "a", Device: "cuda"}}, map[string][]string{"a": {"cuda:0", "cuda:1"}}, []string{"cuda:0", "cuda:1"}},
		"a set takes the last cards, the pool the rest": {
			8, 0,
			[]cards.Want{{Owner: "pool", Device: "cuda"}, {Owner: "two", Count: 2}, {Owner: "four", Count: 4}},
			map[string][]string{"pool": {"cuda:0", "cuda:1"}, "two": {"cuda:2", "cuda:3"}, "four": {"cuda:4", "cuda:5", "cuda:6", "cuda:7"}},
			[]string{"cuda:0", "cuda:1"},
		},
		"a set is side by side where it can be": {
			6, 0,
			[]cards.Want{{Owner: "a", Device: "cuda:4"}, {Owner: "set", Count: 3}},
			map[string][]string{"a": {"cuda:4"}, "set": {"cuda:1", "cuda:2", "cuda:3"}},
			nil,
		},
		"a set is apart where it must be": {
			4, 0,
			[]cards.Want{{Owner: "a", Device: "cuda:1"}, {Owner: "set", Count: 3}},
			map[string][]string{"a": {"cuda:1"}, "set": {"cuda:0", "cuda:2", "cuda:3"}},
			nil,
		},
		"fractions that add up to one": {
			1, 0,
			[]cards.Want{{Owner: "a", Device: "cuda:0", Fraction: 0.1}, {Owner: "b", Device: "cuda", Fraction: 0.2}, {Owner: "c", Device: "cuda:0", Fraction: 0.7}},
			map[string][]string{"a": {"cuda:0"}, "b": {"cuda:0"}, "c": {"cuda:0"}},
			[]string{"cuda:0"},
		},
		"those without a fraction share what is left": {
			1, 0,
			[]cards.Want{{Owner: "a", Device: "cuda:0", Fraction: 0.5}, {Owner: "b", Device: "cuda:0"}, {Owner: "c", Device: "cuda:0"}},
			map[string][]string{"a": {"cuda:0"}, "b": {"cuda:0"}, "c": {"cuda:0"}},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := cards.Make(some(c.cards), c.pool, c.wants)
			require.NoError(t, err)
			assert.Equal(t, c.has, devices(p))
			assert.Equal(t, c.inPool, p.Pool)
			again, err := cards.Make(some(c.cards), c.pool, slices.Clone(c.wants))
			require.NoError(t, err)
			assert.Equal(t, p, again)
		})
	}
}

func TestEveryWantThatDoesNotFitIsListedWithNumbersAndARemedy(t *testing.T) {
	t.Parallel()
	sick := some(2)
	sick[1].Sick = "17 uncorrected memory errors"
	for name, c := range map[string]struct {
		cards []cards.Card
		pool  int
		wants []cards.Want
		fault string
	}{
		"no card":              {nil, 0, []cards.Want{{Owner: "a", Device: "cuda:0"}}, "a: no device cuda:0: this process sees no card"},
		"no card for the pool": {nil, 2, []cards.Want{{Owner: "a", Device: "cuda"}}, "a: the model needs the cards of the reward pool, but this process sees no card"},
		"too high":             {some(2), 0, []cards.Want{{Owner: "a", Device: "cuda:2"}}, "this process sees 2 cards, cuda:0 to cuda:1"},
		"no device":            {some(1), 0, []cards.Want{{Owner: "a", Device: "cuda:01"}}, `unknown device "cuda:01"`},
		"a sick card":          {sick, 0, []cards.Want{{Owner: "a", Device: "cuda:1"}}, "cuda:1 (" + uuid(1) + ") is not used: 17 uncorrected memory errors"},
		"a pool that is larger than the machine": {
			some(2), 4,
			[]cards.Want{{Owner: "a", Device: "cuda"}},
			"the reward pool needs 4 cards (reward_model.n_gpus_per_node), but 2 of 2 cards are left: lower n_gpus_per_node",
		},
		"a pool that lacks a sick card": {sick, 2, []cards.Want{{Owner: "a", Device: "cuda"}}, "1 of 2 cards is left (cuda:1 is sick (17 uncorrected memory errors))"},
		"a set that is too large":       {some(2), 0, []cards.Want{{Owner: "a", Count: 4}}, "the engine needs 4 cards as one set, but 2 of 2 cards are left"},
		"a set beside others": {
			some(2), 0,
			[]cards.Want{{Owner: "b", Device: "cuda:0"}, {Owner: "a", Count: 2}},
			"a: the engine needs 2 cards as one set, but 1 of 2 cards is left (cuda:0 has b)",
		},
		"a pool of which sets have all": {some(2), 0, []cards.Want{{Owner: "s", Count: 2}, {Owner: "a", Device: "cuda"}}, "a: the model needs every card that is left, but 0 of 2 cards are left (cuda:0 has s; cuda:1 has s)"},
		"fractions beyond one": {
			some(1), 0,
			[]cards.Want{{Owner: "b", Device: "cuda:0", Fraction: 0.5}, {Owner: "a", Device: "cuda:0", Fraction: 0.6}},
			"a: with the fraction 0.6 of this model the fractions on cuda:0 add up to 1.1: cuda:0 has b (0.5)",
		},
		"nothing left for one without": {
			some(1), 0,
			[]cards.Want{{Owner: "b", Device: "cuda:0", Fraction: 0.4}, {Owner: "c", Device: "cuda:0", Fraction: 0.6}, {Owner: "a", Device: "cuda:0"}},
			"a: cuda:0 has b (0.4), c (0.6), and the fractions leave no memory",
		},
		"a whole card that is shared": {some(1), 0, []cards.Want{{Owner: "b", Device: "cuda:0", Fraction: 0.1}, {Owner: "a", Device: "cuda:0", Fraction: 1}}, "a: the model needs a whole card, but cuda:0 has b (0.1)"},
		"a share of a whole card":     {some(1), 0, []cards.Want{{Owner: "b", Device: "cuda:0", Fraction: 1}, {Owner: "a", Device: "cuda:0", Fraction: 0.1}}, "a: cuda:0 has b (whole), which uses the whole card"},
		"a negative fraction":         {some(1), 0, []cards.Want{{Owner: "a", Device: "cuda:0", Fraction: -1}}, "a: fraction is -1"},
		"more memory than a card":     {some(1), 0, []cards.Want{{Owner: "a", Device: "cuda:0", Bytes: 90 * gib}}, "a: the model needs 90.0 GiB, but cuda:0 has 80.0 GiB"},
		"more memory than a fraction": {some(1), 0, []cards.Want{{Owner: "a", Device: "cuda:0", Bytes: 9 * gib, Fraction: 0.1}}, "its fraction 0.1 of 80.0 GiB on cuda:0 is 8.0 GiB: raise the fraction"},
		"more memory together": {
			some(1), 0,
			[]cards.Want{{Owner: "b", Device: "cuda:0", Bytes: 50 * gib}, {Owner: "a", Device: "cuda:0", Bytes: 40 * gib}},
			"a: with this model 90.0 GiB of the 80.0 GiB of cuda:0 are planned: cuda:0 has b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := cards.Make(c.cards, c.pool, c.wants)
			unfit, ok := errors.AsType[cards.UnfitError](err)
			require.True(t, ok, "%v", err)
			require.Len(t, unfit, 1, "%v", err)
			assert.Equal(t, "a", c.wants[unfit[0].Want].Owner)
			assert.Contains(t, err.Error(), c.fault)
			assert.NotContains(t, devices(p), "a")
			assert.Len(t, p.Owners, len(c.wants)-1, "the others have theirs")
		})
	}
}

func TestAWantHasAllOfItsCardsOrNone(t *testing.T) {
	t.Parallel()
	p, err := cards.Make(some(3), 0, []cards.Want{{Owner: "one", Device: "cuda:2", Fraction: 0.8}, {Owner: "all", Device: "cuda", Fraction: 0.5}})
	require.ErrorContains(t, err, "all: with the fraction 0.5 of this model the fractions on cuda:2 add up to 1.3")
	assert.Empty(t, p.Cards[0].Shares)
	assert.Empty(t, p.Cards[1].Shares)
}

func TestThePlanSaysWhatOfEachCardIsPlannedAndLeft(t *testing.T) {
	t.Parallel()
	p, err := cards.Make(some(3), 0, []cards.Want{
		{Owner: "a", Device: "cuda:0", Fraction: 0.25}, {Owner: "b", Device: "cuda:0", Bytes: 10 * gib, Fraction: 0.25}, {Owner: "s", Count: 1},
	})
	require.NoError(t, err)
	assert.EqualValues(t, 40*gib, p.Cards[0].Planned)
	assert.EqualValues(t, 40*gib, p.Cards[0].Left)
	assert.EqualValues(t, 40*gib-600<<20, p.Cards[0].Budget(), "half the card, less what libraries need")
	assert.Zero(t, p.Cards[1].Planned)
	assert.EqualValues(t, 80*gib-600<<20, p.Cards[1].Budget(), "all of it, less what libraries need")
	assert.Zero(t, p.Cards[2].Left, "a set has whole cards")
	assert.Zero(t, cards.Use{}.Budget(), "of a card whose memory is not known nothing is")
}

func TestMemoryThatOthersHaveNowIsNoted(t *testing.T) {
	t.Parallel()
	crowd := some(2)
	for i := range crowd {
		crowd[i].FreeBytes, crowd[i].Processes = 3*gib, []cards.Process{{PID: 77, Name: "python", Bytes: 77 * gib}}
	}
	p, err := cards.Make(crowd, 0, []cards.Want{{Owner: "a", Device: "cuda:0", Fraction: 0.5}})
	require.NoError(t, err)
	require.Len(t, p.Notes, 1, "nobody plans on the other card")
	assert.Equal(t, "cuda:0 has 3.0 GiB free now of 80.0 GiB; other programs use the rest: process 77 (python). If they keep that memory, write fraction in addition to device", p.Notes[0])
}

// Whatever is wanted: a whole card has one owner, fractions add up to one at most, a want has
// all of its cards or none and a reason, and the same question has the same answer.
func TestEveryDrawnPlanKeepsTheRulesOfTheBook(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 2))
	for range 5000 {
		there := some(rng.IntN(9))
		for i := range there {
			if rng.IntN(6) == 0 {
				there[i].Sick = "ill"
			}
		}
		wants := make([]cards.Want, rng.IntN(8))
		for i := range wants {
			w := cards.Want{Owner: fmt.Sprint(i), Fraction: []float64{0, 0, 0.1, 0.3, 0.5, 0.7, 1}[rng.IntN(7)], Bytes: []int64{0, 0, 7 * gib, 30 * gib}[rng.IntN(4)]}
			if w.Device = []string{"cpu", "cuda", "cuda:0", "cuda:3", ""}[rng.IntN(5)]; w.Device == "" {
				w.Count = 1 + rng.IntN(4)
			}
			wants[i] = w
		}
		size := rng.IntN(4)
		plan, err := cards.Make(there, size, wants)
		again, _ := cards.Make(there, size, wants)
		require.Equal(t, plan, again)
		unfit, _ := errors.AsType[cards.UnfitError](err)
		require.Len(t, wants, len(plan.Owners)+len(unfit))
		for _, u := range unfit {
			require.NotEmpty(t, u.Why)
		}
		require.Len(t, plan.Cards, len(there))
		keepsTheRules(t, plan, size)
	}
}

func keepsTheRules(t *testing.T, plan cards.Plan, size int) {
	t.Helper()
	shares := map[string]int{} // of each owner
	for _, u := range plan.Cards {
		var sum float64
		for _, s := range u.Shares {
			require.Empty(t, u.Card.Sick)
			require.False(t, s.Whole && len(u.Shares) > 1, "%+v", u)
			sum += s.Fraction
			shares[s.Owner]++
		}
		require.LessOrEqual(t, sum, 1+1e-9)
		require.LessOrEqual(t, u.Planned, u.Card.MemoryBytes)
		require.Equal(t, u.Card.MemoryBytes-u.Planned, u.Left)
	}
	for _, h := range plan.Owners {
		switch {
		case h.Device == "cpu":
			require.Equal(t, []string{"cpu"}, h.Devices)
			continue
		case h.Device == "cuda":
			require.Equal(t, plan.Pool, h.Devices)
			require.True(t, size == 0 || len(plan.Pool) == size)
		case h.Count > 0:
			require.Len(t, h.Devices, h.Count)
		default:
			require.Equal(t, []string{h.Device}, h.Devices)
		}
		require.Equal(t, len(h.Devices), shares[h.Owner])
	}
}
