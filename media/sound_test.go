package media_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// wav is a file of samples of a form.
func wav(form, channels, rate, bits uint16, data []byte) []byte {
	var b bytes.Buffer
	put := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	b.WriteString("RIFF\x00\x00\x00\x00WAVELIST")
	put(uint32(3))
	b.WriteString("abc\x00fmt ")
	put(uint32(16))
	put([]uint16{form, channels})
	put([]uint32{uint32(rate), uint32(rate) * uint32(channels) * uint32(bits) / 8})
	put([]uint16{channels * bits / 8, bits})
	b.WriteString("data")
	put(uint32(len(data)))
	b.Write(data)
	return b.Bytes()
}

func audio(e rewards.Encoding, data []byte) *rewards.Media {
	return &rewards.Media{Kind: rewards.Audio, Encoding: e, DType: "U8", Shape: []int{len(data)}, Data: data}
}

func little(v any) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, v)
	return b.Bytes()
}

func TestAWAVFileIsDecodedToItsSamples(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{})
	for name, c := range map[string]struct {
		file  []byte
		dtype string
		want  any
	}{
		"16 bits": {wav(1, 2, 8000, 16, little([]int16{1, -2, 3, -32768})), "I16", []int16{1, -2, 3, -32768}},
		"8 bits":  {wav(1, 2, 8000, 8, []byte{0, 128, 255, 129}), "I16", []int16{-32768, 0, 32512, 256}},
		"24 bits": {wav(1, 2, 8000, 24, []byte{0, 0, 0x80, 0, 0, 0x40, 0, 0, 0, 0, 0, 0xc0}), "F32", []float32{-1, .5, 0, -.5}},
		"32 bits": {wav(1, 2, 8000, 32, little([]int32{math.MinInt32, 1 << 30, 0, -1 << 30})), "F32", []float32{-1, .5, 0, -.5}},
		"floats":  {wav(3, 2, 8000, 32, little([]float32{-1, .5, 0, 1.5})), "F32", []float32{-1, .5, 0, 1.5}},
		"doubles": {wav(3, 2, 8000, 64, little([]float64{-1, .5, 0, 1.5})), "F32", []float32{-1, .5, 0, 1.5}},
	} {
		m := audio(rewards.WAV, c.file)
		m.SetDecoder(d)
		s, giveBack, err := m.BorrowSound(t.Context())
		require.NoError(t, err, name)
		assert.Equal(t, []int{8000, 2, 2}, []int{s.Rate, s.Channels, s.Count}, name)
		assert.Equal(t, c.dtype, s.DType, name)
		assert.Equal(t, little(c.want), s.Data, name)
		assert.EqualValues(t, len(s.Data), d.Booked(), name)
		giveBack()
		giveBack()
		assert.Zero(t, d.Booked(), name)
	}
}

func TestASoundThatIsNoneIsRefusedByName(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{MaxLength: time.Second})
	good := wav(1, 1, 8000, 16, make([]byte, 64))
	for want, m := range map[string]*rewards.Media{
		"the file ends after":                     audio(rewards.WAV, good[:len(good)-1]),
		"has no data":                             audio(rewards.WAV, good[:48]),
		"of form 7 with 8 bits":                   audio(rewards.WAV, wav(7, 1, 8000, 8, make([]byte, 64))),
		"a sound of 0 channels":                   audio(rewards.WAV, wav(1, 0, 8000, 16, make([]byte, 64))),
		"64 bytes of data for frames of 6":        audio(rewards.WAV, wav(1, 3, 8000, 16, make([]byte, 64))),
		"at 0 Hz":                                 audio(rewards.WAV, wav(1, 1, 0, 16, make([]byte, 64))),
		"lasts 2 s; pool.decode.max_length is 1s": audio(rewards.WAV, wav(1, 1, 8, 16, make([]byte, 32))),
		"the bytes are a file of encoding wav":    audio(rewards.FLAC, good),
		"does not begin with a description":       audio(rewards.FLAC, []byte("fLaC")),
		"does not state its length":               audio(rewards.FLAC, append([]byte("fLaC\x00\x00\x00\x22"), make([]byte, 40)...)),
		`a media of kind "video" has no sound`:    {Kind: rewards.Video, Encoding: rewards.WAV, Data: good},
	} {
		_, err := d.Sound(t.Context(), m)
		require.ErrorIs(t, err, rewards.BadInput, want)
		require.ErrorContains(t, err, want)
	}
	assert.Zero(t, d.Booked())
}

func FuzzWAV(f *testing.F) {
	f.Add(wav(1, 2, 8000, 16, make([]byte, 64)))
	f.Add(wav(3, 1, 8000, 64, make([]byte, 64)))
	f.Add([]byte("RIFF\x00\x00\x00\x00WAVEdata\xff\xff\xff\xff"))
	d, err := media.New(media.Config{BudgetBytes: 1 << 20})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := d.Sound(t.Context(), audio(rewards.WAV, data))
		if err != nil {
			require.ErrorIs(t, err, rewards.BadInput)
			return
		}
		size := 2
		if s.DType == "F32" {
			size = 4
		}
		require.Len(t, s.Data, s.Count*s.Channels*size)
		s.Keeper.Release()
		require.Zero(t, d.Booked())
	})
}
