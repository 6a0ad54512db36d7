package ort

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// SessionConfig is what a Session is made from.
type SessionConfig struct {
	// Library to load; a process can load but one.
	Library Library
	// Model to load.
	Model infer.Model
	// Want are ports the caller counts on: each must be there with that type and
	// shape, -1 fitting every size. A model without them is refused.
	Want infer.Info
	// Concurrency is how many runs go on at the same time, each on its caller's
	// thread; others wait. Default: the number of CPUs, and always 1 on CUDA.
	Concurrency int
	// Ordinal of the CUDA device among those this process sees.
	Ordinal int
	// CUDA holds what matters to CUDA devices only.
	CUDA CUDA

	// Language bounds what a language model may take, see OpenLanguage.
	Language LanguageLimits

	// kept says which outputs are asked for; nil: all.
	kept func(name string) bool
	// data is the model itself, where it is part of the program.
	data []byte
	// hooks are set by tests alone.
	hooks hooks
}

// hooks are what tests put in place of what needs a card. They are never set outside of tests.
type hooks struct {
	// provide stands for the CUDA provider, so that the CPU runs the model.
	provide func() error
	// onCard stands for the look at which nodes the card has.
	onCard func() error
	// seen is told of every call of ONNX Runtime, on its thread: "open", "run" with the shape of the
	// first input, or "close". Its error is that of the call.
	seen func(what string, shape []int64) error
}

func (c SessionConfig) cuda() bool { return strings.HasPrefix(c.Model.Device, "cuda:") }

func (c SessionConfig) withDefaults() SessionConfig {
	c.Concurrency = cmp.Or(c.Concurrency, runtime.NumCPU())
	if c.cuda() {
		c.Concurrency = 1
	}
	c.CUDA = c.CUDA.withDefaults()
	c.Language = c.Language.withDefaults()
	return c
}

func (c SessionConfig) validate() error {
	n, err := parseDevice(c.Model.Device)
	if c.Concurrency < 1 || c.Ordinal < 0 {
		err = errors.Join(err, fmt.Errorf("%w: concurrency %d and ordinal %d, want 1 or more and 0 or more", infer.ErrUnavailable, c.Concurrency, c.Ordinal))
	}
	if err == nil && n >= 0 && !c.Library.CUDA {
		err = noCUDA(c.Library)
	}
	return err
}
