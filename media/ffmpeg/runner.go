package ffmpeg

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rewardloop/rewardloop/media"
)

// Runner runs one ffmpeg program. A Runner is safe for concurrent use.
type Runner struct {
	program string
	folders []string
}

var _ media.Player = (*Runner)(nil)

// Find returns a Runner for the ffmpeg of a configuration, or nil if ffmpeg is off or auto finds none. The
// error is a path that is not a program.
func Find(cfg media.Config) (*Runner, error) {
	path, err := cfg.FFmpegPath()
	if err != nil || path == "" {
		return nil, err
	}
	r, err := New(path)
	if err != nil {
		return nil, fmt.Errorf("pool.decode.ffmpeg: %w", err)
	}
	return r, nil
}

// New returns a Runner for the ffmpeg program at a path.
func New(path string) (*Runner, error) {
	path, err := exec.LookPath(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("no such program: %w", err)
	}
	r := &Runner{program: path, folders: systemFolders()}
	for p := path; ; {
		bin := filepath.Dir(p)
		r.folders = append(r.folders, bin, filepath.Join(filepath.Dir(bin), "lib"), filepath.Join(filepath.Dir(bin), "lib64"))
		to, err := filepath.EvalSymlinks(p)
		if err != nil || to == p {
			return r, nil //nolint:nilerr // a broken link is told where it is started
		}
		p = to
	}
}

// Program returns the absolute path of the ffmpeg program.
func (r *Runner) Program() string { return r.program }

// systemFolders are where a program finds its libraries.
func systemFolders() []string {
	return []string{
		"/usr", "/lib", "/lib32", "/lib64", "/bin", "/nix/store", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload",
		"/etc/alternatives", "/dev/null", "/dev/urandom", "/proc/cpuinfo", "/sys/devices/system/cpu",
	}
}

// maxSaid bounds what is quoted of ffmpeg's messages.
const maxSaid = 300

// said is what ffmpeg said, in one line. That it leaves other streams alone is no news.
func said(stderr string) string {
	var lines []string
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		for strings.HasPrefix(line, "[") { // "[mov,mp4 @ 0x55d0] …": who speaks, and where it lies
			_, after, ok := strings.Cut(line, "] ")
			if !ok {
				break
			}
			line = after
		}
		line = strings.TrimPrefix(line, media.Input+": ")
		if line != "" && !strings.Contains(line, "not on whitelist") && !strings.HasPrefix(line, "Last message repeated") && (len(lines) == 0 || lines[len(lines)-1] != line) {
			lines = append(lines, line)
		}
	}
	text := strings.ToValidUTF8(strings.Join(lines, "; "), "\uFFFD")
	if len(text) > maxSaid {
		text = strings.ToValidUTF8(text[:maxSaid], "") + "…"
	}
	return text
}
