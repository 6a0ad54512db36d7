//go:build !linux

package engines

import (
	"errors"
	"io"
)

// process is a command that runs under its keeper, which needs Linux.
type process struct {
	over chan struct{}
}

func startProcess([]string, []string, io.Writer) (*process, error) {
	return nil, errors.New("engines are started on Linux only")
}

func (*process) pid() int    { return 0 }
func (*process) how() string { return "" }
func (*process) terminate()  {}
func (*process) killGroup()  {}
