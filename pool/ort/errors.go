package ort

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/slot"
)

// sentinels are the words by which errors cross from a child.
func sentinels() []sentinel {
	return []sentinel{
		{"timeout", infer.ErrTimeout},
		{"model", infer.ErrModel},
		{"input", infer.ErrInput},
		{"memory", infer.ErrMemory},
		{"fault", infer.ErrFault},
	}
}

type sentinel struct {
	word string
	err  error
}

// fault is the word of infer.ErrFault.
const fault = "fault"

// outgoing makes an error of a session ready to leave the child: with the word of
// its sentinel, and fatal if the process is spoilt.
func outgoing(err error) error {
	for _, s := range sentinels() {
		if !errors.Is(err, s.err) {
			continue
		}
		err = slot.Classed(s.word, err)
		if s.word == fault {
			err = slot.Fatal(err)
		}
		break
	}
	return err
}

// classified gives an error a sentinel that is not in its text, where the child's
// own words already say it.
type classified struct{ class, err error }

func (c *classified) Error() string   { return c.err.Error() }
func (c *classified) Unwrap() []error { return []error{c.class, c.err} }

// incoming maps what a slot pool answers to the sentinels of internal/infer. ctx
// is the caller's; items is how many the batch had.
func incoming(ctx context.Context, items int, err error) error {
	said := &slot.Error{}
	errors.As(err, &said)
	switch {
	case errors.Is(err, slot.ErrCrashed):
		// A child that called itself spoilt, twice, was a fault and not a crash.
		if said.Class == fault {
			return &classified{infer.ErrFault, err}
		}
		return fmt.Errorf("%w: %w", infer.ErrCrashed, err)
	case errors.Is(err, slot.ErrTooLarge), said.Class == slot.TooLong:
		// A smaller batch may fit, if it can be smaller.
		if items > 1 {
			return fmt.Errorf("%w: %w", infer.ErrMemory, err)
		}
		return fmt.Errorf("%w: %w", infer.ErrInput, err)
	case errors.Is(err, slot.ErrHandler):
		for _, s := range sentinels() {
			if s.word == said.Class {
				return &classified{s.err, err}
			}
		}
		return fmt.Errorf("%w: %w", infer.ErrFault, err)
	case errors.Is(err, slot.ErrTimeout), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", infer.ErrTimeout, err)
	case ctx.Err() != nil:
		return err // it wraps the context's
	}
	return fmt.Errorf("%w: %w", infer.ErrUnavailable, err)
}

// ONNX Runtime gives the bindings a text alone. These are the texts of version
// 1.29 that tell a fault of the item from one of the device, and an output whose shape was not
// foreseen.
var (
	outOfMemory = regexp.MustCompile(`(?i)failed to allocate memory|out of memory|std::bad_alloc|bad allocation|_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation`)
	deviceFault = regexp.MustCompile(`CUDA failure|CUDA error|CUBLAS_STATUS|CUBLAS failure|CUDNN_STATUS|CUDNN failure|cudaError`)
	otherShape  = regexp.MustCompile(`shape verification failed|but the computed output shape`)
	badItem     = regexp.MustCompile(`Got invalid dimensions|Invalid rank for input|Unexpected input data type|Non-zero status code returned while running|INVALID_ARGUMENT`)
)

// failedRun classes an error of a run by its text.
func failedRun(err error) error {
	text := err.Error()
	switch {
	case outOfMemory.MatchString(text):
		return fmt.Errorf("%w: %w", infer.ErrMemory, err)
	case deviceFault.MatchString(text):
		// Errors of CUDA stay: every later call of the process repeats them.
		return fmt.Errorf("%w: %w", infer.ErrFault, err)
	case badItem.MatchString(text):
		return fmt.Errorf("%w: %w", infer.ErrInput, err)
	}
	return fmt.Errorf("%w: %w", infer.ErrFault, err)
}

// failedLoad classes an error of loading a model by its text.
func failedLoad(m infer.Model, err error) error {
	class := infer.ErrModel
	switch text := err.Error(); {
	case outOfMemory.MatchString(text):
		class = infer.ErrMemory
	case deviceFault.MatchString(text):
		class = infer.ErrFault
	}
	hint := ""
	if strings.Contains(err.Error(), "Protobuf parsing failed") {
		hint = " (the file is damaged or cut short, or is no ONNX model)"
	}
	return fmt.Errorf("%w: %q from %s: %w%s", class, m.Name, m.Path, err, hint)
}
