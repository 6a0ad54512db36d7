package fleet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/testkit/netlab"
)

// Config configures a Fleet.
type Config struct {
	// Binary is the path of the rewardloop program. The environment variable REWARDLOOP_BIN
	// overrides it.
	Binary string
	// NATSServer is the path of the program that Broker starts; see the function NATSServer. It is
	// only needed for Broker.
	NATSServer string
	// Lab holds the hosts, if there are any. Processes without a host listen on its bridge.
	Lab *netlab.Lab
	// Lease is queue.lease. The default is 6 s.
	Lease time.Duration
	// Replicas is queue.replicas. The default is 1.
	Replicas int
	// Places is how many samples a worker scores at the same time. The default is 8.
	Places int
	// Proxied puts a netlab.Proxy in front of each gateway and each broker; Way returns it. It does
	// not work for a cluster, whose members announce their real addresses.
	Proxied bool
	// Delay is the delay of each of these proxies and of the clients' proxies, in each direction. A
	// Delay implies Proxied.
	Delay time.Duration
	// ScoreLeast and ScoreMost are the limits of the duration of a scoring. The defaults are 100
	// and 300 ms.
	ScoreLeast, ScoreMost time.Duration
	// Durable gives each gateway a spool.
	Durable bool
	// SpoolDir is the folder of the spool if there is only one gateway. The default is a folder in
	// that of the fleet.
	SpoolDir string
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Binary = cmp.Or(os.Getenv("REWARDLOOP_BIN"), c.Binary)
	c.Lease = cmp.Or(c.Lease, 6*time.Second)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.Places = cmp.Or(c.Places, 8)
	c.ScoreLeast = cmp.Or(c.ScoreLeast, 100*time.Millisecond)
	c.ScoreMost = max(cmp.Or(c.ScoreMost, 300*time.Millisecond), c.ScoreLeast)
	return c
}

// hostOf is where a process runs; nil: in the test's own network.
type hostOf = *netlab.Host

// Fleet holds the processes of one test. Its methods must be called by the test's goroutine.
type Fleet struct {
	t          testing.TB
	cfg        Config
	dir        string
	wg         sync.WaitGroup
	scorer     *scorer
	scorerAddr string // on the loopback of each host
	scoring    map[hostOf]bool
	processes  []*Process
	brokers    []*broker
	ways       map[string]*netlab.Proxy // by the name of what is behind them
	nats       string                   // URLs, separated by commas
	lives      int                      // calls of Lives
	weight     int                      // of the reward's one component, which its score does not show
}

// New writes the configuration and starts no processes.
func New(t testing.TB, cfg Config) *Fleet {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	cfg = cfg.WithDefaults()
	f := &Fleet{t: t, cfg: cfg, dir: t.TempDir(), scoring: map[hostOf]bool{}, ways: map[string]*netlab.Proxy{}}
	t.Cleanup(f.wg.Wait)
	f.scorer = newScorer(t, cfg.ScoreLeast, cfg.ScoreMost)
	f.scorerAddr = "127.0.0.1:" + strconv.Itoa(freePort(t, "127.0.0.1"))
	f.write("token", "fleet-token-"+strconv.FormatUint(rand.Uint64(), 36)) //nolint:gosec // opens this test's server only
	f.configure()
	t.Cleanup(func() {
		if t.Failed() {
			quote(t, f.processes)
		}
		for _, p := range f.processes {
			p.end()
		}
	})
	return f
}

// aloneWorkers are those of Alone.
const aloneWorkers = 2

func (f *Fleet) configure() {
	f.t.Helper()
	f.write("alone.yaml", f.yaml(aloneWorkers, false))
	f.write("gateway.yaml", f.yaml(0, true))
	f.write("worker.yaml", f.yaml(1, true))
}

// Reload changes the weights in the configuration and makes every running process read it again.
// The scores do not change.
func (f *Fleet) Reload() {
	f.t.Helper()
	f.weight++
	f.configure()
	for _, p := range f.processes {
		if p.ready != nil && strings.HasSuffix(p.bin, filepath.Base(f.cfg.Binary)) && p.runs() {
			p.Signal(syscall.SIGHUP)
		}
	}
}

func (f *Fleet) yaml(workers int, network bool) string {
	queue := ""
	if network {
		queue = fmt.Sprintf("queue: {lease: %v, replicas: %d}\n", f.cfg.Lease, f.cfg.Replicas)
	}
	return queue + fmt.Sprintf(`loop:
  sample_timeout: 2m
  drain_timeout: 20s
reward:
  num_workers: %d
  concurrency: %d
  aggregation: weighted_mean
  reward_functions:
    checksum:
      weight: %d
      path: http://%s
      protocol: json
      request: {id: "{id}", file: "{image_b64}"}
      score_path: score
      concurrency: 256
`, workers, f.cfg.Places*max(workers, 1), max(f.weight, 1), f.scorerAddr)
}

func (f *Fleet) write(name, text string) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.file(name), []byte(text), 0o600))
}

func (f *Fleet) file(name string) string { return filepath.Join(f.dir, name) }

// ip is where processes on a host are reached.
func (f *Fleet) ip(h hostOf) string {
	switch {
	case h != nil:
		return h.IP.String()
	case f.cfg.Lab != nil:
		return f.cfg.Lab.IP().String()
	}
	return "127.0.0.1"
}

// Way returns the proxy between workers and a gateway ("g1"), or between all processes and a broker
// ("nats1", or "g1/nats" for the broker in a gateway). It needs Config.Proxied.
func (f *Fleet) Way(name string) *netlab.Proxy {
	f.t.Helper()
	require.Contains(f.t, f.ways, name, "fleet: Config.Proxied puts proxies between processes")
	return f.ways[name]
}

