package documents_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A walker does what a page says, command by command, in a folder that looks like the
// repository after make build. Servers and workers go on in the background. The page's
// addresses become ports of this machine that are free.
type walker struct {
	dir     string
	env     []string
	running []*process
	gateway string            // Where the server that was started last listens.
	ports   map[string]string // An address of the page → that of this walk.
}

// process is a server or a worker that was started.
type process struct {
	cmd  *exec.Cmd
	said *output
}

// output is what a process writes, readable while it runs.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// settle bounds the start of a process, with its models on a machine that is busy, and
// its end.
const settle = 2 * time.Minute

var (
	// forever is a command that goes on until it is told to stop.
	forever = regexp.MustCompile(`^(?:bin/)?rewardloop (serve|worker) `)
	// hosts are the addresses that the pages name.
	hosts = regexp.MustCompile(`(?:127\.0\.0\.1|0\.0\.0\.0|10\.0\.0\.\d+):\d+`)
)

// workshop is the folder in which program builds; TestMain makes and removes it.
var workshop string

// program is the binary as make build makes it, built once for all walks.
var program = sync.OnceValues(func() (string, error) {
	tags, err := exec.CommandContext(context.Background(), filepath.Join("scripts", "tags.sh")).Output()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(workshop, "rewardloop")
	out, err := exec.CommandContext(context.Background(), "go", "build", "-trimpath", //nolint:gosec // of tags.sh
		"-tags", strings.TrimSpace(string(tags)), "-o", bin, "./cmd/rewardloop").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
})

// walk prepares a folder and ends what runs in it with the test.
func walk(t *testing.T) *walker {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it builds and starts the program")
	}
	bin, err := program()
	require.NoError(t, err)
	w := &walker{dir: t.TempDir(), ports: map[string]string{}}
	require.NoError(t, os.Mkdir(filepath.Join(w.dir, "bin"), 0o700))
	root, err := os.Getwd()
	require.NoError(t, err)
	for link, to := range map[string]string{
		"testdata": filepath.Join(root, "testdata"), "examples": filepath.Join(root, "examples"), "bin/rewardloop": bin,
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(w.dir, link)))
	}
	w.env = append(os.Environ(), "PATH="+filepath.Join(w.dir, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Cleanup(func() { w.stop(t) })
	return w
}

// here puts free ports of this machine for the addresses of the page. A server that
// others listen beside gets a port of its own each time.
func (w *walker) here(t *testing.T, text string) string {
	t.Helper()
	return hosts.ReplaceAllStringFunc(text, func(address string) string {
		_, port, _ := net.SplitHostPort(address)
		if w.ports[port] == "" {
			w.ports[port] = free(t)
		}
		return w.ports[port]
	})
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// block does the commands of a block and returns what they printed. A command of which
// leave says why is left to others.
func (w *walker) block(t *testing.T, text string, leave func(command string) string) string {
	t.Helper()
	var script, printed strings.Builder
	flush := func() {
		if strings.TrimSpace(script.String()) != "" {
			printed.WriteString(w.script(t, script.String()))
		}
		script.Reset()
	}
	for _, command := range commands(text) {
		switch m := forever.FindStringSubmatch(command); {
		case leave(command) != "":
			t.Logf("left to others: %s: %s", strings.TrimSpace(command), leave(command))
		case m != nil:
			flush()
			w.start(t, m[1], command)
		default:
			script.WriteString(command)
		}
	}
	flush()
	return printed.String()
}

// commands are the lines of a script, each with those it goes on in.
func commands(text string) []string {
	var all []string
	document := ""
	for line := range strings.Lines(text) {
		n := len(all)
		switch {
		case document != "":
			all[n-1] += line
			if strings.TrimSpace(line) == document {
				document = ""
			}
		case n > 0 && strings.HasSuffix(all[n-1], "\\\n"):
			all[n-1] += line
		default:
			all = append(all, line)
		}
		if _, after, is := strings.Cut(line, "<<'"); is {
			document, _, _ = strings.Cut(after, "'")
		}
	}
	return all
}

// receives puts a key where a page's other machine has it.
func (w *walker) receives(t *testing.T, key string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "access", key))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, key), text, 0o600))
}

func (w *walker) script(t *testing.T, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settle)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", w.here(t, text))
	cmd.Dir, cmd.Env = w.dir, w.env
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s%s\n%s", text, out, &complaint, w.logs())
	return string(out)
}

// start starts a server or a worker and waits until it is there. A server that does not
// join others' NATS comes in the place of all that ran before.
func (w *walker) start(t *testing.T, role, command string) {
	t.Helper()
	if role == "serve" {
		if !strings.Contains(command, "--nats nats://") {
			w.stop(t)
		}
		if !strings.Contains(command, "--listen ") {
			command = strings.TrimSpace(command) + " --listen 127.0.0.1:8080\n"
		}
		address := regexp.MustCompile(`--listen \S+:(\d+)`).FindStringSubmatch(command)
		w.ports[address[1]] = free(t)
		w.gateway = w.ports[address[1]]
	}
	p := &process{said: new(output)}
	p.cmd = exec.Command("bash", "-c", "exec "+w.here(t, command)) //nolint:gosec // of the page; stop ends it
	p.cmd.Dir, p.cmd.Env = w.dir, w.env
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	require.NoError(t, p.cmd.Start())
	w.running = append(w.running, p)
	probe := "/readyz"
	if role == "serve" && strings.Contains(command, "reward.num_workers=0") {
		probe = "/healthz" // It is ready with its first worker.
	}
	require.Eventually(t, func() bool { return w.answers(t, probe) }, settle, 100*time.Millisecond, "%s\n%s", command, p.said)
}

func (w *walker) answers(t *testing.T, path string) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.gateway+path, http.NoBody)
	if err != nil {
		return false
	}
	req.Close = true // A server that ends leaves no connection behind.
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	return res.Body.Close() == nil && res.StatusCode == http.StatusOK
}

// stop tells all that runs to stop, workers first, and waits for its end.
func (w *walker) stop(t *testing.T) {
	t.Helper()
	for _, p := range slices.Backward(w.running) {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = p.cmd.Wait()
		}()
		select {
		case <-ended:
		case <-time.After(settle):
			_ = p.cmd.Process.Kill()
			<-ended
			t.Errorf("%s did not end within %v\n%s", p.cmd, settle, p.said)
		}
	}
	w.running = nil
}

func (w *walker) logs() string {
	var all strings.Builder
	for _, p := range w.running {
		all.WriteString(p.said.String())
	}
	return all.String()
}

// needReader skips where nothing here reads text.
func needReader(t *testing.T) {
	t.Helper()
	_, models := os.Stat(filepath.Join(os.Getenv("REWARDLOOP_MODELS"), "ppocr-v4-mobile"))
	_, tesseract := exec.LookPath("tesseract")
	if models != nil && tesseract != nil {
		t.Skip("SKIPPED: neither PP-OCR (make ort models; REWARDLOOP_MODELS) nor tesseract is here to read a picture")
	}
	if _, err := os.Stat(filepath.Join("testdata", "golden", "ocr", "g00_1.jpg")); err != nil {
		t.Skipf("SKIPPED: the golden data has no ocr pictures: %v", err)
	}
}
