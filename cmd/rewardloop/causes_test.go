package main

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
)

// cause is something that keeps samples of the reward "judge" from being scored, and what is
// read of it wherever people look.
type cause struct {
	yaml    string
	files   map[string]string              // beside the configuration
	serve   []string                       // further arguments of serve
	workers []map[string]string            // other processes, with what is set in their environments
	happens func(t *testing.T, dir string) // once the server serves
	says    string                         // a pattern
	doctor  string                         // a pattern of what doctor says; says where it is empty
}

// troubledServer is a server with a reward of which something is wrong.
type troubledServer struct {
	dir, addr string
	*process
	others []*process
}

// judges is a configuration whose reward judge asks an engine at an address.
func judges(address string) string {
	return fmt.Sprintf(`engines:
  qwen: {base_urls: ["http://%s"], model: stub}
rewards:
  judge: {reward_functions: {judge: {path: "builtin://judge", required: true, engine: qwen, template: "{prompt}"}}}
`, address)
}

// inPython is a configuration whose reward judge is a function, run by an interpreter of its own.
const inPython = `pool: {python: {interpreter: ./interpreter}}
rewards:
  judge: {reward_functions: {judge: {path: judge.py, name: judge, required: true}}}
`

// dies is a function whose process ends with its first call.
const dies = "import os\n\ndef judge(**sample):\n    os._exit(1)\n"

// within is how soon a cause must be named. A machine that does other work may take longer.
const within = 10 * time.Second

func causes(t *testing.T) map[string]cause {
	t.Helper()
	var lc net.ListenConfig
	silent, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	interpreter := cmp.Or(os.Getenv("REWARDLOOP_PYTHON"), "python3")
	t.Cleanup(func() { _ = silent.Close() }) // nobody accepts: the kernel does, and nobody answers
	return map[string]cause{
		"an engine at a closed port": {
			yaml: judges(freePort(t)),
			says: `qwen.*(is down|refused)|waiting for qwen`,
		},
		"an engine that hangs": {
			yaml: judges(silent.Addr().String()),
			says: `calls at qwen, no answer for`, doctor: `qwen`,
		},
		"no worker for the profile": {
			yaml:  "rewards:\n  judge: {reward_functions: {jpeg: {path: \"builtin://jpeg_incompressibility\", required: true}}}\n",
			serve: []string{"reward.num_workers=0", "++queue.nats_listen=127.0.0.1:0"},
			says:  `no worker serves the profile \\?"judge`,
		},
		"a model that is missing on one of two workers": {
			yaml:    "rewards:\n  judge: {reward_functions: {read: {path: \"builtin://ocr\", required: true, reader: ppocr}}}\n",
			serve:   []string{"reward.num_workers=0", "++queue.nats_listen=127.0.0.1:0"},
			workers: []map[string]string{{}, {"REWARDLOOP_MODELS": filepath.Join(t.TempDir(), "nothing")}},
			says:    `worker w2-w0 cannot score the profile.*model ppocr-v4-mobile is not in .*rewardloop models pull`,
		},
		"a missing NumPy": {
			yaml:  inPython,
			files: map[string]string{"interpreter": "#!/bin/sh\nexec " + interpreter + " -S \"$@\"\n", "judge.py": "def judge(**sample):\n    return 0.5\n"},
			says:  `(?i)numpy`,
		},
		"a syntax error": {
			yaml:  inPython,
			files: map[string]string{"interpreter": "#!/bin/sh\nexec " + interpreter + " \"$@\"\n", "judge.py": dies},
			happens: func(t *testing.T, dir string) {
				t.Helper()
				put(t, dir, "judge.py", []byte("def judge(**sample)\n    return 0.5\n"))
			},
			says: `judge\.py.*SyntaxError|SyntaxError.*judge\.py|(?s)judge\.py.{0,300}SyntaxError`,
		},
		"breakers of all workers that are open": {
			yaml:  inPython,
			files: map[string]string{"interpreter": "#!/bin/sh\nexec " + interpreter + " \"$@\"\n", "judge.py": dies},
			happens: func(t *testing.T, dir string) {
				t.Helper()
				require.NoError(t, os.Remove(filepath.Join(dir, "interpreter")))
			},
			says: `interpreter.*no such file`, doctor: `interpreter`,
		},
		"a model that is missing on all workers": {
			yaml:    "rewards:\n  judge: {reward_functions: {read: {path: \"builtin://ocr\", required: true, reader: ppocr}}}\n",
			serve:   []string{"reward.num_workers=0", "++queue.nats_listen=127.0.0.1:0"},
			workers: []map[string]string{{"REWARDLOOP_MODELS": filepath.Join(t.TempDir(), "nothing")}},
			says:    `worker w1-w0.*model ppocr-v4-mobile is not in .*rewardloop models pull`,
		},
	}
}

