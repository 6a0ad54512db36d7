//go:build !linux

package subprocess

import (
	"errors"
	"net"
	"time"
)

var errNoProcesses = errors.New("child processes need Linux; set isolation to inline")

func serveInherited(Kind) error { return errNoProcesses }

// keepKind is the kind of child process that is a keeper.
const keepKind = "keep"

// KeepCommand returns an error on this system, because it needs Linux.
func KeepCommand(time.Duration, ...string) ([]string, error) { return nil, errNoProcesses }

func keep([]string) int { return 1 }

func confine([]string) int { return 1 }

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
