package tesseract

import (
	"os"
	"strings"
)

// threadLimit is OpenMP's variable; see README.
const threadLimit = "OMP_THREAD_LIMIT"

// environment is what a process that runs Tesseract gets: what it needs to find
// libraries and models, and nothing else of ours, such as tokens.
func environment() []string {
	env := []string{threadLimit + "=1", "LC_ALL=C.UTF-8"}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "TESSDATA_PREFIX", "GORACE", "GOCOVERDIR":
			env = append(env, kv)
		}
	}
	return env
}
