package main

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// stub is a judge with a bad habit: it counts the seasons that each candidate names, and
// where they differ by one at most it prefers whoever it was shown first. It speaks what
// vLLM and SGLang speak, as far as it is asked.
type stub struct {
	asked atomic.Int64 // questions so far
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type choice struct {
	FinishReason string  `json:"finish_reason"`
	Message      message `json:"message"`
}

type completion struct {
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
}

// serveJudge serves until the function it returns is called.
func serveJudge(l net.Listener, s *stub) (stop func()) {
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() { // ends with Close
		defer close(done)
		_ = server.Serve(l) // it says that it was closed
	}()
	return func() {
		_ = server.Close()
		<-done
	}
}

// ServeHTTP answers POST /v1/chat/completions.
func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var question struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&question)
	if err != nil || len(question.Messages) == 0 || r.URL.Path != "/v1/chat/completions" {
		http.Error(w, "want a chat of texts", http.StatusBadRequest)
		return
	}
	s.asked.Add(1)
	said := completion{Model: question.Model, Choices: []choice{{
		FinishReason: "stop",
		Message:      message{"assistant", verdict(question.Messages[len(question.Messages)-1].Content)},
	}}}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(said) //nolint:errchkjson // who has gone is not told
}

// verdict reads the question of builtin://pairwise.
func verdict(question string) string {
	_, rest, _ := strings.Cut(question, "## Candidate A\n")
	a, rest, _ := strings.Cut(rest, "## Candidate B\n")
	b, _, _ := strings.Cut(rest, "## Your task\n")
	better := "A"
	if seasons(b) > seasons(a)+1 {
		better = "B"
	}
	return "I have read both. <result>" + better + "</result>"
}

// seasons is how many seasons a text names.
func seasons(text string) int {
	n := 0
	for _, s := range []string{"spring", "summer", "autumn", "winter"} {
		if strings.Contains(strings.ToLower(text), s) {
			n++
		}
	}
	return n
}
