package documents_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// block is a fenced block of a page.
type block struct {
	section  string // the heading above it
	language string
	// file is the name in a line such as "`cfg.yaml`:" before it; "": none.
	file, text string
}

// blocks reads a page.
func blocks(t *testing.T, page string) []block {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var (
		all           []block
		current       *block
		heading, last string
		label         = regexp.MustCompile("^`([^`]+)`[^`]*:$")
	)
	for line := range strings.Lines(string(text)) {
		switch {
		case current != nil && strings.TrimSpace(line) == "```":
			all, current = append(all, *current), nil
			last = ""
		case current != nil:
			current.text += line
		case strings.HasPrefix(line, "```"):
			current = &block{section: heading, language: strings.TrimSpace(line[3:])}
			if m := label.FindStringSubmatch(last); m != nil {
				current.file = m[1]
			}
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		case strings.TrimSpace(line) != "":
			last = strings.TrimSpace(line)
		}
	}
	require.Nil(t, current, "%s: a block is not closed", page)
	return all
}

// withScorer builds the command with one more scorer: its file, and the line that
// registers it. The tree itself stays as it is.
func withScorer(t *testing.T, dir, file, line string) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it builds the program")
	}
	root, err := os.Getwd()
	require.NoError(t, err)
	standard := filepath.Join(root, "rewards", "standard", "register.go")
	text, err := os.ReadFile(standard)
	require.NoError(t, err)
	const imports, register = "import (\n", "deps Deps) {\n"
	require.Equal(t, 1, strings.Count(string(text), register), "%s is not what docs/write-a-scorer.md says", standard)
	patched := strings.Replace(string(text), imports, imports+"\t\"github.com/rewardloop/rewardloop/rewards/brightness\"\n", 1)
	patched = strings.Replace(patched, register, register+line, 1)
	overlay := map[string]map[string]string{"Replace": {}}
	for path, content := range map[string]string{standard: patched, filepath.Join(root, "rewards", "brightness", "brightness.go"): file} {
		copied := filepath.Join(dir, filepath.Base(path))
		require.NoError(t, os.WriteFile(copied, []byte(content), 0o600))
		overlay["Replace"][path] = copied
	}
	js, err := json.Marshal(overlay)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), js, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"),
		"-o", filepath.Join(dir, "rewardloop"), "./cmd/rewardloop").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// grey writes a picture whose pixels are all 51, a fifth of white.
func grey(t *testing.T, path string) {
	t.Helper()
	p := &rewards.Pixels{Width: 8, Height: 8, Count: 1, RGB: make([]byte, 192)}
	for i := range p.RGB {
		p.RGB[i] = 51
	}
	file, err := media.EncodePNG(p, 0)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, file, 0o600))
}

// TestEveryBlockOfWriteAScorerRuns does what the page says, in its order and in
// one folder: files are written, commands run, and a file that is there by then
// must hold what the page shows of it.
//
//nolint:tparallel // a section goes on where the one before it ended
func TestEveryBlockOfWriteAScorerRuns(t *testing.T) {
	t.Parallel()
	all, bin, dir := blocks(t, filepath.Join("docs", "write-a-scorer.md")), t.TempDir(), t.TempDir()
	var scorer, registration string
	sections := map[string]int{}
	for _, b := range all {
		sections[b.section]++
		switch {
		case b.file == "brightness.go":
			scorer = b.text
		case b.language == "go" && b.file == "":
			registration += b.text
		}
	}
	require.Len(t, sections, 5, "sections with blocks: %v", sections)
	withScorer(t, bin, scorer, registration)
	grey(t, filepath.Join(dir, "grey.png"))

	interpreter, missing := pythonFor(t)
	for len(all) > 0 {
		section := all[0].section
		t.Run(section, func(t *testing.T) {
			if why := missing[section]; why != "" {
				t.Skip("SKIPPED: " + why)
			}
			for _, b := range all[:sections[section]] {
				do(t, b, bin, dir, interpreter)
			}
		})
		all = all[sections[section]:]
	}
}

// pythonFor returns the Python to use, and what it lacks, by the section that
// needs it.
func pythonFor(t *testing.T) (interpreter string, missing map[string]string) {
	t.Helper()
	interpreter = os.Getenv("REWARDLOOP_PYTHON")
	if venv, err := filepath.Abs(filepath.Join(".venv", "bin", "python")); interpreter == "" && err == nil {
		if _, err := os.Stat(venv); err == nil {
			interpreter = venv
		}
	}
	if interpreter == "" {
		interpreter = "python3"
	}
	missing = map[string]string{}
	if _, err := exec.LookPath("python3"); err != nil || runtime.GOOS != "linux" {
		missing["In Python"] = fmt.Sprintf("no Python functions without Linux and python3 on PATH: %v", err)
		missing["Pictures"] = missing["In Python"]
	} else if err := exec.CommandContext(t.Context(), interpreter, "-c", "import numpy").Run(); err != nil {
		missing["Pictures"] = fmt.Sprintf("%s has no NumPy (%v); name a Python that has it in REWARDLOOP_PYTHON", interpreter, err)
	}
	return interpreter, missing
}

