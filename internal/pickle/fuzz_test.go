package pickle_test

import (
	"errors"
	"testing"

	"github.com/rewardloop/rewardloop/internal/pickle"
)

// FuzzDecode holds that no body panics, that what is decoded is bounded and
// has no cycle, that every refusal has a class, and that a value which can be
// encoded decodes to the same value.
func FuzzDecode(f *testing.F) {
	for _, h := range hostileShapes() {
		f.Add(h.data[:min(len(h.data), 4096)])
	}
	for _, group := range [][]hostile{hostileObjects(), hostileArrays(), hostileStreams()} {
		for _, h := range group {
			f.Add(h.data)
		}
	}
	for _, c := range goldenCases(f) {
		if len(c.data) < 8192 {
			f.Add(c.data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v pickle.Value
		var err error
		allocated, _ := measure(func() { v, err = pickle.Decode(data, pickle.Limits{}) })
		if most := uint64(64<<20 + 4*len(data)); allocated > most {
			t.Fatalf("%d bytes allocated for a body of %d", allocated, len(data))
		}
		if err != nil {
			requireClass(t, err)
			return
		}
		if _, err := pickle.Plain(v); err != nil && !errors.Is(err, pickle.ErrType) {
			t.Fatalf("Plain: %v", err)
		}
		first, err := pickle.Encode(v)
		if errors.Is(err, pickle.ErrEncode) {
			return // arrays, complex numbers, large ints
		}
		second, err := pickle.Encode(mustDecode(t, first))
		if err != nil || string(first) != string(second) {
			t.Fatalf("encodes to %q, which decodes and encodes to %q (%v)", first, second, err)
		}
	})
}

func requireClass(t *testing.T, err error) {
	t.Helper()
	classes := 0
	for _, class := range []error{pickle.ErrMalformed, pickle.ErrForbidden, pickle.ErrProtocol0, pickle.ErrCycle, pickle.ErrLimit} {
		if errors.Is(err, class) {
			classes++
		}
	}
	if classes != 1 || !errors.Is(err, pickle.ErrPickle) {
		t.Fatalf("%d classes for %v", classes, err)
	}
}
