package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue/acl"
)

// every is each command that --help lists, with those below it.
func every(t *testing.T) []*cobra.Command {
	t.Helper()
	var all []*cobra.Command
	var add func(of *cobra.Command)
	add = func(of *cobra.Command) {
		for _, c := range of.Commands() {
			if c.IsAvailableCommand() {
				all = append(all, c)
				add(c)
			}
		}
	}
	add(newRoot(&env{}))
	require.Greater(t, len(all), 20)
	return all
}

// words are the arguments that lead to a command.
func words(c *cobra.Command) []string { return strings.Fields(c.CommandPath())[1:] }

// examples returns the lines below "Example:" of a command's help; one that ends with a
// backslash goes on in the next.
func examples(t *testing.T, c *cobra.Command) []string {
	t.Helper()
	got := call(t, "", append(words(c), "--help")...)
	require.Equal(t, exitOK, got.code)
	require.Empty(t, got.stderr)
	_, text, found := strings.Cut(got.stdout, "\nExample:\n")
	require.True(t, found, "%s --help has no example", c.CommandPath())
	var all []string
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, "  ") {
			break
		}
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	require.NotEmpty(t, all)
	return all
}

func TestTheHelpOfEveryCommandFitsIntoEightyColumns(t *testing.T) {
	t.Parallel()
	for _, c := range append(every(t), newRoot(&env{})) {
		got := call(t, "", append(words(c), "--help")...)
		require.Equal(t, exitOK, got.code)
		for line := range strings.Lines(got.stdout) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), helpWidth, "%s: %s", c.CommandPath(), line)
		}
		require.Equal(t, got, call(t, "", append([]string{"help"}, words(c)...)...), "help COMMAND is COMMAND --help")
	}
}

// workplace has the files that examples name.
func workplace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cfg, err := os.ReadFile(filepath.Join("testdata", "cfg.yaml"))
	require.NoError(t, err)
	put(t, dir, "cfg.yaml", cfg)
	put(t, dir, "token", []byte("a-token-of-more-than-thirty-two-characters\n"))
	picture, _ := drawing(t, 1)
	put(t, dir, "a.png", picture)
	put(t, dir, "pictures/a.png", picture)
	put(t, dir, "samples.jsonl", []byte(`{"id": "a", "image": "a.png"}`+"\n"))
	putParquet(t, filepath.Join(dir, "samples.parquet"), []pictureRow{{ID: 1, Image: &pictureStruct{Path: new("a.png")}}})
	put(t, dir, "hpsv3.txt", []byte("--no-index\n")) // an environment of no packages
	put(t, dir, "my-rm/config.json", []byte("{}"))
	return dir
}

// keptExample leaves 8080.db in a folder, with a result of my-run, and other.yaml.
func keptExample(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "8080.db")); err == nil {
		return // of the example before
	}
	cfg, err := os.ReadFile(filepath.Join(dir, "cfg.yaml"))
	require.NoError(t, err)
	put(t, dir, "other.yaml", cfg)
	addr := freePort(t)
	p := start(t, dir, nil, nil, "serve", "-c", "cfg.yaml", "--listen", addr, "store.path=8080.db", "store.keep=full")
	p.stderr.await(t, "serving")
	played(t, addr, "my-run")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitOK, p.code(t), p.stderr)
}

// madeHere is the example of env with the Python of this machine, and with an environment that is there.
func madeHere(t *testing.T, dir, line string, vars []string) string {
	t.Helper()
	line = strings.Replace(line, " --python 3.11", "", 1)
	name := regexp.MustCompile(`py3\.11-[0-9a-f]{16}`)
	if name.MatchString(line) {
		got := (&envCalls{dir: dir, vars: append(os.Environ(), vars...)}).do(t, "env", "make", "-r", "hpsv3.txt", "--yes")
		require.Equal(t, exitOK, got.code, got.stderr)
		made := filepath.Dir(filepath.Dir(strings.TrimSpace(got.stdout))) // of its bin/python
		line = name.ReplaceAllString(line, filepath.Base(made))
	}
	return line
}

