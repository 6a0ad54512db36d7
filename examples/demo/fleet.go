package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"
)

// fleet is a gateway and workers in processes of their own. They end with this process: its
// pipes are their standard inputs.
type fleet struct {
	program, dir string
	addr, nats   string
	gateway      *child
	workers      []*child
}

// child is one of the processes.
type child struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer
	said   *said
	exited chan struct{}
}

// childPatience is how long a process may take until it serves, and until it has ended.
const childPatience = 30 * time.Second

// What the processes say once they serve.
var (
	saysJoin    = regexp.MustCompile(`workers can connect" nats=(\S+)`)
	saysServing = regexp.MustCompile(`msg=serving address=(\S+)`)
	saysTaking  = regexp.MustCompile(`msg="(the worker accepts samples)"`)
)

// newFleet starts a gateway and two workers.
func newFleet(ctx context.Context, program, dir string) (*fleet, error) {
	f := &fleet{program: program, dir: dir}
	var err error
	f.gateway, err = f.start("gateway", "serve", "-c", "demo.yaml", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0")
	if err == nil {
		f.addr, err = f.gateway.await(ctx, saysServing)
	}
	if err == nil {
		f.nats, err = f.gateway.await(ctx, saysJoin)
	}
	for range 2 {
		if err == nil {
			err = f.worker(ctx)
		}
	}
	if err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

// worker starts one more.
func (f *fleet) worker(ctx context.Context) error {
	name := fmt.Sprintf("worker%d", len(f.workers)+1)
	w, err := f.start(name, "worker", "-c", "demo.yaml", "--join", "nats://"+f.nats, "--name", name, "reward.num_workers=1")
	if err != nil {
		return err
	}
	f.workers = append(f.workers, w)
	_, err = w.await(ctx, saysTaking)
	return err
}

func (f *fleet) start(name string, args ...string) (*child, error) {
	c := &child{name: name, cmd: exec.Command(f.program, append(args, "--until-stdin-closes")...), said: &said{}, exited: make(chan struct{})} //nolint:gosec,noctx // this program, which ends with its input
	c.cmd.Dir, c.cmd.Stdout, c.cmd.Stderr, c.cmd.WaitDelay = f.dir, c.said, c.said, time.Second
	c.cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+f.dir) // the keys of its NATS go with the folder
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() { // ends with the process
		_ = c.cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

// stop ends all processes.
func (f *fleet) stop() {
	for _, c := range f.workers {
		c.end()
	}
	if f.gateway != nil {
		f.gateway.end()
	}
}

// said is what the processes said, each under its name.
func (f *fleet) said() string {
	var text strings.Builder
	for _, c := range append([]*child{f.gateway}, f.workers...) {
		fmt.Fprintf(&text, "%s\n%s", c.name, c.said)
	}
	return text.String()
}

// kill ends a process as a crash does, and returns when it has ended.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.exited
}

// end has a process end by itself, or kills it.
func (c *child) end() {
	_ = c.stdin.Close()
	t := time.NewTimer(childPatience)
	defer t.Stop()
	select {
	case <-c.exited:
	case <-t.C:
		c.kill()
	}
}

// await returns the first group of the pattern once the process has said it.
func (c *child) await(ctx context.Context, pattern *regexp.Regexp) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, childPatience, errors.New("the process was not ready in time"))
	defer cancel()
	for {
		if m := pattern.FindStringSubmatch(c.said.String()); m != nil {
			return m[1], nil
		}
		select {
		case <-c.exited:
			return "", fmt.Errorf("%s ended before it served:\n%s", c.name, c.said)
		default:
		}
		if wait(ctx, 10*time.Millisecond) != nil {
			return "", fmt.Errorf("%s does not serve: %w\n%s", c.name, context.Cause(ctx), c.said)
		}
	}
}

// said keeps the beginning of what a process says.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

const maxSaid = 64 << 10

// Write implements io.Writer.
func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.Write(p[:min(len(p), maxSaid-min(s.b.Len(), maxSaid))])
	return len(p), nil
}

// String returns it.
func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
