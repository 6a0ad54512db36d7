package ort

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// sentinels are the words by which errors cross from a child.
func sentinels() []sentinel {
	return []sentinel{
		{"timeout", infer.ErrTimeout},
		{"model", infer.ErrModel},
		{"input", infer.ErrInput},
		{"memory", infer.ErrMemory},
		{"unavailable", infer.ErrUnavailable},
		{"numbers", infer.ErrNumbers},
		{"fault", infer.ErrFault},
	}
}

type sentinel struct {
	word string
	err  error
}

// worded gives an error of a session the word of its sentinel.
func worded(err error) error {
	for _, s := range sentinels() {
		if errors.Is(err, s.err) {
			return subprocess.Classed(s.word, err)
		}
	}
	return err
}

// outgoing makes an error of a session ready to leave the child: with the word of
// its sentinel, and fatal if the process is spoilt.
func outgoing(err error) error {
	spoilt := errors.Is(err, infer.ErrFault)
	if err = worded(err); spoilt {
		err = subprocess.Fatal(err)
	}
	return err
}

// sentinelOf is the sentinel of a child's word; nil: none.
func sentinelOf(word string) error {
	for _, s := range sentinels() {
		if s.word == word {
			return s.err
		}
	}
	return nil
}

// suspicious reports whether the device may be what a child's error with this word is about, and
// not the input or the model.
func suspicious(word string) bool {
	switch word {
	case "input", "model", "numbers", subprocess.TooLong:
		return false
	}
	return true
}

// incoming maps what a slot pool answers to the sentinels of internal/infer. ctx
// is the caller's; items is how many the batch had.
func incoming(ctx context.Context, items int, err error) error {
	said := &subprocess.Error{}
	errors.As(err, &said)
	sentinel := sentinelOf(said.Class)
	switch {
	case errors.Is(err, subprocess.ErrCrashed):
		host := errors.Is(err, subprocess.ErrHost)
		// A child that called itself spoilt, twice, was a fault and not a crash.
		if sentinel != nil && errors.Is(sentinel, infer.ErrFault) {
			err = infer.Marked(sentinel, err)
		} else {
			err = fmt.Errorf("%w: %w", infer.ErrCrashed, err)
		}
		if host {
			err = infer.Marked(infer.ErrHost, err)
		}
		return err
	case errors.Is(err, subprocess.ErrTooLarge), said.Class == subprocess.TooLong:
		// A smaller batch may fit, if it can be smaller.
		if items > 1 {
			return fmt.Errorf("%w: %w", infer.ErrMemory, err)
		}
		return fmt.Errorf("%w: %w", infer.ErrInput, err)
	case errors.Is(err, subprocess.ErrUnavailable):
		return unavailable(fmt.Errorf("%w: %w", infer.ErrUnavailable, err))
	case errors.Is(err, subprocess.ErrHandler) && sentinel != nil:
		if errors.Is(sentinel, infer.ErrUnavailable) { // of a session: a provider, or its device
			err = infer.Marked(infer.ErrMissing, err)
		}
		return infer.Marked(sentinel, err)
	case errors.Is(err, subprocess.ErrHandler):
		return fmt.Errorf("%w: %w", infer.ErrFault, err)
	case errors.Is(err, subprocess.ErrTimeout), errors.Is(ctx.Err(), context.DeadlineExceeded):
		err, waited := fmt.Errorf("%w: %w", infer.ErrTimeout, err), errors.Is(err, subprocess.ErrWaiting)
		if waited { // a slot was free for it, and its child did not come up
			err = infer.Marked(infer.ErrHost, err)
		} else if errors.Is(err, subprocess.ErrTimeout) {
			err = infer.Marked(infer.ErrHung, err)
		}
		return err
	case ctx.Err() != nil:
		return err // it wraps the context's
	}
	return fmt.Errorf("%w: %w", infer.ErrUnavailable, err)
}

// unavailable marks the error of children that do not start because of something that
// is not installed, as the handler of one says.
func unavailable(err error) error {
	said := &subprocess.Error{}
	errors.As(err, &said)
	if errors.Is(err, subprocess.ErrHandler) && (said.Class == "" || errors.Is(sentinelOf(said.Class), infer.ErrUnavailable)) {
		return infer.Marked(infer.ErrMissing, err)
	}
	return err
}

// ONNX Runtime gives the bindings a text alone. These are the texts of version
// 1.29 that tell a fault of the item from one of the device, and an output whose shape was not
// foreseen.
var (
	outOfMemory = regexp.MustCompile(`(?i)failed to allocate memory|out of memory|std::bad_alloc|bad allocation|_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation`)
	deviceFault = regexp.MustCompile(`CUDA failure|CUDA error|CUBLAS_STATUS|CUBLAS failure|CUDNN_STATUS|CUDNN failure|cudaError`)
	// No driver or device, too old a driver, or one for other cards: nothing that passes.
	lacking    = regexp.MustCompile(`CUDA failure (3[4-6]|10[01]|209|80[34])\b`)
	otherShape = regexp.MustCompile(`shape verification failed|but the computed output shape`)
	badItem    = regexp.MustCompile(`Got invalid dimensions|Invalid rank for input|Unexpected input data type|Non-zero status code returned while running|INVALID_ARGUMENT`)
)

// errDevice marks errors of CUDA within a child.
var errDevice = errors.New("the device is at fault")

// failedRun classes an error of a run by its text.
func failedRun(err error) error {
	text := err.Error()
	switch {
	case outOfMemory.MatchString(text):
		return fmt.Errorf("%w: %w", infer.ErrMemory, err)
	case deviceFault.MatchString(text):
		// Errors of CUDA stay: every later call of the process repeats them.
		return infer.Marked(errDevice, fmt.Errorf("%w: %w", infer.ErrFault, err))
	case badItem.MatchString(text):
		return fmt.Errorf("%w: %w", infer.ErrInput, err)
	}
	return fmt.Errorf("%w: %w", infer.ErrFault, err)
}

// failedOptions classes an error of asking for a provider by its text.
func failedOptions(device string, err error) error {
	class := infer.ErrUnavailable
	if text := err.Error(); deviceFault.MatchString(text) && !lacking.MatchString(text) {
		class = infer.ErrFault
	}
	return fmt.Errorf("%w: the options of a session on %s: %w", class, device, err)
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
		hint = " (the file is damaged or truncated, or is not an ONNX model)"
	}
	return fmt.Errorf("%w: %q from %s: %w%s", class, m.Name, m.Path, err, hint)
}
