package rewards_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rewardloop/rewardloop/rewards"
)

func TestWorkOfNobodyIsThatOfOneTenantWithTheWeightOne(t *testing.T) {
	t.Parallel()
	assert.Equal(t, rewards.Tenant{Weight: 1}, rewards.TenantOf(t.Context()))
}

func TestATenantsWeightIsAPositiveNumberOrOne(t *testing.T) {
	t.Parallel()
	for given, want := range map[float64]float64{
		3: 3, 0.25: 0.25, math.MaxFloat64: math.MaxFloat64,
		0: 1, -2: 1, math.Inf(1): 1, math.Inf(-1): 1,
	} {
		ctx := rewards.WithTenant(t.Context(), rewards.Tenant{Profile: "p", Run: "r", Weight: given})
		assert.Equal(t, rewards.Tenant{Profile: "p", Run: "r", Weight: want}, rewards.TenantOf(ctx))
	}
	nan := rewards.WithTenant(t.Context(), rewards.Tenant{Weight: math.NaN()})
	assert.InDelta(t, 1, rewards.TenantOf(nan).Weight, 0)
}
