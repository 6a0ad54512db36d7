package compare_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/compare"
)

func TestTheLastResultOfAnAnswerCounts(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]compare.Outcome{
		"<result>A</result>":      compare.ABetter,
		"<RESULT>\n b\n</Result>": compare.BBetter,
		"at first <result>A</result>, but no: <result>tie</result>": compare.Tie,
		"<think><result>A</result></think><result>B</result>.":      compare.BBetter,
		"I write <result> and then <result>B</result>":              compare.BBetter,
		"<result>A</result> and then <result>B":                     compare.ABetter,
	} {
		got, err := compare.ReadOutcome(answer)
		require.NoError(t, err, answer)
		assert.Equal(t, want, got, answer)
	}
	for _, answer := range []string{
		"", "A", "Response A is better, they are similar", "<result></result>", "<result>A|B|tie</result>", "<result>C</result>",
		"<result>A</result> hm <result>neither</result>", "<result>A", "A</result>", "<result>A</result></think>",
		"<result>" + strings.Repeat("é", 100) + "</result>",
	} {
		got, err := compare.ReadOutcome(answer)
		require.Error(t, err, answer)
		assert.Equal(t, compare.Unknown, got)
		assert.Less(t, len(err.Error()), 200)
	}
}

func TestAnOrderNamesEveryNumberOnce(t *testing.T) {
	t.Parallel()
	got, err := compare.ReadOrder("such as <ranking>1,2,3</ranking>; here: <ranking> 3, 1,2\n</ranking>", 3)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 0, 1}, got)
	for _, answer := range []string{
		"3,1,2", "<ranking>3,1</ranking>", "<ranking>3,1,1</ranking>", "<ranking>3,1,4</ranking>", "<ranking>0,1,2</ranking>",
		"<ranking>3,1,2,</ranking>", "<ranking>3 > 1 > 2</ranking>", "<ranking>3,1,2,2</ranking>", "<ranking></ranking>",
		"<ranking>" + strings.Repeat("1,", 100_000) + "</ranking>",
	} {
		_, err := compare.ReadOrder(answer, 3)
		require.Error(t, err, answer)
		assert.Less(t, len(err.Error()), 200)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add("<result>A</result>", 2)
	f.Add("İ<ranking>2,1</RANKING></ranking>", 2)
	f.Fuzz(func(t *testing.T, answer string, n int) {
		o, err := compare.ReadOutcome(answer)
		assert.Equal(t, err != nil, o == compare.Unknown)
		n = 1 + max(n, -n)&31
		if n < 1 {
			return
		}
		if order, err := compare.ReadOrder(answer, n); err == nil {
			slices.Sort(order)
			for i, v := range order {
				assert.Equal(t, i, v)
			}
		}
	})
}
