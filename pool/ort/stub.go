//go:build !cgo

package ort

import (
	"context"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// Kinds returns nil: without cgo, no child process of this binary runs models.
func Kinds() []subprocess.Kind { return nil }

// built is what is missing in this build.
func built() error {
	return infer.Marked(infer.ErrMissing, fmt.Errorf("%w: this binary was built without cgo, which ONNX Runtime needs: build it with CGO_ENABLED=1 and a C compiler",
		infer.ErrUnavailable))
}

// Session is not available without cgo.
type Session struct{}

// Answer is the result of a run.
type Answer struct{ Outputs []infer.Tensor }

// OpenSession returns an error, because this binary was built without cgo.
func OpenSession(SessionConfig) (*Session, error) { return nil, built() }

// Info returns the zero value.
func (*Session) Info() infer.Info { return infer.Info{} }

// Run returns an error, because this binary was built without cgo.
func (*Session) Run(context.Context, infer.Batch) (*Answer, error) { return nil, built() }

// Language is not available without cgo.
type Language struct{ Session }

// OpenLanguage returns an error, because this binary was built without cgo.
func OpenLanguage(SessionConfig) (*Language, error) { return nil, built() }

// Close does nothing.
func (*Session) Close() error { return nil }

// Release does nothing.
func (*Answer) Release() {}
