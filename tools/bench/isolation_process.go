package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/tools/bench/cputime"
	"github.com/rewardloop/rewardloop/wire"
)

// patience bounds the start of a process, politeness its end before it is killed.
const (
	patience   = 60 * time.Second
	politeness = 10 * time.Second
)

// program is a process that the bench has started. It ends with the bench, whose pipe is its
// standard input.
type program struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer
	said   *saying
	exited chan struct{} // closed when the process has ended
}

// start starts a program in a folder. It does not end with the context: stop ends it.
func start(ctx context.Context, name, folder, bin string, args ...string) (*program, error) {
	p := &program{name: name, said: &saying{}, exited: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), bin, args...) //nolint:gosec // who runs the bench names it
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = folder, p.said, p.said
	p.cmd.WaitDelay = time.Second // a child of the child may have the pipe
	endWithUs(p.cmd)
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go func() { // ends with the process
		// Linux sends the signal of endWithUs when the thread ends that forked.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// await returns the first group of the pattern once the program has said it.
func (p *program) await(ctx context.Context, what *regexp.Regexp) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if m := what.FindStringSubmatch(p.said.String()); m != nil {
			return m[1], nil
		}
		select {
		case <-p.exited:
			return "", fmt.Errorf("%s ended with %v before it was ready:\n%s", p.name, p.cmd.ProcessState, p.said)
		default:
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return "", fmt.Errorf("%s is not ready: %w:\n%s", p.name, err, p.said)
		}
	}
}

// stop asks the program to end, and kills it if it has not after politeness.
func (p *program) stop() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.exited:
	case <-time.After(politeness):
		_ = p.cmd.Process.Kill()
		<-p.exited // WaitDelay bounds it
	}
}

// saying keeps the beginning and the end of what a program says.
type saying struct {
	mu        sync.Mutex
	head, end []byte // guarded by mu
}

// sayingBytes of the beginning are kept, and as many of the end.
const sayingBytes = 16 << 10

// Write implements io.Writer.
func (s *saying) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := min(sayingBytes-len(s.head), len(b))
	s.head = append(s.head, b[:room]...)
	s.end = append(s.end, b[room:]...)
	s.end = s.end[max(0, len(s.end)-sayingBytes):]
	return len(b), nil
}

func (s *saying) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(bytes.TrimSpace(append(bytes.Clone(s.head), s.end...)))
}

// layout is where the workers are.
type layout struct {
	name string
	// processes of workers, of one worker each; 0: the workers are in the process of serve.
	processes int
}

func layouts() []layout {
	return []layout{{name: "embedded"}, {name: "remote", processes: isolationProcesses}}
}

// scoring is how many processes of a deployment have workers.
func (l layout) scoring() int { return max(l.processes, 1) }

// rewardSetting is the configuration of a deployment.
type rewardSetting struct {
	yaml string
	// files are those of one program beside functions.py: bad and slow tell it where it runs.
	files map[string]map[string]string
}

// deployment is a real server with its workers: processes of the program rewardloop.
type deployment struct {
	folder   string
	addr     string // of the gateway
	programs []*program
}

// rewardloopProgram is bin/rewardloop, or what REWARDLOOP_BIN names.
func rewardloopProgram(root string) (string, error) {
	bin := cmp.Or(os.Getenv("REWARDLOOP_BIN"), filepath.Join(root, "bin", "rewardloop"))
	if _, err := os.Stat(bin); err != nil {
		return "", fmt.Errorf("%w: run make build, or name the program in REWARDLOOP_BIN", err)
	}
	return bin, nil
}

// What the programs say when they serve.
var (
	saysServing = regexp.MustCompile(`msg=serving address=(\S+)`)
	saysJoin    = regexp.MustCompile(`msg="workers can connect" nats=(\S+)`)
	saysReady   = regexp.MustCompile(`"event":"(ready)"`)
)

