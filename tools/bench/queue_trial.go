package main

import (
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/cputime"
	"github.com/rewardloop/rewardloop/tools/bench/report"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// queueSize is how large a fleet is, and how long it is looked at.
type queueSize struct {
	workers, profiles, places int
	settle, lasting           time.Duration
}

// sizeOf is the fleet of a run. A slow pull lives for 40 s at most: after 42 s all queues are as
// they stay.
func sizeOf(o Options) queueSize {
	if o.Quick {
		return queueSize{workers: 3, profiles: 4, places: 5, settle: 50 * time.Millisecond, lasting: 200 * time.Millisecond}
	}
	return queueSize{workers: queueWorkers, profiles: queueProfiles, places: queuePlaces, settle: 42 * time.Second, lasting: max(o.Lasting, 40*time.Second)}
}

// What nats-server says when it takes clients, and where it can be looked at.
var (
	saysListening = regexp.MustCompile(`Listening for client connections on (\S+)`)
	saysMonitor   = regexp.MustCompile(`Starting http monitor on (\S+)`)
)

// newBroker builds the nats-server that the project's module names, and starts it in a folder.
func newBroker(ctx context.Context, root, folder string) (p *program, client, monitor string, err error) {
	bin := filepath.Join(folder, "nats-server")
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/nats-io/nats-server/v2") //nolint:gosec // a constant command
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, "", "", fmt.Errorf("building nats-server: %w: %s", err, strings.TrimSpace(string(out)))
	}
	conf := filepath.Join(folder, "nats.conf")
	text := fmt.Sprintf("listen: \"127.0.0.1:-1\"\nhttp: \"127.0.0.1:-1\"\nping_interval: \"5s\"\nping_max: 2\njetstream {store_dir: %q}\n", folder)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, "", "", err
	}
	if p, err = start(ctx, "nats-server", folder, bin, "-c", conf); err != nil {
		return nil, "", "", err
	}
	monitor, err = p.await(ctx, saysMonitor)
	if err == nil {
		client, err = p.await(ctx, saysListening)
	}
	if err != nil {
		p.stop()
		return nil, "", "", err
	}
	return p, "nats://" + client, "http://" + monitor, nil
}

// queueFleet is a broker with workers, each with a connection of its own.
type queueFleet struct {
	size    queueSize
	folder  string
	broker  *program
	url     string
	monitor string
	members []*queue.Member
	sources []*queue.Source
	workers []*workers.Worker
}

func newQueueFleet(ctx context.Context, size queueSize) (f *queueFleet, err error) {
	f = &queueFleet{size: size}
	root, err := report.Repository()
	if err != nil {
		return f, err
	}
	if f.folder, err = os.MkdirTemp("", "rewardloop-queue-"); err != nil {
		return f, err
	}
	f.broker, f.url, f.monitor, err = newBroker(ctx, root, f.folder)
	return f, err
}

// join starts the workers: each serves all of the managers. seen may look at what they take.
func (f *queueFleet) join(ctx context.Context, managers map[string]*rewards.Manager, gateway workers.Gateway, seen func(workers.Source) workers.Source) error {
	for i := range f.size.workers {
		id := "w" + strconv.Itoa(i)
		m, err := queue.Join(ctx, queue.Config{URLs: []string{f.url}, Name: id})
		if err != nil {
			return err
		}
		f.members = append(f.members, m)
		profiles := queueServes(managers, f.size.places)
		s, err := m.NewSource(id, queuesOf(profiles))
		if err != nil {
			return err
		}
		f.sources = append(f.sources, s)
		w, err := workers.New(workers.Options{
			Config: workers.Config{ID: id}, Source: seen(s), Gateway: gateway, Profiles: profiles,
		})
		if err != nil {
			return err
		}
		w.Start(ctx)
		f.workers = append(f.workers, w)
	}
	return nil
}

// ready returns when the broker has a queue for each profile. It may have others.
func (f *queueFleet) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	queues := 0
	err := until(ctx, func() bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.monitor+"/jsz", http.NoBody)
		if err != nil {
			return false
		}
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			return false
		}
		defer func() { _ = res.Body.Close() }()
		var state struct{ Consumers int }
		if json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&state) == nil {
			queues = state.Consumers
		}
		return queues >= f.size.profiles
	})
	if err != nil {
		return fmt.Errorf("the broker has %d queues of %d: %w", queues, f.size.profiles, err)
	}
	return nil
}