// do does what one block says.
func do(t *testing.T, b block, bin, dir, interpreter string) {
	t.Helper()
	path := filepath.Join(dir, b.file)
	switch {
	case b.language == "sh":
		run(t, b.text, bin, dir, interpreter)
	case b.file == "":
		require.Equal(t, "go", b.language, "a block that is neither a file nor a command: %s", b.text) // the registration
	default:
		got, err := os.ReadFile(path)
		if err != nil {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte(b.text), 0o600))
			return
		}
		require.Equal(t, "json", b.language, "%s is written twice", b.file)
		want, lines := strings.Split(strings.TrimSpace(b.text), "\n"), strings.Split(strings.TrimSpace(string(got)), "\n")
		require.Len(t, lines, len(want), "%s", got)
		for i := range want {
			var w, g any
			require.NoError(t, json.Unmarshal([]byte(want[i]), &w))
			require.NoError(t, json.Unmarshal([]byte(lines[i]), &g))
			holds(t, w, g, b.file+" "+lines[i])
		}
	}
}

// What make docs-check says of every page: links, names, commands, configurations.
func TestTheDocumentsSpeakOfWhatIsThere(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it builds the program")
	}
	if out, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--git-dir").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: git lists the pages, and this is no clone: %v: %s", err, out)
	}
	bin, err := program()
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), filepath.Join("scripts", "tool.sh"), "docscheck", "-bin", bin).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

// One gateway, several, and rewards on different workers: the page's commands are run in
// its order on this machine, with the configuration that it shows.
func TestTheMachinesOfTheScaleOutPageMeet(t *testing.T) {
	t.Parallel()
	needReader(t)
	w, all := walk(t), blocks(t, filepath.Join("docs", "scale-out.md"))
	for _, b := range all {
		if b.file != "" {
			require.NoError(t, os.WriteFile(filepath.Join(w.dir, b.file), []byte(b.text), 0o600))
		}
	}
	require.FileExists(t, filepath.Join(w.dir, "cfg.yaml"), "the page shows no configuration")
	gateways, workers := 0, 0
	for _, b := range all {
		if b.language != "sh" {
			continue
		}
		for _, key := range []string{"gateway.nk", "worker.nk"} {
			if strings.Contains(b.text, "="+key) {
				w.receives(t, key)
			}
		}
		w.block(t, b.text, func(command string) string {
			switch {
			case strings.Contains(command, "nats://n1:"):
				return "three NATS servers; queue's tests have a cluster"
			case strings.HasPrefix(command, "rewardloop serve"):
				gateways++
			case strings.HasPrefix(command, "rewardloop worker"):
				workers++
			}
			return ""
		})
	}
	require.Equal(t, []int{2, 3}, []int{gateways, workers}, "gateways and workers that the page starts")
}

// The configurations of NATS that the page shows are read by NATS, with the file that
// rewardloop queue acl writes.
func TestTheNATSConfigurationsOfTheDocumentsAreRead(t *testing.T) {
	t.Parallel()
	w := walk(t)
	var whole strings.Builder
	w.script(t, "rewardloop queue acl --out .")
	for _, b := range blocks(t, filepath.Join("docs", "scale-out.md")) {
		if b.language == "conf" {
			whole.WriteString(b.text) // The page's second one is added to its first.
		}
	}
	file := filepath.Join(w.dir, "nats.conf")
	require.NoError(t, os.WriteFile(file, []byte(whole.String()), 0o600))
	options, err := server.ProcessConfigFile(file)
	require.NoError(t, err)
	require.Equal(t, "rewardloop", options.Cluster.Name)
	require.Len(t, options.Routes, 3)
	require.NotEmpty(t, options.Nkeys, "acl.conf has been left out")
	require.True(t, options.JetStream)
}

// run runs the commands of a block in the page's folder. A page that makes a module runs go mod tidy,
// which wants modules that the tests of our dependencies import: on a machine that has just been set
// up the cache does not have them, and they are downloaded.
func run(t *testing.T, commands, bin, dir, interpreter string) {
	t.Helper()
	root, err := os.Getwd()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "REWARDLOOP="+root,
		"REWARDLOOP_PYTHON="+interpreter, "PYTHONPATH="+filepath.Join(root, "python"), "PYTHONDONTWRITEBYTECODE=1", "GOSUMDB=off", "GOFLAGS=", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", commands, out)
	// What a failure is answered with must have been said.
	for _, m := range regexp.MustCompile(`\|\| echo "?([a-z ]+)`).FindAllStringSubmatch(commands, -1) {
		require.Contains(t, string(out), m[1], commands)
	}
}

// holds wants all of want in got, which may have more keys.
func holds(t *testing.T, want, got any, where string) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		require.True(t, ok, "%s: %v is no object", where, got)
		for key := range w {
			require.Contains(t, g, key, where)
			holds(t, w[key], g[key], where)
		}
	case []any:
		g, ok := got.([]any)
		require.True(t, ok, "%s: %v is no list", where, got)
		require.Len(t, g, len(w), where)
		for i := range w {
			holds(t, w[i], g[i], where)
		}
	case float64:
		require.InDelta(t, w, got, 1e-9, where)
	default:
		require.Equal(t, want, got, where)
	}
}
