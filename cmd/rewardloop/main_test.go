package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards/jpeg"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

// TestMain lets this test binary be the child process that runs Tesseract, and
// removes the binary that the tests built.
func TestMain(m *testing.M) {
	if code, child := subprocess.Main(os.Args[1:], node.Kinds()...); child {
		os.Exit(code)
	}
	own, err := os.MkdirTemp("", "rewardloop-test-*") // of keys for NATS, which are the user's
	if err != nil {
		panic(err)
	}
	_ = os.Setenv("XDG_CONFIG_HOME", own)
	_ = os.Setenv("REWARDLOOP_STORE", "off") // those who test it name a file
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(own)
		if dir := builtIn; dir != "" {
			_ = os.RemoveAll(dir)
		}
		os.Exit(code)
	}))
}

// builtIn is where the binary lies, for TestMain to remove.
var builtIn string

// build compiles the command once for all tests, as make build does.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rewardloop-test-*")
	if err != nil {
		return "", err
	}
	builtIn = dir
	bin := filepath.Join(dir, "rewardloop")
	tags, err := exec.Command(filepath.Join("..", "..", "scripts", "tags.sh")).Output()
	if err != nil {
		return "", fmt.Errorf("tags.sh: %w", err)
	}
	out, err := exec.Command("go", "build", "-tags", strings.TrimSpace(string(tags)), "-o", bin, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
})

// binary returns the path of the real thing.
func binary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it builds and starts the program")
	}
	bin, err := build()
	require.NoError(t, err)
	return bin
}

// outcome is what a command came to.
type outcome struct {
	code           int
	stdout, stderr string
}

// call runs a command in this process.
func call(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	return callWith(t.Context(), strings.NewReader(stdin), args...)
}

func callWith(ctx context.Context, stdin io.Reader, args ...string) outcome {
	var stdout, stderr lockedBuffer
	code := run(ctx, args, env{stdin: stdin, stdout: &stdout, stderr: &stderr, getenv: func(string) (string, bool) { return "", false }})
	return outcome{code, stdout.String(), stderr.String()}
}

// lockedBuffer is written and looked at by several goroutines. Grown is signalled
// after each write.
type lockedBuffer struct {
	mu    sync.Mutex
	b     bytes.Buffer
	grown chan struct{} // capacity 1; nil: nobody waits
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grown != nil {
		select {
		case l.grown <- struct{}{}:
		default:
		}
	}
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// await returns when the text is there.
func (l *lockedBuffer) await(t *testing.T, text string) {
	t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.grown:
		case <-limit.C:
			t.Fatalf("%q did not appear in:\n%s", text, l.String())
		}
	}
}

func watched() *lockedBuffer { return &lockedBuffer{grown: make(chan struct{}, 1)} }

// process is the real binary at work.
type process struct {
	*exec.Cmd
	stderr *lockedBuffer
	exited chan struct{}
	err    error // set before exited is closed
}

// start starts the binary; it is killed when the test ends.
func start(t *testing.T, dir string, stdin io.Reader, stdout io.Writer, args ...string) *process {
	t.Helper()
	return startIn(t, dir, nil, stdin, stdout, args...)
}

// startIn is start with an environment; nil: this process's.
func startIn(t *testing.T, dir string, env []string, stdin io.Reader, stdout io.Writer, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(binary(t), args...), stderr: watched(), exited: make(chan struct{})}
	p.Env = env
	p.Dir, p.Stdin, p.Stdout, p.Stderr = dir, stdin, stdout, p.stderr
	p.WaitDelay = time.Second
	require.NoError(t, p.Start())
	go func() { // ends with the process
		p.err = p.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.exited
	})
	return p
}

// code waits for the end and returns the exit code.
func (p *process) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(30 * time.Second):
		t.Fatalf("%v did not end:\n%s", p.Args, p.stderr)
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		t.Fatal(p.err)
	}
	return p.ProcessState.ExitCode()
}

// drawing is a tiny picture, different for each n: its PNG, and its reward by
// jpeg_incompressibility.
func drawing(t *testing.T, n int) (file []byte, reward float64) {
	t.Helper()
	const side = 16
	img := image.NewRGBA(image.Rect(0, 0, side, side))
	rgb := make([]byte, 0, 3*side*side)
	state := uint32(n)*2654435761 + 1 //nolint:gosec // any number does
	for y := range side {
		for x := range side {
			state ^= state << 13
			state ^= state >> 17
			state ^= state << 5
			c := color.RGBA{byte(state), byte(state >> 8), byte(state >> 16), 255}
			if (x+y*side)%(n%37+1) != 0 { // fewer noisy pixels, smaller files
				c = color.RGBA{byte(n), byte(n >> 8), 7, 255}
			}
			img.SetRGBA(x, y, c)
			rgb = append(rgb, c.R, c.G, c.B)
		}
	}
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, img))
	size, err := jpeg.Size(rgb, side, side, 95)
	require.NoError(t, err)
	return b.Bytes(), float64(size) / 1000
}