// way returns where others reach an address: at a proxy, if there are to be any.
func (f *Fleet) way(name, addr string) string {
	f.t.Helper()
	if !f.cfg.Proxied && f.cfg.Delay == 0 {
		return addr
	}
	p := netlab.NewProxy(f.t, net.JoinHostPort(f.ip(nil), "0"), addr)
	p.Latency(netlab.Up, f.cfg.Delay)
	p.Latency(netlab.Down, f.cfg.Delay)
	f.ways[name] = p
	return p.Addr()
}

// address is a free one on a host.
func (f *Fleet) address(h hostOf) string {
	f.t.Helper()
	ip := f.ip(h)
	if h != nil { // nobody else lives there
		return net.JoinHostPort(ip, strconv.Itoa(nextPort()))
	}
	return net.JoinHostPort(ip, strconv.Itoa(freePort(f.t, ip)))
}

// Alone starts a gateway with two workers in the same process, on this host, for comparison with a
// fleet.
func (f *Fleet) Alone(name string) *Process {
	f.t.Helper()
	f.listen(nil)
	addr := f.address(nil)
	args := []string{"serve", "-c", f.file("alone.yaml"), "--listen", addr, "--token-file", f.file("token")}
	return f.add(&Process{Name: name, Addr: addr, bin: f.cfg.Binary, args: append(args, f.durable(name)...), workers: aloneWorkers, ready: serves})
}

func serves(p *Process) bool { return p.log.says("msg=serving") }

// Gateway starts `rewardloop serve` on a host; nil means no host. Without a Broker, the gateway is
// also the broker for the workers and gateways that are started later.
func (f *Fleet) Gateway(name string, h hostOf) *Process {
	f.t.Helper()
	addr := f.address(h)
	args := []string{
		"serve", "-c", f.file("gateway.yaml"), "--listen", addr, "--token-file", f.file("token"),
		"--name", name, "--advertise", "ws://" + f.way(name, addr),
	}
	if f.nats == "" {
		at := f.address(h)
		f.nats = "nats://" + f.way(name+"/nats", at)
		args = append(args, "--nats-listen", at)
	} else {
		args = append(args, "--nats", f.nats)
	}
	return f.add(&Process{Name: name, Addr: addr, host: h, bin: f.cfg.Binary, args: append(args, f.durable(name)...), ready: serves})
}

// Worker starts `rewardloop worker` on a host (nil means no host), and returns when it accepts
// samples.
func (f *Fleet) Worker(name string, h hostOf) *Process {
	f.t.Helper()
	f.listen(h)
	args := []string{"worker", "-c", f.file("worker.yaml"), "--join", f.nats, "--name", name}
	return f.add(&Process{Name: name, host: h, bin: f.cfg.Binary, args: args, workers: 1, ready: func(p *Process) bool {
		return p.log.says(`"event":"ready"`)
	}})
}

// add starts a process of the fleet.
func (f *Fleet) add(p *Process) *Process {
	f.t.Helper()
	require.NotEmpty(f.t, p.bin, "fleet: name the program in Config.Binary or REWARDLOOP_BIN")
	p.f = f
	f.processes = append(f.processes, p)
	p.Start()
	return p
}

// ports hands out ports below those the kernel gives to outgoing connections, so
// that a process finds its own free when it comes back.
var ports = struct { //nolint:gochecknoglobals // ports are the machine's
	sync.Mutex
	next int
}{next: 20000 + rand.IntN(8000)} //nolint:gosec // any will do

func nextPort() int {
	ports.Lock()
	defer ports.Unlock()
	ports.next++
	if ports.next > 32000 {
		ports.next = 20000
	}
	return ports.next
}

// freePort is one that nobody listens on.
func freePort(t testing.TB, ip string) int {
	t.Helper()
	for range 1000 {
		port := nextPort()
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), "tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
		if err == nil {
			require.NoError(t, l.Close())
			return port
		}
	}
	t.Fatalf("no port of %s from 20000 to 32000 is free", ip)
	return 0
}

// NATSServer builds nats-server from the module that this module requires, and returns its path.
// The program is removed when the test ends.
func NATSServer(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it builds nats-server")
	}
	bin := filepath.Join(t.TempDir(), "nats-server")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/nats-io/nats-server/v2").CombinedOutput() //nolint:gosec // a constant command
	require.NoError(t, err, "building nats-server: %s", strings.TrimSpace(string(out)))
	return bin
}

// durable are the overrides that make a gateway durable, with a folder of its own.
func (f *Fleet) durable(name string) []string {
	if !f.cfg.Durable {
		return nil
	}
	return []string{"++queue.durable=true", "++queue.spool_dir=" + cmp.Or(f.cfg.SpoolDir, f.file("spool-"+name))}
}

// Get sends a GET request to a gateway with the fleet's token, and returns the answer. The status
// is 0 if there is no answer.
func (f *Fleet) Get(p *Process, path string) (status int, body string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Addr+path, nil)
	require.NoError(f.t, err)
	token, err := os.ReadFile(f.file("token"))
	require.NoError(f.t, err)
	req.Header.Set("Authorization", "Bearer "+string(token))
	req.Header.Set("Accept", "text/html, */*") // of the page, not of a list of routes
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(f.t, err)
	return r.StatusCode, string(b)
}

// Await waits until holds returns true, and fails the test if this takes too long.
func (f *Fleet) Await(what string, holds func() bool) {
	f.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-limit.C:
			require.Fail(f.t, "not within "+patience.String()+": "+what)
		}
	}
}
