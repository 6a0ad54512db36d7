package rewards

import (
	"context"
	"fmt"
)

// Sound is decoded audio: sample frame after sample frame, each with one value for every channel.
type Sound struct {
	// Rate is in Hz; Count is the number of sample frames.
	Rate, Channels, Count int
	// DType is "I16" or "F32", little endian. Data holds Count × Channels values, and is read-only.
	DType string
	Data  []byte
	// Keeper is set by the decoder, for the borrower. It is nil if no memory is reserved.
	Keeper Keeper
}

// Listener is a Decoder that can decode audio files.
type Listener interface {
	Decoder
	// Sound decodes a WAV or FLAC file. Its errors are those of Decode.
	Sound(ctx context.Context, m *Media) (*Sound, error)
}

// BorrowSound decodes an audio file. Each call decodes the file again, because audio is small. The
// memory stays reserved until giveBack is called, which may be called twice.
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