// put writes a file below dir.
func put(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func needTesseract(t *testing.T) {
	t.Helper()
	if _, err := tesseract.Available(); err != nil {
		t.Skipf("SKIPPED: no Tesseract: %v", err)
	}
}

func TestNoCommandAndAWrongOneExitWith2(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		code int
		says string
	}{
		"none":                      {nil, exitUsage, ""},
		"help":                      {[]string{"--help"}, exitOK, ""},
		"unknown":                   {[]string{"scroe"}, exitUsage, `no command "scroe"; did you mean serve or score?`},
		"unknown, with help":        {[]string{"scroe", "--help"}, exitUsage, `no command "scroe"`},
		"unknown, below":            {[]string{"config", "chek"}, exitUsage, `no command "chek"; did you mean check?`},
		"help of an unknown":        {[]string{"help", "scroe"}, exitUsage, `no command "scroe"`},
		"unknown flag":              {[]string{"version", "--loud"}, exitUsage, "no flag --loud"},
		"a flag of others":          {[]string{"runs", "--url", "http://x"}, exitUsage, "did you mean --server?"},
		"a command of others":       {[]string{"start"}, exitUsage, "did you mean serve?"},
		"a second file":             {[]string{"score", "testdata/cfg.yaml", "main.go", "out.jsonl"}, exitUsage, "samples follow -i, scores -o"},
		"a step that is no file":    {[]string{"trace", "12"}, exitUsage, "--step 12"},
		"no such reader":            {[]string{"demo", "--reader", "rapidocr"}, exitUsage, "want ppocr, tesseract or auto"},
		"misspelt flag":             {[]string{"serve", "--lisen", "x"}, exitUsage, "did you mean --listen?"},
		"the value of a flag":       {[]string{"serve", "testdata/cfg.yaml", "--listen", "8080"}, exitUsage, "serve: --listen: server.listen: want an address and a port"},
		"a key as a flag":           {[]string{"serve", "--reward.num_workers=2"}, exitUsage, "reward.num_workers=value"},
		"a long flag with one dash": {[]string{"serve", "-listen", "x"}, exitUsage, "write --listen with two dashes"},
		"-config":                   {[]string{"serve", "-config", "cfg.yaml"}, exitUsage, "write --config with two dashes"},
		"a flag without its value":  {[]string{"serve", "--listen"}, exitUsage, "--listen needs a value"},
		"a flag's value":            {[]string{"demo", "--samples", "few"}, exitUsage, `--samples "few": must be a whole number`},
		"no such shell":             {[]string{"completion", "tcsh"}, exitUsage, `no completion for the shell "tcsh"`},
		"score, no files":           {[]string{"score", "-c", "testdata/cfg.yaml"}, exitUsage, "-i samples.jsonl"},
		"score, no config":          {[]string{"score", "-i", "-", "-o", "-"}, exitUsage, "no reward is named"},
		"score, no input":           {[]string{"score", "-c", "testdata/cfg.yaml", "-i", "nowhere.jsonl", "-o", "-"}, exitUsage, "nowhere.jsonl"},
		"score, no pictures":        {[]string{"score", "-c", "testdata/cfg.yaml", "-i", "testdata", "-o", "-"}, exitUsage, "no pictures"},
		"score, parquet in":         {[]string{"score", "-c", "testdata/cfg.yaml", "-i", "x.parquet", "-o", "-"}, exitUsage, "x.parquet: no such file"},
		"score, unknown input":      {[]string{"score", "-c", "testdata/cfg.yaml", "-i", "x.feather", "-o", "-"}, exitUsage, "cannot read .feather files; want .jsonl"},
		"score, unknown output":     {[]string{"score", "-c", "testdata/cfg.yaml", "-i", "-", "-o", "x.xlsx"}, exitUsage, "cannot write .xlsx files; want .jsonl .ndjson .csv .parquet .html"},
		"score, no root":            {[]string{"score", "-c", "testdata/cfg.yaml", "-i", "-", "-o", "-", "--media-root", "nowhere"}, exitUsage, "--media-root"},
		"score, no output":          {[]string{"score", "-c", "testdata/cfg.yaml", "-i", "-", "-o", "nowhere/x"}, exitUsage, "-o"},
		"config, no verb":           {[]string{"config"}, exitUsage, "name check, print or schema"},
		"config, no file":           {[]string{"config", "check", "-c", "nowhere.yaml"}, exitUsage, "nowhere.yaml"},
		"serve, log level":          {[]string{"serve", "-c", "testdata/cfg.yaml", "--log-level", "shout"}, exitUsage, "shout"},
		"serve, no file":            {[]string{"serve", "-c", "nowhere.yaml"}, exitUsage, "nowhere.yaml"},
		"a misspelt command":        {[]string{"srve"}, exitUsage, "did you mean serve?"},
		"a file that is not there":  {[]string{"serve", "cfg.yaml"}, exitUsage, "cfg.yaml: no such file"},
		"two files":                 {[]string{"serve", "-c", "a.yaml", "b.yaml"}, exitUsage, "unexpected \"b.yaml\": the configuration is a.yaml"},
		"two of standard input":     {[]string{"score", "-c", "-", "-i", "-", "-o", "-"}, exitUsage, "both read standard input"},
		"tied to standard input":    {[]string{"serve", "-", "--until-stdin-closes"}, exitUsage, "both read standard input"},
		"serve, public":             {[]string{"serve", "-c", "testdata/cfg.yaml", "--listen", "0.0.0.0:0"}, exitUsage, "token_file"},
		"doctor, wrong file":        {[]string{"doctor", "-c", "nowhere.yaml"}, exitFailure, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && len(tt.args) > 0 && tt.args[0] == "doctor" {
				t.Skip("SKIPPED: -short: it starts Python and child processes")
			}
			got := call(t, "", tt.args...)
			require.Equal(t, tt.code, got.code, got.stderr)
			require.Contains(t, got.stderr, tt.says)
			require.LessOrEqual(t, strings.Count(got.stderr, "\n"), 3, "it is no page of help")
		})
	}
}