// joinExample runs a worker beside a gateway that is where its line says: on this
// machine, and in the second form with TLS and keys.
func joinExample(t *testing.T, dir, line string) {
	t.Helper()
	serve := []string{"serve", "-c", "cfg.yaml", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "reward.num_workers=0"}
	if strings.Contains(line, "tls://") {
		_, err := acl.Create(acl.Config{Dir: dir, Hosts: []string{"127.0.0.1"}, Force: true})
		require.NoError(t, err)
		serve = append(serve, "++queue.acl_file=acl.conf", "++queue.nkey_file=gateway.nk", "++queue.tls_cert=server.pem", "++queue.tls_key=server-key.pem",
			"++server.tls_cert=server.pem", "++server.tls_key=server-key.pem")
	}
	gateway := start(t, dir, nil, nil, serve...)
	gateway.stderr.await(t, "workers can connect")
	nats := regexp.MustCompile(`nats=(\S+)`).FindStringSubmatch(gateway.stderr.String())[1]
	line = strings.NewReplacer("10.0.0.5:4222", nats, "nats.lab:4222", nats, ":9090", ":0").Replace(line)
	p := start(t, dir, nil, nil, strings.Fields(line)[1:]...)
	p.stderr.await(t, "the worker accepts samples")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitOK, p.code(t), "%s: %s", line, p.stderr)
}

// Examples run as they are printed, in a shell, but for ports, which must be free
// here, and the demo's size.
func TestEveryExampleOfEveryCommandRuns(t *testing.T) {
	t.Parallel()
	bin := binary(t)
	for _, c := range every(t) {
		t.Run(strings.Join(words(c), " "), func(t *testing.T) {
			t.Parallel()
			dir := workplace(t)
			for _, line := range examples(t, c) {
				if strings.Contains(line, "builtin://ocr") || c.Name() == "demo" {
					needTesseract(t)
				}
				switch c.Name() {
				case "serve":
					serveExample := strings.Replace(line, ":8080", ":0", 1)
					if serveExample == line {
						serveExample += " --listen 127.0.0.1:0"
					}
					p := start(t, dir, nil, nil, strings.Fields(serveExample)[1:]...)
					p.stderr.await(t, "serving")
					require.NoError(t, p.Process.Signal(syscall.SIGTERM))
					require.Equal(t, exitOK, p.code(t), "%s: %s", line, p.stderr)
					continue
				case "failures", "reload", "status", "engines", "runs", "steps":
					_, addr := serving(t, "testdata/cfg.yaml")
					played(t, addr, "my-run")
					line = strings.Replace(line, "127.0.0.1:8080", addr, 1)
				case "worker":
					joinExample(t, dir, line)
					continue
				case "unbundle":
					stick, to := put(t, dir, "scorer.onnx", []byte("weights")), map[string]string{"REWARDLOOP_MODELS": t.TempDir(), "REWARDLOOP_ENVS": t.TempDir()}
					require.Equal(t, exitOK, modelsIn(t.Context(), to, "bundle", stick, "--out", filepath.Join(dir, "bundle")).code)
				case "demo":
					golden, err := filepath.Abs(filepath.Join("..", "..", "testdata", "golden", "ocr"))
					require.NoError(t, err)
					if !strings.Contains(line, "--verify") {
						line += " --samples 8 --data " + golden
					}
				}
				vars := []string{"REWARDLOOP_ENVS=" + filepath.Join(dir, "envs")}
				if strings.HasPrefix(line, "rewardloop models export") {
					vars = append(vars, "HF_ENDPOINT="+checkpointHub(t), "REWARDLOOP_MODELS="+filepath.Join(dir, "models"))
					line = strings.Replace(line, "models export", "models export --yes --interpreter "+stubExporter(t, exportsWell), 1)
				} else if c.Name() == "export" || c.Name() == "replay" {
					keptExample(t, dir)
					vars = append(vars, "REWARDLOOP_STORE="+dir)
				}
				if strings.HasPrefix(line, "rewardloop env") {
					line = madeHere(t, dir, line, vars)
				}
				sh := exec.Command("sh", "-c", line)
				sh.Dir = dir
				sh.Env = append(append(os.Environ(), vars...), "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"))
				out, err := sh.CombinedOutput()
				require.NoError(t, err, "%s\n%s", line, out)
			}
		})
	}
}
