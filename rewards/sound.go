package rewards

import (
	"context"
	"fmt"
)

// Sound is decoded audio: sample frame after sample frame, each with a value of every channel.
type Sound struct {
	// Rate is in Hz, Count the number of sample frames.
	Rate, Channels, Count int
	// DType is "I16" or "F32", little endian; Data has Count × Channels of them, read-only.
	DType string
	Data  []byte
	// Keeper is the decoder's, for whoever borrowed it; nil: nothing is booked.
	Keeper Keeper
}

// Listener is a Decoder that decodes the files of sounds.
type Listener interface {
	Decoder
	// Sound decodes a WAV or FLAC file. Its errors are those of Decode.
	Sound(ctx context.Context, m *Media) (*Sound, error)
}

// BorrowSound decodes the file of a sound. Each call decodes it: sounds are small. Its memory stays booked until
// giveBack, which may be called twice.
func (m *Media) BorrowSound(ctx context.Context) (s *Sound, giveBack func(), err error) {
	l, ok := m.decoder.(Listener)
	if !ok {
		return nil, nil, fmt.Errorf("%w: %w", Internal, ErrNoDecoder)
	}
	if s, err = l.Sound(ctx, m); err != nil {
		return nil, nil, err
	}
	return s, func() {
		if s.Keeper != nil {
			s.Keeper.Release()
		}
	}, nil
}
