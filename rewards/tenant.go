package rewards

import (
	"context"
	"math"
)

// Tenant is the party for which work is done. Executors (devices, child processes, CPUs of Go
// scorers) serve the waiting tenants in turn, by weight.
type Tenant struct {
	// Profile is the name of the reward configuration, Run the name of the training run.
	Profile, Run string
	// Weight is the tenant's share of an executor's time relative to other tenants. It must be
	// positive and finite; TenantOf replaces any other weight with 1.
	Weight float64
	// Contended, if not nil, is called when an executor begins a call of the tenant while another
	// profile has calls at the executor, or had some when the call arrived. Contended must return
	// immediately and must not use an executor.
	Contended func()
}

type tenantKey struct{}

// WithTenant returns a context for work on behalf of t.
func WithTenant(ctx context.Context, t Tenant) context.Context {
	return context.WithValue(ctx, tenantKey{}, t)
}

// TenantOf returns the tenant of ctx. Work without a tenant, such as a self-test, belongs to one
// tenant with empty names.
func TenantOf(ctx context.Context) Tenant {
	t, _ := ctx.Value(tenantKey{}).(Tenant)
	if !(t.Weight > 0) || math.IsInf(t.Weight, 1) {
		t.Weight = 1
	}
	return t
}
