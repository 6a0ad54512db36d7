package rewards

import (
	"context"
	"math"
)

// Tenant is who work is done for. Executors (devices, child processes, CPUs of Go scorers)
// serve the tenants that wait for them in turn, by weight.
type Tenant struct {
	// Profile is the reward configuration, Run the training run.
	Profile, Run string
	// Weight is the tenant's part of an executor's time beside that of others. It is above 0
	// and finite; TenantOf has 1 for any other.
	Weight float64
	// Contended, if not nil, is called when an executor begins a call of the tenant's and
	// another profile has calls there, or had at its call before. It must return at once and
	// ask nothing of an executor.
	Contended func()
}

type tenantKey struct{}

// WithTenant returns a context whose work is done for t.
func WithTenant(ctx context.Context, t Tenant) context.Context {
	return context.WithValue(ctx, tenantKey{}, t)
}

// TenantOf returns whom ctx's work is done for. Work of nobody in particular, such as a
// self-test, is that of one tenant without names.
func TenantOf(ctx context.Context) Tenant {
	t, _ := ctx.Value(tenantKey{}).(Tenant)
	if !(t.Weight > 0) || math.IsInf(t.Weight, 1) {
		t.Weight = 1
	}
	return t
}
