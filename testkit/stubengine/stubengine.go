// Package stubengine is a model server that misbehaves on demand, for tests of packages that start
// engines.
package stubengine

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Main must be called at the beginning of TestMain with os.Args[1:]. If args are the command line
// of an engine that is started as a Python module ("-m vllm.entrypoints…") or by its own command
// ("serve MODEL …"), Main serves and then exits the process. Otherwise Main returns.
func Main(args []string) {
	switch {
	case len(args) > 2 && args[0] == "serve" && args[2][0] == '-':
		args = append([]string{"-m", "vllm", "--model", args[1]}, args[2:]...)
	case len(args) < 2 || args[0] != "-m":
		return
	}
	fmt.Println("stub engine:", args)
	if err := serve(args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "stub engine:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// stub is a running one.
type stub struct {
	name      string
	hangAfter int64 // answers after which nothing is answered; below 0: never
	noScores  bool  // log probabilities are left out
	slow      time.Duration
	flap      time.Duration // how long it lives once it is ready; 0: for ever

	answers  atomic.Int64
	sleeping atomic.Bool
	wakeDies bool
	profiles string   // where its profiles go; "": it makes none
	memory   *os.File // its lock is the memory of a card; nil: it needs none
}

func serve(args []string) error {
	f := flag.NewFlagSet("stub engine", flag.ContinueOnError)
	var s stub
	model := f.String("model", "", "what it says it has loaded")
	f.StringVar(&s.name, "served-model-name", "", "the name that its requests have to have")
	port, host := f.String("port", "", ""), f.String("host", "", "")
	_ = f.String("tensor-parallel-size", "", "")
	start := f.Duration("stub-start", 0, "how long it takes to start")
	f.DurationVar(&s.flap, "stub-flap", 0, "how long it lives once it is ready")
	f.DurationVar(&s.slow, "stub-slow", 0, "how long an answer takes")
	f.Int64Var(&s.hangAfter, "stub-hang-after", -1, "answers after which nothing is answered")
	f.BoolVar(&s.noScores, "stub-no-logprobs", false, "leaves log probabilities out")
	f.BoolVar(&s.wakeDies, "stub-dies-on-wake", false, "ends when it is woken")
	other := f.String("stub-name", "", "the name that its requests have to have in truth")
	stubborn := f.Bool("stub-ignores-sigterm", false, "ignores SIGTERM")
	orphans := f.Bool("stub-leaves-a-process", false, "starts a process in a session of its own")
	child := f.Bool("stub-starts-a-process", false, "starts a process of its own process group, as vLLM does")
	memory := f.String("stub-memory", "", "a file whose lock is the memory of a card: it is taken at the start and at a wake, and a line is written into FILE.conflict where somebody has it")
	profile := f.String("profiler-config", "", "vLLM's, in JSON")
	code := f.Int("stub-exits", -1, "the exit code with which it ends instead of starting")
	if err := f.Parse(known(f, args)); err != nil {
		return err
	}
	if *code >= 0 {
		fmt.Fprintln(os.Stderr, "stub engine: RuntimeError: no card has room for", *model)
		os.Exit(*code)
	}
	if *other != "" {
		s.name = *other
	}
	if *stubborn {
		signal.Ignore(syscall.SIGTERM)
	}
	if *orphans || *child {
		left := exec.CommandContext(context.Background(), "sleep", "1000")
		if *orphans {
			left = exec.CommandContext(context.Background(), "setsid", "sleep", "1000")
		}
		if err := left.Start(); err != nil {
			return err
		}
		fmt.Println("left behind:", left.Process.Pid)
	}
	if *memory != "" {
		var err error
		if s.memory, err = os.OpenFile(*memory, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
			return err
		}
		if err := s.takeMemory(); err != nil {
			return err
		}
	}
	if *profile != "" {
		var settings struct {
			Folder string `json:"torch_profiler_dir"`
		}
		if err := json.Unmarshal([]byte(*profile), &settings); err != nil {
			return err
		}
		s.profiles = settings.Folder
	}
	time.Sleep(*start)
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(*host, *port))
	if err != nil {
		return err
	}
	if s.flap > 0 {
		time.AfterFunc(s.flap, func() { os.Exit(9) })
	}
	return http.Serve(l, s.routes()) //nolint:gosec // a test's server on the loopback
}

// known are the arguments that f has, with their values; an engine has a hundred more.
func known(f *flag.FlagSet, args []string) (out []string) {
	take := false
	for _, a := range args {
		name, isFlag := strings.CutPrefix(a, "--")
		if isFlag {
			name, _, _ = strings.Cut(name, "=")
			take = f.Lookup(name) != nil
		}
		if take {
			out = append(out, a)
		}
	}
	return out
}

func (s *stub) routes() http.Handler {
	m := http.NewServeMux()
	handle := func(pattern string, h http.HandlerFunc) {
		m.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if s.hangAfter >= 0 && s.answers.Load() >= s.hangAfter {
				<-r.Context().Done()
				return
			}
			h(w, r)
		})
	}
	handle("GET /health", func(http.ResponseWriter, *http.Request) {})
	handle("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"object": "list", "data": []any{map[string]any{"id": s.name}}})
	})
	handle("POST /v1/chat/completions", s.chat)
	handle("POST /sleep", func(http.ResponseWriter, *http.Request) {
		s.sleeping.Store(true)
		if s.memory != nil {
			_ = unlock(s.memory)
		}
	})
	for _, what := range []string{"start", "stop"} {
		handle("POST /"+what+"_profile", func(w http.ResponseWriter, _ *http.Request) { s.profile(w, what) })
	}
	handle("POST /wake_up", func(http.ResponseWriter, *http.Request) {
		if s.wakeDies {
			os.Exit(8)
		}
		if err := s.takeMemory(); err != nil {
			fmt.Fprintln(os.Stderr, "stub engine:", err)
			os.Exit(7)
		}
		s.sleeping.Store(false)
	})
	return m
}

