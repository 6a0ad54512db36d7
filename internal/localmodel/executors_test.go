package localmodel_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
)

// calls executes so many at a time.
type calls int

func (c calls) Concurrency() int { return int(c) }

// net is a loaded one.
type net struct {
	infer.Net
	calls
}

// devices know what each has.
type devices struct{ infer.Nets }

func (devices) On(string) any { return calls(5) }

func TestAScorerOfSeveralModelsHasTheCallsOfTheNarrowest(t *testing.T) {
	t.Parallel()
	d := devices{}
	assert.Equal(t, 5, rewards.ConcurrencyOf(localmodel.Executors(d, "cpu")), "nothing is loaded yet")
	assert.Equal(t, 3, rewards.ConcurrencyOf(localmodel.Executors(d, "cpu", net{calls: 8}, net{calls: 3})))
	assert.Equal(t, rewards.ConcurrencyOf(nil), rewards.ConcurrencyOf(localmodel.Executors(nil, "cpu")), "nobody knows")
}

func TestOnceSaysWhatItHasMade(t *testing.T) {
	t.Parallel()
	o := localmodel.NewOnce[int](nil)
	_, made := o.Made()
	assert.False(t, made)
	_, err := o.Get(t.Context(), func(context.Context) (int, error) { return 0, errors.New("not yet") })
	require.Error(t, err)
	_, made = o.Made()
	assert.False(t, made, "a failure is nothing")
	_, err = o.Get(t.Context(), func(context.Context) (int, error) { return 7, nil })
	require.NoError(t, err)
	v, made := o.Made()
	assert.True(t, made)
	assert.Equal(t, 7, v)
}
