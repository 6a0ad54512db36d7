//go:build !linux

package subprocess

import (
	"errors"
	"net"
)

var errNoProcesses = errors.New("child processes need Linux; set isolation to inline")

func serveInherited(Kind) error { return errNoProcesses }

type memory struct{}

func (*memory) fill([][]byte) (int, error) { return 0, errNoProcesses }
func (*memory) capacity() int              { return 0 }

type process struct {
	conn   net.Conn
	memory *memory
	stderr *Output
}

func spawn(Config) (*process, error) { return nil, errNoProcesses }

func (*process) pid() int             { return 0 }
func (*process) kill()                {}
func (*process) wait() (string, bool) { return "", false }
func (*process) close()               {}

func selfCommand(string) ([]string, error) { return nil, errNoProcesses }
