package subprocess

import (
	"encoding/json"
	"fmt"
)

// confineKind is the kind of child process that confines itself and then becomes a command:
// "child confine <confinement> <command> …".
const confineKind = "confine"

// Confinement restricts a command that processes untrusted data. The command has an empty
// environment and cannot gain capabilities. As far as the kernel supports it (Landlock, seccomp),
// the command can open only files in Folders, and only for reading, and cannot create sockets or
// access other processes. The inherited file descriptors and memory files stay open.
type Confinement struct {
	// Folders are the folders of the command and its libraries. Folders that do not exist are
	// ignored.
	Folders []string `json:"folders"`
	// Memory is the maximum address space in bytes, CPUSeconds the maximum CPU time in seconds, and
	// Files the maximum number of open files, as in setrlimit(2). The command cannot write to
	// files.
	Memory     uint64 `json:"memory"`
	CPUSeconds uint64 `json:"cpu_seconds"`
	Files      uint64 `json:"files"`
}

// ConfineCommand returns a command line of this binary that runs command in confinement: the
// process confines itself and then executes command in the same process. If that fails, the process
// exits with the status 126 and writes the reason to its standard error.
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
