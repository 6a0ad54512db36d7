package subprocess

import (
	"encoding/json"
	"fmt"
)

// confineKind is the kind of child process that confines itself and then becomes a command:
// "child confine <confinement> <command> …".
const confineKind = "confine"

// Confinement is what a command may do that works on bytes of strangers. Its environment is empty, it has no
// capability to gain, and within what the kernel offers (Landlock, seccomp) it opens no file but those of
// Folders, and that for reading, makes no socket, and touches no other process. The descriptors that it inherits
// stay open to it, and so do memory files behind them.
type Confinement struct {
	// Folders hold the command and its libraries. Those that do not exist are left out.
	Folders []string `json:"folders"`
	// The limits of setrlimit(2): address space in bytes, CPU time in seconds, open files. It writes no file.
	Memory     uint64 `json:"memory"`
	CPUSeconds uint64 `json:"cpu_seconds"`
	Files      uint64 `json:"files"`
}

// ConfineCommand is what starts a command in confinement, which this binary does: it confines its own process and
// replaces itself by the command, so that whoever started it has the command's process. Where it cannot, it ends with
// the status 126 and says why on its standard error output.
func ConfineCommand(c Confinement, command ...string) ([]string, error) {
	self, err := selfCommand(confineKind)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("confinement: %w", err)
	}
	return append(append(self, string(text)), command...), nil
}
