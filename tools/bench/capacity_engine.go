package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// timedEngine answers chat completions after as many seconds as the question says, so many at
// a time, and measures how long it took for each. It can be killed and come back where it was.
type timedEngine struct {
	addr   string
	places chan struct{}
	slow   float64 // times as long as asked; 0: once

	mu     sync.Mutex
	took   map[int]float64 // seconds in a place, by call; guarded by mu
	cut    string          // the key of those whose connections are reset; guarded by mu
	srv    *http.Server    // nil while it is down; guarded by mu
	served chan struct{}   // closed when the listener has ended; guarded by mu
}

func newTimedEngine(ctx context.Context, places int) (*timedEngine, error) {
	e := &timedEngine{addr: "127.0.0.1:0", places: make(chan struct{}, places), took: map[int]float64{}}
	return e, e.start(ctx)
}

func (e *timedEngine) url() string { return "http://" + e.addr }

// start listens, where it has listened before.
func (e *timedEngine) start(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", e.addr)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.addr = l.Addr().String()
	srv, served := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: e}, make(chan struct{})
	e.srv, e.served = srv, served
	go func() { // ends with kill
		defer close(served)
		_ = srv.Serve(l) // always an error: that of the end
	}()
	return nil
}

// kill ends the listener and all connections, as the end of its process does.
func (e *timedEngine) kill() {
	e.mu.Lock()
	srv, served := e.srv, e.served
	e.srv = nil
	e.mu.Unlock()
	if srv != nil {
		_ = srv.Close()
		<-served
	}
}

// reset makes the engine reset the connections of those who come with this key; "": of nobody.
func (e *timedEngine) reset(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cut = key
}

// question is what a sample's prompt asks for.
var question = regexp.MustCompile(`call (\d+) takes ([0-9.]+)`)

// prompt is that of a call.
func prompt(call int, takes time.Duration) string {
	return fmt.Sprintf("call %d takes %v", call, takes.Seconds())
}

const engineAnswer = `{"id":"x","object":"chat.completion","model":"stub","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant",` +
	`"content":"<score>1</score>"}}],"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}`

// ServeHTTP implements http.Handler.
func (e *timedEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil || e.isCut(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	m := question.FindSubmatch(body)
	if m == nil { // a look at its health
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"stub","object":"model"}]}`)
		return
	}
	call, _ := strconv.Atoi(string(m[1]))
	seconds, _ := strconv.ParseFloat(string(m[2]), 64)
	select {
	case e.places <- struct{}{}:
	case <-r.Context().Done():
		return
	}
	defer func() { <-e.places }()
	seconds *= max(e.slow, 1)
	begun := time.Now()
	if sleep(r.Context(), time.Duration(seconds*float64(time.Second))) != nil || e.isCut(w, r) {
		return
	}
	_, _ = io.Copy(w, bytes.NewReader([]byte(engineAnswer)))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.took[call] = time.Since(begun).Seconds()
}

// isCut resets the connection of one that is cut off.
func (e *timedEngine) isCut(w http.ResponseWriter, r *http.Request) bool {
	e.mu.Lock()
	cut := e.cut != "" && r.Header.Get("Authorization") == "Bearer "+e.cut
	e.mu.Unlock()
	if !cut {
		return false
	}
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.SetLinger(0)
		}
		_ = conn.Close()
	}
	return true
}

// times are the service times of calls from one number on.
func (e *timedEngine) times(from, n int) ([]float64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]float64, n)
	for i := range out {
		s, ok := e.took[from+i]
		if !ok {
			return nil, fmt.Errorf("the engine was never asked for call %d", from+i)
		}
		out[i] = s
	}
	return out, nil
}

// asked is how many calls it has answered.
func (e *timedEngine) asked() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.took)
}
