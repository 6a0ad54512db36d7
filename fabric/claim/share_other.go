//go:build !linux

package claim

import (
	"errors"

	"github.com/rewardloop/rewardloop/wire"
)

var errNoShare = errors.New("shared memory needs Linux")

func newShare(string) (*share, error) { return nil, errNoShare }

func look(string, *wire.ClaimShared) (*view, string, error) { return nil, "", errNoShare }
