package ort

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"strings"
	"sync"

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
}

func (c SessionConfig) cuda() bool { return strings.HasPrefix(c.Model.Device, "cuda:") }

func (c SessionConfig) withDefaults() SessionConfig {
	if c.Concurrency == 0 {
		c.Concurrency = runtime.NumCPU()
	}
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

// noCUDA says what to do for a CUDA device.
func noCUDA(lib Library) error {
	return fmt.Errorf("%w: %s and %s do not lie beside %s: put those of the GPU package of the same version there, or say device: cpu", infer.ErrUnavailable, cudaFile, sharedFile, lib.Path)
}

// match compares a model with what is wanted of it.
func match(m infer.Model, have, want infer.Info) error {
	lacks := func(have, want []infer.Port) bool {
		return slices.ContainsFunc(want, func(w infer.Port) bool {
			return !slices.ContainsFunc(have, func(h infer.Port) bool {
				return h.Name == w.Name && h.DType == w.DType && compatible(h.Shape, w.Shape)
			})
		})
	}
	if lacks(have.Inputs, want.Inputs) || lacks(have.Outputs, want.Outputs) {
		return fmt.Errorf("%w: %q from %s has inputs %s and outputs %s; wanted are inputs %s and outputs %s", infer.ErrModel, m.Name, m.Path,
			list(have.Inputs), list(have.Outputs), list(want.Inputs), list(want.Outputs))
	}
	return nil
}

// compatible reports whether some shape fits both.
func compatible(a, b []int) bool {
	return len(a) == len(b) && !slices.ContainsFunc(zip(a, b), func(p [2]int) bool { return p[0] != p[1] && p[0] >= 0 && p[1] >= 0 })
}

// fits reports whether a tensor of that shape may be put into a port.
func fits(shape, port []int) bool {
	return len(shape) == len(port) && !slices.ContainsFunc(zip(shape, port), func(p [2]int) bool { return p[0] != p[1] && p[1] >= 0 })
}

func zip(a, b []int) [][2]int {
	out := make([][2]int, len(a))
	for i := range a {
		out[i] = [2]int{a[i], b[i]}
	}
	return out
}

// list writes ports as people write them: [x F32[-1 3 48 320]].
func list(ports []infer.Port) string {
	out := make([]string, len(ports))
	for i, p := range ports {
		out[i] = fmt.Sprintf("%s %s%v", p.Name, p.DType, p.Shape)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func portsOf(tensors []infer.Tensor) []infer.Port {
	out := make([]infer.Port, len(tensors))
	for i, t := range tensors {
		out[i] = infer.Port{Name: t.Name, DType: string(t.DType), Shape: t.Shape}
	}
	return out
}

// buffers keep memory between runs, in sizes of powers of two, so that varying
// shapes share it. It is safe for concurrent use.
type buffers struct {
	mu   sync.Mutex
	free map[int][][]byte // guarded by mu; by size
	held int              // guarded by mu; bytes in free
	most int              // that are kept; 0: maxHeld
}

// maxHeld bounds what buffers keep. The largest outputs here, probability maps of
// 2,048 by 2,048 floats, have 16 MiB. A language model's are larger: the cache of 30
// layers with 3 heads of 64 has 45 KiB a token and item.
const (
	maxHeld      = 64 << 20
	maxHeldCache = 512 << 20
)

// get returns at least n bytes that begin at a multiple of 8. They are not zeroed.
func (b *buffers) get(n int) []byte {
	size := 1 << bits.Len(uint(max(n, alignment)-1)) //nolint:gosec // positive
	b.mu.Lock()
	defer b.mu.Unlock()
	if all := b.free[size]; len(all) > 0 {
		b.free[size] = all[:len(all)-1]
		b.held -= size
		return all[len(all)-1]
	}
	return make([]byte, size)
}

// put takes memory back that get gave.
func (b *buffers) put(buf []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held+len(buf) > cmp.Or(b.most, maxHeld) {
		return
	}
	if b.free == nil {
		b.free = make(map[int][][]byte)
	}
	b.free[len(buf)] = append(b.free[len(buf)], buf)
	b.held += len(buf)
}