// profile writes a line for each profile that begins or ends, with how many questions were answered before.
func (s *stub) profile(w http.ResponseWriter, what string) {
	fmt.Println("stub engine: profile", what, "after", s.answers.Load())
	if s.profiles == "" {
		return
	}
	if err := os.MkdirAll(s.profiles, 0o700); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	f, err := os.OpenFile(filepath.Join(s.profiles, "trace"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer f.Close()
	fmt.Fprintln(f, what, s.answers.Load())
}

// takeMemory takes the memory of the card, or says who has it.
func (s *stub) takeMemory() error {
	if s.memory == nil {
		return nil
	}
	err := lock(s.memory)
	if err == nil {
		return nil
	}
	conflict, open := os.OpenFile(s.memory.Name()+".conflict", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if open != nil {
		return open
	}
	defer conflict.Close()
	fmt.Fprintln(conflict, "an engine starts or wakes while somebody has the memory")
	return fmt.Errorf("out of memory: %w", err)
}

// chat answers Yes to everything, with log probabilities where they are asked for.
func (s *stub) chat(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Model    string `json:"model"`
		Logprobs bool   `json:"logprobs"`
		N        int    `json:"n"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if asked.Model != s.name {
		http.Error(w, fmt.Sprintf(`{"error": {"message": "The model %q does not exist.", "code": 404}}`, asked.Model), http.StatusNotFound)
		return
	}
	if s.sleeping.Load() { // as vLLM does
		<-r.Context().Done()
		return
	}
	select {
	case <-time.After(s.slow):
	case <-r.Context().Done():
		return
	}
	s.answers.Add(1)
	choices := make([]any, max(asked.N, 1))
	for i := range choices {
		choice := map[string]any{"index": i, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": "Yes"}}
		if asked.Logprobs && !s.noScores {
			choice["logprobs"] = map[string]any{"content": []any{map[string]any{
				"token": "Yes", "logprob": -0.1, "bytes": []int{89, 101, 115},
				"top_logprobs": []any{map[string]any{"token": "Yes", "logprob": -0.1, "bytes": []int{89, 101, 115}}, map[string]any{"token": "No", "logprob": -2.4, "bytes": []int{78, 111}}},
			}}}
		}
		choices[i] = choice
	}
	answer(w, map[string]any{
		"id": "stub", "object": "chat.completion", "model": s.name, "choices": choices,
		"usage": map[string]int{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
	})
}

func answer(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		fmt.Fprintln(os.Stderr, "stub engine: the answer:", err)
	}
}
