package ffmpeg_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/clip"
)

func TestAFLACFileIsDecodedToItsSamples(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{})
	source := []string{"-f", "lavfi", "-i", "sine=f=440:r=16000:d=1", "-ac", "2"}
	for form, dtype := range map[string]string{"s16": "I16", "s32": "F32"} {
		file := clip.Make(t, "a.flac", append(source, "-sample_fmt", form)...)
		wav := clip.Make(t, "a.wav", append(source, "-c:a", map[string]string{"s16": "pcm_s16le", "s32": "pcm_s24le"}[form])...)
		m := &rewards.Media{Kind: rewards.Audio, Encoding: rewards.FLAC, DType: "U8", Shape: []int{len(file)}, Data: file}
		m.SetDecoder(d)
		s, giveBack, err := m.BorrowSound(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []int{16000, 2, 16000}, []int{s.Rate, s.Channels, s.Count})
		assert.Equal(t, dtype, s.DType)
		same, err := d.Sound(t.Context(), &rewards.Media{Kind: rewards.Audio, Encoding: rewards.WAV, Data: wav})
		require.NoError(t, err)
		assert.Zero(t, bytes.Compare(same.Data, s.Data), "%s: the same samples as the WAV file of the same sound", form)
		same.Keeper.Release()
		giveBack()
		for _, part := range [][]byte{file[:len(file)/2], file[:60], append(file[:42:42], make([]byte, 400)...)} {
			_, err = d.Sound(t.Context(), &rewards.Media{Kind: rewards.Audio, Encoding: rewards.FLAC, Data: part})
			require.ErrorIs(t, err, rewards.BadInput)
		}
	}
	assert.Zero(t, d.Booked())
}