// look returns the cores that processes kept busy, in their order, this process's, and those of
// everybody else.
func (f *queueFleet) look(ctx context.Context, processes ...*program) (cores []float64, own, foreign float64, err error) {
	use := func() []time.Duration {
		all := []time.Duration{cputime.Machine(), cputime.Own()}
		for _, p := range processes {
			all = append(all, cputime.Process(p.cmd.Process.Pid))
		}
		return all
	}
	before, begin := use(), time.Now()
	if err := sleep(ctx, f.size.lasting); err != nil {
		return nil, 0, 0, err
	}
	after, took := use(), time.Since(begin).Seconds()
	busy := make([]float64, len(after))
	for i := range after {
		busy[i] = (after[i] - before[i]).Seconds() / took
	}
	foreign = busy[0]
	for _, b := range busy[1:] {
		foreign -= b
	}
	for _, p := range processes {
		select {
		case <-p.exited:
			err = errors.Join(err, fmt.Errorf("%s has ended with %v:\n%s", p.name, p.cmd.ProcessState, p.said))
		default:
		}
	}
	return busy[2:], busy[1], max(foreign, 0), err
}

func (f *queueFleet) close() {
	var all sync.WaitGroup
	for _, w := range f.workers {
		all.Go(w.Stop)
	}
	all.Wait()
	for _, s := range f.sources {
		s.Disconnect()
	}
	for _, m := range f.members {
		m.Close()
	}
	if f.broker != nil {
		f.broker.stop()
	}
	if f.folder != "" {
		_ = os.RemoveAll(f.folder) // in the folder for such files
	}
}

// idleTrial is a gateway and workers with nothing to do.
type idleTrial struct {
	fleet   *queueFleet
	gateway deployment // of one program
}

// noWork is the gateway of workers that get nothing.
type noWork struct{ workers.Gateway }

func newIdleTrial(ctx context.Context, o Options) (_ Trial, err error) {
	t := &idleTrial{}
	defer func() {
		if err != nil {
			_ = t.Close()
		}
	}()
	size := sizeOf(o)
	if t.fleet, err = newQueueFleet(ctx, size); err != nil {
		return nil, err
	}
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	bin, err := rewardloopProgram(root)
	if err != nil {
		return nil, err
	}
	const entry = "{reward_functions: {size: {path: \"builtin://jpeg_compressibility\", required: true}}}\n"
	var text strings.Builder
	text.WriteString("reward: " + entry + "rewards:\n")
	managers := map[string]*rewards.Manager{}
	never := rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{}, rewards.Internal
	})
	for i := range size.profiles {
		name := "profile-" + strconv.Itoa(i)
		text.WriteString("  " + name + ": " + entry)
		if managers[name], err = rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{Key: "size", Weight: 1, Required: true, Scorer: never}}}); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(t.fleet.folder, "cfg.yaml"), []byte(text.String()), 0o600); err != nil {
		return nil, err
	}
	p, err := start(ctx, "gateway", t.fleet.folder, bin, "serve", "-c", "cfg.yaml", "--until-stdin-closes", "--listen", "127.0.0.1:0", "--nats", t.fleet.url, "--name", "gateway",
		"++reward.num_workers=0")
	if err != nil {
		return nil, err
	}
	t.gateway.programs = []*program{p}
	if t.gateway.addr, err = p.await(ctx, saysServing); err != nil {
		return nil, err
	}
	if err := t.fleet.join(ctx, managers, noWork{}, func(s workers.Source) workers.Source { return s }); err != nil {
		return nil, err
	}
	if err := errors.Join(t.gateway.live(ctx, size.workers), t.fleet.ready(ctx)); err != nil {
		return nil, err
	}
	return t, sleep(ctx, size.settle)
}

// Measure implements Trial.
func (t *idleTrial) Measure(ctx context.Context, _ int) (Readings, error) {
	cores, own, foreign, err := t.fleet.look(ctx, t.fleet.broker, t.gateway.programs[0])
	if err != nil {
		return nil, err
	}
	return Readings{"broker_cores": cores[0], "gateway_cores": cores[1], "fleet_cores": own, "foreign_cores": foreign}, nil
}

// Close implements Trial.
func (t *idleTrial) Close() error {
	t.gateway.close()
	if t.fleet != nil {
		t.fleet.close()
	}
	return nil
}

// leaseTrial is workers that hold all the samples that they can.
type leaseTrial struct {
	fleet    *queueFleet
	gateway  *queue.Queue
	text     []byte             // a sample's frame
	hold     context.Context    //nolint:containedctx // what samples wait for
	end      context.CancelFunc // of all samples
	idle     float64            // cores of the broker without samples
	extended atomic.Int64
}

