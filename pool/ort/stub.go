//go:build !cgo

package ort

import (
	"context"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// Kinds is empty: without cgo no child process of this binary runs models.
func Kinds() []subprocess.Kind { return nil }

// built is what is missing in this build.
func built() error {
	return infer.Marked(infer.ErrMissing, fmt.Errorf("%w: this binary was built without cgo, which ONNX Runtime needs: build it with CGO_ENABLED=1 and a C compiler",
		infer.ErrUnavailable))
}

// Session cannot be had without cgo.
type Session struct{}

// Answer is what a run gave.
type Answer struct{ Outputs []infer.Tensor }

// OpenSession says that this binary cannot.
func OpenSession(SessionConfig) (*Session, error) { return nil, built() }

// Info is empty.
func (*Session) Info() infer.Info { return infer.Info{} }

// Run says that this binary cannot.
func (*Session) Run(context.Context, infer.Batch) (*Answer, error) { return nil, built() }

// Language cannot be had without cgo.
type Language struct{ Session }

// OpenLanguage says that this binary cannot.
func OpenLanguage(SessionConfig) (*Language, error) { return nil, built() }

// Close does nothing.
func (*Session) Close() error { return nil }

// Release does nothing.
func (*Answer) Release() {}
