package report

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Machine is where the figures were measured.
type Machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	Go    string `json:"go"`
	OS    string `json:"os"`
}

// ThisMachine is where this process runs.
func ThisMachine() Machine {
	return Machine{CPU: cpuModel("/proc/cpuinfo"), Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH}
}

// cpuModel returns the processor's name as Linux tells it, elsewhere the architecture.
func cpuModel(path string) string {
	text, err := os.ReadFile(path)
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return runtime.GOARCH
}

// LoadAverage returns the machine's load of the last one, five and fifteen minutes,
// or "unknown".
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 3 {
		return "unknown"
	}
	return strings.Join(fields[:3], " ")
}

// commit returns the commit of the tree and whether files that git knows differ
// from it; away from the tree, those of the tree that this program was built in.
func commit(ctx context.Context, root string) (hash string, dirty bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	git := func(args ...string) (string, bool) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output() //nolint:gosec // our own arguments
		return strings.TrimSpace(string(out)), err == nil
	}
	hash, ok := git("rev-parse", "--short=12", "HEAD")
	if !ok {
		return builtFrom()
	}
	// What an earlier suite of this run has written is not a difference.
	changed, ok := git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/results", ":!tools/bench/reference.json")
	return hash, !ok || changed != ""
}

// built is what git describe said of the tree that this program was built in, where it was built
// for another place (scripts/gpu-bundle.sh sets it).
var built = "unknown" //nolint:gochecknoglobals // the linker can set no other

// builtFrom is the commit of a program that is away from its tree.
func builtFrom() (hash string, dirty bool) { return strings.CutSuffix(built, "-dirty") }

// module begins the go.mod of the repository's root; that of tools/ begins otherwise.
const module = "module github.com/rewardloop/rewardloop\n"

// Repository returns the root of the repository, from the working folder upwards.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && strings.HasPrefix(string(text), module) {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("neither the working folder nor a folder above it holds the go.mod of rewardloop: run it inside the repository")
		}
		dir = filepath.Dir(dir)
	}
}