func newLeaseTrial(ctx context.Context, o Options) (_ Trial, err error) {
	t := &leaseTrial{}
	t.hold, t.end = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			_ = t.Close()
		}
	}()
	size := sizeOf(o)
	if t.fleet, err = newQueueFleet(ctx, size); err != nil {
		return nil, err
	}
	msg, err := wire.Encode(&rewards.Sample{ID: "s", Response: "text"}, wire.Options{})
	if err != nil {
		return nil, err
	}
	t.text = msg.Bytes()
	if t.gateway, err = queue.Open(ctx, queue.Config{URLs: []string{t.fleet.url}, Name: "gateway"}); err != nil {
		return nil, err
	}
	waits := rewards.ScorerFunc(func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
		select {
		case <-t.hold.Done():
			return rewards.Score{Value: 1}, nil
		case <-ctx.Done():
			return rewards.Score{}, ctx.Err()
		}
	})
	manager, err := rewards.NewManager(rewards.ManagerConfig{Timeout: time.Hour, Components: []rewards.Component{{Key: "wait", Weight: 1, Required: true, Scorer: waits}}})
	if err != nil {
		return nil, err
	}
	managers := map[string]*rewards.Manager{"": manager}
	if err := t.fleet.join(ctx, managers, t, func(s workers.Source) workers.Source { return &extensions{s, &t.extended} }); err != nil {
		return nil, err
	}
	if err := until(ctx, func() bool { return len(t.gateway.Workers()) == size.workers }); err != nil {
		return nil, err
	}
	if err := sleep(ctx, size.settle); err != nil {
		return nil, err
	}
	cores, _, _, err := t.fleet.look(ctx, t.fleet.broker)
	if err != nil {
		return nil, err
	}
	t.idle = cores[0]
	if err := t.fill(ctx, queuesOf(queueServes(managers, size.places))[0]); err != nil {
		return nil, err
	}
	return t, sleep(ctx, size.settle) // by then the first leases have been extended twice
}

// fill gives every slot a sample.
func (t *leaseTrial) fill(ctx context.Context, queue string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i := range t.fleet.size.workers * t.fleet.size.places {
		err := t.gateway.Publish(ctx, wire.Ticket{
			ID: "s" + strconv.Itoa(i), Run: "bench", Epoch: 1, Queue: queue, Gateway: "gateway", Attempt: 1, Bytes: int64(len(t.text)), Deadline: time.Now().Add(time.Hour),
		})
		if err != nil {
			return err
		}
	}
	err := until(ctx, func() bool {
		for _, w := range t.fleet.workers {
			if w.Info().Busy < t.fleet.size.places {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("not every slot got its sample: %w", err)
	}
	return nil
}

// Measure implements Trial.
func (t *leaseTrial) Measure(ctx context.Context, _ int) (Readings, error) {
	before, begin := t.extended.Load(), time.Now()
	cores, own, foreign, err := t.fleet.look(ctx, t.fleet.broker)
	if err != nil {
		return nil, err
	}
	return Readings{
		"running_cores": cores[0], "idle_cores": t.idle, "fleet_cores": own, "foreign_cores": foreign,
		"extensions_per_s": float64(t.extended.Load()-before) / time.Since(begin).Seconds(),
	}, nil
}

// Close implements Trial.
func (t *leaseTrial) Close() error {
	t.end()
	if t.fleet != nil {
		t.fleet.close()
	}
	if t.gateway != nil {
		t.gateway.Close()
	}
	return nil
}

// Claim implements workers.Gateway.
func (t *leaseTrial) Claim(context.Context, wire.Ticket, string) (*wire.Frame, []rewards.ComponentResult, error) {
	f, err := wire.Decode(t.text, wire.Limits{})
	return f, nil, err
}

// ClaimGroup implements workers.Gateway.
func (t *leaseTrial) ClaimGroup(context.Context, wire.Ticket, string) (*wire.Group, error) {
	return nil, wire.ErrGone
}

// Finish implements workers.Gateway.
func (t *leaseTrial) Finish(context.Context, wire.Ticket, *wire.Result) error { return nil }

// extensions is a source that counts how often leases are extended.
type extensions struct {
	workers.Source

	n *atomic.Int64
}

// Take implements workers.Source.
func (e *extensions) Take(ctx context.Context, queue string, n int) ([]workers.Lease, error) {
	got, err := e.Source.Take(ctx, queue, n)
	for i, l := range got {
		got[i] = &extendedLease{l, e.n}
	}
	return got, err
}

type extendedLease struct {
	workers.Lease

	n *atomic.Int64
}

// Extend implements workers.Lease.
func (l *extendedLease) Extend(ctx context.Context) error {
	l.n.Add(1)
	return l.Lease.Extend(ctx)
}

// queueServes are what each worker serves, with so many places for each.
func queueServes(managers map[string]*rewards.Manager, places int) map[string]workers.Profile {
	out := make(map[string]workers.Profile, len(managers))
	for name, m := range managers {
		out[name] = workers.Profile{Manager: m, Queue: wire.QueueName(name, ""), Capacity: places}
	}
	return out
}

// queuesOf are the queues of profiles, by name.
func queuesOf(profiles map[string]workers.Profile) []string {
	var queues []string
	for _, p := range profiles {
		queues = append(queues, p.Queue)
	}
	slices.Sort(queues)
	return queues
}