func TestVersionSaysWhatTheProgramIsMadeOf(t *testing.T) {
	t.Parallel()
	got := call(t, "", "version")
	require.Equal(t, exitOK, got.code)
	require.Regexp(t, `^rewardloop \S+\ncommit  \S+\ngo      go1\S+ \w+/\w+\ntags    \S.*\n$`, got.stdout)
	require.Equal(t, got, call(t, "", "--version"))
	var p program
	require.NoError(t, json.Unmarshal([]byte(call(t, "", "version", "--json").stdout), &p))
	require.Equal(t, thisProgram(), p)
	out, err := exec.CommandContext(t.Context(), binary(t), "version").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "\ntags    nomsgpack")
}

func TestScorersAreALineEachAndOneOfThemIsWhole(t *testing.T) {
	t.Parallel()
	got := call(t, "", "scorers")
	require.Equal(t, exitOK, got.code)
	var list struct{ Scorers []scorerRow }
	require.NoError(t, json.Unmarshal([]byte(call(t, "", "scorers", "--json").stdout), &list))
	require.Equal(t, len(list.Scorers)+3, strings.Count(got.stdout, "\n"), "a heading, a line each and how to see more")
	for _, r := range list.Scorers {
		require.Contains(t, got.stdout, "\n"+r.Name+" ")
		require.NotEmpty(t, r.Summary)
		require.NotEmpty(t, r.Concurrency)
	}
	require.Regexp(t, `\nocr +model +similarity of the text`, got.stdout)
	require.Regexp(t, `\ngsm8k +- `, got.stdout)
	require.Regexp(t, `\nhttp +service `, got.stdout)
	some := call(t, "", "scorers", "gsm8k", "builtin://f1", "jpeg_compressibility")
	require.Equal(t, exitOK, some.code)
	for _, part := range []string{"builtin://f1\n", "builtin://gsm8k\n", "quality", "At a time:"} {
		require.Contains(t, some.stdout, part)
	}
	require.NotContains(t, some.stdout, "builtin://ocr\n")
	none := call(t, "", "scorers", "gsm9k")
	require.Equal(t, exitUsage, none.code)
	require.Contains(t, none.stderr, `no reward named "gsm9k"; did you mean gsm8k?`)
}

func TestConfigCheckNamesFiveFaultsOnFiveLines(t *testing.T) {
	t.Parallel()
	p := exec.Command(binary(t), "config", "check", "-c", "testdata/five_faults.yaml")
	out, err := p.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, exitUsage, exit.ExitCode())
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, 5, "%s", out)
	for i, want := range []string{":2:", ":3:", ":7:", ":9:", ":11:"} {
		require.Contains(t, lines[i], "five_faults.yaml"+want)
	}
}
