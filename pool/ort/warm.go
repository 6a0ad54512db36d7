//go:build cgo

package ort

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// warmed opens a model and runs each size of batch on empty inputs before the first sample comes:
// with the first run of a shape cuDNN picks its algorithms and the arena grows. Where a size lacks
// memory, the session is opened anew, because its arena keeps what it has in pieces that may fit
// nothing any more, and the largest batch is the size before; a single item that lacks memory fails
// the load. What else goes wrong with empty inputs says nothing of real ones, and ends the warm-up
// only. It ends at the time until as well.
func (h *handler) warmed(m infer.Model, until time.Time) (*Session, error) {
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	most, lowered := h.cfg.Warm, 0
	for {
		s, err := OpenSession(h.session(m, nil))
		if err != nil {
			return nil, err
		}
		fits := 0
		warm := func() error {
			fits, err = s.warm(ctx, most, h.cfg.WarmBytes)
			return err
		}
		if s.cfg.cuda() { // a library that is loaded with the first run may take signals, too
			_ = keepSignals(warm)
		} else {
			_ = warm()
		}
		switch {
		case err == nil:
			s.info.MaxBatch = lowered
			return s, nil
		case errors.Is(err, infer.ErrMemory) && fits > 0:
			most, lowered, err = fits, fits, nil
		}
		if err = errors.Join(err, s.Close()); err != nil {
			return nil, err
		}
	}
}

// sizes are those of the batches that are tried: the powers of two below most, and most itself.
func sizes(most int) []int {
	var all []int
	for n := 1; n < most; n *= 2 {
		all = append(all, n)
	}
	return append(all, most)
}

// warm runs batches of up to most items and up to so many bytes of inputs. It returns the last size
// that went well, with an error that wraps infer.ErrMemory or is a fault of the device.
func (s *Session) warm(ctx context.Context, most, bytes int) (fits int, err error) {
	if most == 0 {
		return 0, nil
	}
	if slices.ContainsFunc(s.info.Inputs, func(p infer.Port) bool { return len(p.Shape) > 0 && p.Shape[0] == 1 }) {
		most = 1
	}
	for _, n := range sizes(most) {
		inputs, size := s.blank(n)
		if inputs == nil || size > bytes && n > 1 {
			return fits, nil
		}
		if err := s.begin(ctx); err != nil {
			return fits, nil //nolint:nilerr // no time is left
		}
		a, err := s.run(ctx, inputs)
		s.end()
		switch {
		case err == nil:
			a.Release()
			fits = n
		case errors.Is(err, infer.ErrMemory), errors.Is(err, errDevice):
			return fits, err
		default:
			return fits, nil
		}
	}
	return fits, nil
}

// blank are inputs of n items that are all zero, and their bytes; nil where the file leaves more
// than the batch axis open.
func (s *Session) blank(n int) (inputs []infer.Tensor, bytes int) {
	for _, p := range s.info.Inputs {
		if len(p.Shape) == 0 || p.Shape[0] >= 0 && p.Shape[0] != n {
			return nil, 0
		}
		shape := append([]int{n}, p.Shape[1:]...)
		t := infer.Tensor{Name: p.Name, DType: infer.DType(p.DType), Shape: shape}
		elements := infer.Elements(shape)
		if elements < 0 || t.DType.Size() == 0 {
			return nil, 0
		}
		setRaw(&t, make([]byte, elements*t.DType.Size()))
		bytes += elements * t.DType.Size()
		inputs = append(inputs, t)
	}
	return inputs, bytes
}
