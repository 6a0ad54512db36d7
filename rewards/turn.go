package rewards

import "context"

// Turn is the right of a computation to an executor that it shares with others, such as a CPU.
// One goroutine calls its methods.
type Turn interface {
	// Pause gives the executor back. resume waits until it has come again, or ctx ends: the error
	// is ctx's, and the computation has no executor then.
	Pause() (resume func(ctx context.Context) error)
	// Yield is Pause and resume where the computation has had the executor for a while and
	// another tenant is to have it first.
	Yield(ctx context.Context) error
}

type turnKey struct{}

// WithTurn returns the context of a computation that has a turn.
func WithTurn(ctx context.Context, t Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, t)
}

// Yield lets another tenant compute, if ctx is of a computation whose time is over. A computation
// that takes more than a few milliseconds calls it every few. The error is ctx's, also where it
// has no turn.
func Yield(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t, ok := ctx.Value(turnKey{}).(Turn); ok {
		return t.Yield(ctx)
	}
	return nil
}

// Aside waits without the executor of the computation that ctx is of. What is waited for may be
// held by others that wait for that executor. The error is ctx's.
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
