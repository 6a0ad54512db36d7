package wire_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/wire"
)

// allocated returns the bytes the process has allocated so far.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// bounded runs f and requires that it allocates at most 64 MiB for less than
// 1 MiB of input.
func bounded(t *testing.T, input []byte, f func()) {
	t.Helper()
	before := allocated()
	f()
	if n := allocated() - before; len(input) < 1<<20 && n > 64<<20 {
		t.Fatalf("%d bytes of input made it allocate %d", len(input), n)
	}
}

func addFrames(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.bin")
	require.NoError(f, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(b)
	}
	for _, c := range append(badHeaders(), badTensors()...) {
		f.Add(c.frame)
	}
}

func FuzzDecodeFrame(f *testing.F) {
	addFrames(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, b, func() {
			frame, err := wire.Decode(b, wire.Limits{})
			if err != nil {
				var refused *wire.FrameError
				require.ErrorAs(t, err, &refused)
				return
			}
			s := frame.Sample()
			m, err := wire.Encode(s, wire.Options{Deadline: frame.Header().Deadline})
			if err != nil {
				// Canonical names of tensors may need a longer header.
				require.ErrorIs(t, err, wire.ErrTooLarge)
				return
			}
			again, err := wire.Decode(m.Bytes(), wire.Limits{})
			require.NoError(t, err)
			require.Equal(t, frame.Header().Deadline, again.Header().Deadline)
			m2, err := wire.Encode(again.Sample(), wire.Options{Deadline: again.Header().Deadline})
			require.NoError(t, err)
			require.Equal(t, m.Bytes(), m2.Bytes())
		})
	})
}

func FuzzReadHeader(f *testing.F) {
	addFrames(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, b, func() {
			pool := wire.Buffers{Poison: true}
			r := bytes.NewReader(b)
			h, err := wire.ReadHeader(r, wire.Limits{MessageBytes: 16 << 20})
			if err != nil {
				return
			}
			require.NotEmpty(t, h.Sample.ID)
			require.LessOrEqual(t, h.Size, int64(16<<20))
			frame, err := h.ReadBody(r, &pool)
			require.Equal(t, h.Size == int64(len(b)), err == nil)
			if err == nil {
				require.Equal(t, b, frame.Bytes())
				frame.Release()
			}
			require.Zero(t, pool.Live())
		})
	})
}

func FuzzDecodeControl(f *testing.F) {
	for text := range controls() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, b, func() {
			v, err := wire.DecodeControl(b)
			if err != nil {
				var refused *wire.FrameError
				require.ErrorAs(t, err, &refused)
				return
			}
			text, err := wire.EncodeControl(v)
			require.NoError(t, err)
			again, err := wire.DecodeControl(text)
			require.NoError(t, err)
			require.Equal(t, v, again)
		})
	})
}

func FuzzDecodeWorkerInfo(f *testing.F) {
	f.Add([]byte(`{"id":"w","places":1,"state":"ready","profiles":[{"name":"ocr","queue":"ocr","capacity":4,"used":1}],"scored":7,"seen":"2031-02-03T04:05:06Z"}`), []byte(`{"id":"w"}`))
	f.Add([]byte(`{"profiles":[{},{}]}`), []byte(`{"rewards":["a","b"],"profiles":[{"queue":"q"}]}`))
	f.Fuzz(func(t *testing.T, b, before []byte) {
		bounded(t, b, func() {
			last, err := wire.DecodeWorkerInfo(before, nil)
			if err != nil {
				return
			}
			with, err := wire.DecodeWorkerInfo(b, &last)
			without, other := wire.DecodeWorkerInfo(b, nil)
			require.Equal(t, other == nil, err == nil)
			if err == nil {
				require.True(t, with.Resembles(&without), "what was told before changes nothing")
			}
		})
	})
}
