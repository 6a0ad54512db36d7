//go:build !linux

package python

import (
	"errors"
	"net"

	"github.com/rewardloop/rewardloop/internal/subprocess"
)

type process struct {
	conn   net.Conn
	output *subprocess.Output
	group  *cgroup
}

type cgroup struct{}

func newCgroup(int64) *cgroup { return nil }

type ending struct {
	how                     string
	killed, ours, overLimit bool
}

func spawn(string, []string, *cgroup) (*process, error) {
	return nil, errors.New("python reward functions need Linux: only Linux ends the processes together with the server")
}

func (*process) root() int    { return 0 }
func (*process) pid() int     { return 0 }
func (*process) ready(int)    {}
func (*process) kill()        {}
func (*process) wait() ending { return ending{} }

func (*cgroup) remove() {}

func resident(int, int64) int64 { return 0 }

func yield() {}

func statm(int) int64 { return 0 }

func defaultMemory() int64 { return 4 << 30 }