// deploy starts a server and its workers, and returns when all of them serve.
func deploy(ctx context.Context, root string, l layout, s rewardSetting) (_ *deployment, err error) {
	d := &deployment{}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	bin, err := rewardloopProgram(root)
	if err != nil {
		return nil, err
	}
	if d.folder, err = os.MkdirTemp("", "rewardloop-isolation-"); err != nil {
		return nil, err
	}
	args := []string{
		"-c", "cfg.yaml", "--until-stdin-closes", "++pool.python.interpreter=" + interpreter(root),
		"++loop.drain_timeout=1s",
	}
	serve := append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)
	if l.processes > 0 {
		serve = append(serve, "++reward.num_workers=0", "--nats-listen", "127.0.0.1:0", "--name", "gateway")
	}
	gateway, err := d.add(ctx, root, "gateway", s, bin, serve...)
	if err != nil {
		return nil, err
	}
	if d.addr, err = gateway.await(ctx, saysServing); err != nil || l.processes == 0 {
		return d, err
	}
	nats, err := gateway.await(ctx, saysJoin)
	if err != nil {
		return nil, err
	}
	for i := range l.processes {
		name := fmt.Sprintf("w%d", i)
		join := append([]string{"worker", "--join", "nats://" + nats, "--name", name, "++reward.num_workers=1"}, args...)
		if _, err := d.add(ctx, root, name, s, bin, join...); err != nil {
			return nil, err
		}
	}
	for _, p := range d.programs[1:] {
		if _, err := p.await(ctx, saysReady); err != nil {
			return nil, err
		}
	}
	return d, d.live(ctx, l.processes)
}

// add starts a program in a folder of its own, which holds its configuration and functions.
func (d *deployment) add(ctx context.Context, root, name string, s rewardSetting, bin string, args ...string) (*program, error) {
	folder := filepath.Join(d.folder, name)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	functions, err := os.ReadFile(filepath.Join(root, "tools", "bench", "isolation", "functions.py"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"functions.py": functions, "cfg.yaml": []byte(s.yaml)}
	for file, text := range s.files[name] {
		files[file] = []byte(text)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(folder, file), text, 0o600); err != nil {
			return nil, err
		}
	}
	p, err := start(ctx, name, folder, bin, args...)
	if err == nil {
		d.programs = append(d.programs, p)
	}
	return p, err
}

// live returns when the gateway counts so many workers.
func (d *deployment) live(ctx context.Context, workers int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		all, err := d.workers(ctx)
		if err == nil && len(all) >= workers {
			return nil
		}
		if e := sleep(ctx, 20*time.Millisecond); e != nil {
			return errors.Join(fmt.Errorf("the gateway counts %d workers of %d: %w", len(all), workers, e), err)
		}
	}
}

// workers asks the gateway for its workers.
func (d *deployment) workers(ctx context.Context) ([]wire.WorkerInfo, error) {
	var answer struct{ Workers []wire.WorkerInfo }
	err := d.ask(ctx, "/v1/workers", &answer)
	return answer.Workers, err
}

// pending asks the gateway where the samples of a run are: how many by stage, and how many
// say that they are waiting for something.
func (d *deployment) pending(ctx context.Context, run string) (stages map[string]int, waiting int, err error) {
	var answer struct{ Samples []loop.PendingSample }
	err = d.ask(ctx, "/v1/pending?limit=10000", &answer)
	stages = map[string]int{}
	for _, s := range answer.Samples {
		if s.Run != run {
			continue
		}
		stages[s.Stage]++
		if strings.Contains(s.Waits, "waiting for") {
			waiting++
		}
	}
	return stages, waiting, err
}

// ask reads what the gateway says under a path.
func (d *deployment) ask(ctx context.Context, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.addr+path, http.NoBody)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(io.LimitReader(res.Body, 16<<20)).Decode(answer); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// busy is how many samples the workers have.
func (d *deployment) busy(ctx context.Context) (int, error) {
	all, err := d.workers(ctx)
	sum := 0
	for _, w := range all {
		sum += w.Busy
	}
	return sum, err
}

// use is what the programs and their Python processes have computed so far.
func (d *deployment) use() cputime.Use {
	pids := make([]int, len(d.programs))
	for i, p := range d.programs {
		pids[i] = p.cmd.Process.Pid
	}
	return cputime.Trees(pids...)
}

// ended are the programs that have ended, with their last words; nil where all of them run.
func (d *deployment) ended() error {
	var errs []error
	for _, p := range d.programs {
		select {
		case <-p.exited:
			errs = append(errs, fmt.Errorf("%s has ended with %v:\n%s", p.name, p.cmd.ProcessState, p.said))
		default:
		}
	}
	return errors.Join(errs...)
}

// close ends the programs, and returns how many of their Python processes were still there
// politeness later and were killed.
func (d *deployment) close() (left int) {
	below := d.use().Descendants
	var all sync.WaitGroup
	for _, p := range d.programs {
		all.Go(p.stop)
	}
	all.Wait()
	lives := func(c cputime.Descendant) bool { return c.Lives() }
	for end := time.Now().Add(politeness); slices.ContainsFunc(below, lives) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	for _, c := range below {
		if c.Lives() {
			left++
			if p, err := os.FindProcess(c.PID); err == nil {
				_ = p.Kill()
			}
		}
	}
	if d.folder != "" {
		_ = os.RemoveAll(d.folder) // in the folder for such files
	}
	return left
}
