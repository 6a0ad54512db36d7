//go:build !linux

package python

import (
	"errors"
	"net"

	"github.com/rewardloop/rewardloop/internal/slot"
)

type process struct {
	conn   net.Conn
	output *slot.Output
}

func spawn(string) (*process, error) {
	return nil, errors.New("python reward functions need Linux: hosts end with the server, which other systems do not promise")
}

func (*process) pid() int     { return 0 }
func (*process) kill()        {}
func (*process) wait() string { return "" }
