package rewards

import "context"

// Turn is the right of a computation to use a shared executor, such as a CPU. Only one goroutine
// may call its methods.
type Turn interface {
	// Pause releases the executor. resume waits until the computation has the executor again, or
	// until ctx ends; it then returns the error of ctx, and the computation has no executor.
	Pause() (resume func(ctx context.Context) error)
	// Yield is Pause followed by resume, if the computation has used the executor for some time and
	// it is the turn of another tenant.
	Yield(ctx context.Context) error
}

type turnKey struct{}

// WithTurn returns the context of a computation that has the turn t.
func WithTurn(ctx context.Context, t Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, t)
}

// Yield lets another tenant compute if the time of ctx's computation is over. A computation that
// takes more than a few milliseconds should call Yield every few milliseconds. Yield returns the
// error of ctx, even if ctx has no turn.
func Yield(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t, ok := ctx.Value(turnKey{}).(Turn); ok {
		return t.Yield(ctx)
	}
	return nil
}

// Aside calls wait without holding the executor of ctx's computation, because the thing it waits
// for may be held by others that wait for that executor. Aside returns the error of ctx.
func Aside(ctx context.Context, wait func()) error {
	t, ok := ctx.Value(turnKey{}).(Turn)
	if !ok {
		wait()
		return nil
	}
	resume := t.Pause()
	wait()
	return resume(ctx)
}
