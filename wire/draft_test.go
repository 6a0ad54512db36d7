package wire_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/wire"
)

func TestADraftIsAFrameOnlyIfItsBytesAreThose(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/image_raw_hwc.bin")
	require.NoError(t, err)
	whole, err := wire.Decode(data, wire.Limits{})
	require.NoError(t, err)
	for _, buffers := range []*wire.Buffers{nil, {Poison: true}} {
		fill := func(b []byte, step int) *wire.Draft {
			d := buffers.Draft(len(data))
			for len(b) > 0 {
				n := copy(d.Rest(), b[:min(step, len(b))])
				d.Filled(n)
				b = b[n:]
			}
			return d
		}
		f, err := fill(data, 7).Frame(whole.Sum(), wire.Limits{})
		require.NoError(t, err)
		require.Equal(t, data, f.Bytes())
		require.Equal(t, whole.Sum(), f.Sum())
		require.Equal(t, whole.Header().Sample, f.Header().Sample)
		f.Release()

		_, err = fill(data[:len(data)-1], 1000).Frame(whole.Sum(), wire.Limits{})
		require.ErrorIs(t, err, wire.ErrCorrupt)
		wrong := append([]byte{}, data...)
		wrong[len(wrong)-1] ^= 1
		d := fill(wrong, 1000)
		_, err = d.Frame(whole.Sum(), wire.Limits{})
		require.ErrorIs(t, err, wire.ErrCorrupt)
		d.Release()
		if buffers != nil {
			require.Zero(t, buffers.Live())
		}
	}
	long := append(append([]byte{}, data...), 0)
	d := (*wire.Buffers)(nil).Draft(len(long))
	d.Filled(copy(d.Rest(), long))
	sum := whole.Sum()
	f, err := wire.Decode(data, wire.Limits{})
	require.NoError(t, err)
	sum.Len, sum.CRC32C = int64(len(long)), crcOf(long)
	_, err = d.Frame(sum, wire.Limits{})
	var refused *wire.FrameError
	require.ErrorAs(t, err, &refused)
	f.Release()
}
