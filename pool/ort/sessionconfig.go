package ort

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// SessionConfig configures a Session.
type SessionConfig struct {
	// Library is the library to load. A process can load only one library.
	Library Library
	// Model is the model to load.
	Model infer.Model
	// Want contains the required ports: each must exist with that type and shape, where -1 matches
	// every size. A model without one of them is refused.
	Want infer.Info
	// Concurrency is the maximum number of concurrent runs, each on its caller's thread; further
	// runs wait. The default is the number of CPUs. It is always 1 on CUDA.
	Concurrency int
	// Ordinal is the number of the CUDA device among those that this process sees.
	Ordinal int
	// CUDA contains options for CUDA devices.
	CUDA CUDA

	// Language limits the resources of a language model, see OpenLanguage.
	Language LanguageLimits

	// decoder: the outputs are asked for that keptOutput says, and caches stay as they are.
	decoder bool
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
