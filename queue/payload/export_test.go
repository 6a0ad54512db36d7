package payload

import (
	"bytes"

	"github.com/rewardloop/rewardloop/wire"
)

// Fill has chunks fill buffers of the given sizes, as the reader does with what it gets for a
// claim, and returns how many bytes were taken and whether the payload is complete.
func Fill(sizes []int, chunks [][]byte) (taken int, complete bool, err error) {
	x := &call{payload: &wire.ClaimPayload{}}
	defer x.releaseDrafts()
	for _, n := range sizes {
		x.drafts = append(x.drafts, (*wire.Buffers)(nil).Draft(n))
	}
	for _, c := range chunks {
		n, err := x.fill(bytes.NewReader(c))
		if taken += n; err != nil {
			return taken, false, err
		}
	}
	return taken, x.full(), nil
}

// For the tests of the package alone.
var (
	ErrClosed       = errClosed
	ErrRefused      = errRefused
	ErrTokenExpired = errTokenExpired
)