// Whoever looks at any of the log, /readyz, /v1/pending, the page and doctor reads the cause.
func TestEveryCauseIsNamedWhereverPeopleLook(t *testing.T) {
	t.Parallel()
	for name, c := range causes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.start(t)
			if c.happens != nil {
				c.happens(t, s.dir)
			}
			cl, err := client.Dial(t.Context(), client.Config{URL: "ws://" + s.addr, Run: "r", Reward: "judge"})
			require.NoError(t, err)
			t.Cleanup(func() { _ = cl.Close() })
			file, _ := drawing(t, 1)
			_, err = cl.Submit(t.Context(), &rewards.Sample{
				ID: "s", Prompt: "a cat", Response: "an answer", GroundTruth: []byte(`"cat"`),
				Media: []*rewards.Media{{Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Shape: []int{len(file)}, Data: file}},
			}, 0)
			require.NoError(t, err)
			begun := time.Now()
			pattern := regexp.MustCompile(c.says)
			look := func(where, pattern string, said func() string) {
				t.Helper()
				text := ""
				for !regexp.MustCompile(pattern).MatchString(text) {
					require.Less(t, time.Since(begun), 3*within, "%s does not name the cause %q:\n%s\nthe log:\n%s", where, pattern, text, s.stderr)
					time.Sleep(50 * time.Millisecond)
					text = said()
				}
				t.Logf("%s after %v: %s", where, time.Since(begun).Round(10*time.Millisecond), regexp.MustCompile(pattern).FindString(text))
			}
			for _, path := range []string{"/readyz?reward=judge", "/v1/pending", "/?plain"} {
				look(path, pattern.String(), func() string { return s.get(t, path) })
			}
			look("the log", pattern.String(), s.stderr.String)
			doctor := c.doctor
			if doctor == "" {
				doctor = c.says
			}
			look("doctor", doctor, func() string {
				got := call(t, "", "doctor", "-c", filepath.Join(s.dir, "cfg.yaml"), "server.listen="+s.addr)
				return got.stdout
			})
		})
	}
}

// start starts the server and its workers and returns when they serve.
func (c cause) start(t *testing.T) *troubledServer {
	t.Helper()
	s := &troubledServer{dir: t.TempDir(), addr: freePort(t)}
	for name, text := range c.files {
		require.NoError(t, os.Chmod(put(t, s.dir, name, []byte(text)), 0o700))
	}
	put(t, s.dir, "cfg.yaml", []byte(c.yaml+"reward: {num_workers: 2, reward_functions: {jpeg: {path: \"builtin://jpeg_incompressibility\", required: true}}}\n"))
	s.process = start(t, s.dir, nil, nil, append([]string{"serve", "-c", "cfg.yaml", "--listen", s.addr}, c.serve...)...)
	s.stderr.await(t, "msg=serving")
	for i, env := range c.workers {
		nats := regexp.MustCompile(`nats=(\S+)`).FindStringSubmatch(s.stderr.String())
		require.NotNil(t, nats, s.stderr)
		for k, v := range env {
			t.Logf("worker %d: %s=%s", i+1, k, v)
		}
		w := startWith(t, s.dir, env, "worker", "-c", "cfg.yaml", "--join", "nats://"+nats[1], "--name", fmt.Sprintf("w%d", i+1), "reward.num_workers=1")
		w.stderr.await(t, "the worker accepts samples")
		s.others = append(s.others, w)
	}
	return s
}

// startWith is start with some of the environment set otherwise.
func startWith(t *testing.T, dir string, env map[string]string, args ...string) *process {
	t.Helper()
	set := os.Environ()
	for k, v := range env {
		set = append(set, k+"="+v)
	}
	return startIn(t, dir, set, nil, nil, args...)
}

// get returns what the server answers.
func (s *troubledServer) get(t *testing.T, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.addr+path, http.NoBody)
	require.NoError(t, err)
	if path == "/?plain" {
		req.Header.Set("Accept", "text/html")
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return strings.ReplaceAll(strings.ReplaceAll(string(b), "&#34;", `"`), `\"`, `"`)
}
