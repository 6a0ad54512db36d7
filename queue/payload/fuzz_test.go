package payload_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue/payload"
)

// FuzzChunks cuts bytes into chunks for frames of any lengths: they are taken to the last byte,
// and one more is refused.
func FuzzChunks(f *testing.F) {
	f.Add([]byte{10, 3, 200}, []byte{1, 250, 40}, uint16(213))
	f.Add([]byte{1}, []byte{}, uint16(2))
	f.Fuzz(func(t *testing.T, sizes, cuts []byte, n uint16) {
		var frames []int
		room := 0
		for _, s := range sizes[:min(len(sizes), 100)] {
			frames = append(frames, 1+int(s))
			room += 1 + int(s)
		}
		rest := make([]byte, n)
		var chunks [][]byte
		for _, c := range cuts {
			c := min(int(c), len(rest))
			chunks, rest = append(chunks, rest[:c]), rest[c:]
		}
		taken, complete, err := payload.Fill(frames, append(chunks, rest))
		if int(n) > room {
			require.Error(t, err)
			require.Equal(t, room, taken)
			return
		}
		require.NoError(t, err)
		require.Equal(t, int(n), taken)
		require.Equal(t, int(n) == room, complete)
	})
}
