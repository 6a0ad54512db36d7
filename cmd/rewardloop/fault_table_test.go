//go:build linux && fault

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	main "github.com/rewardloop/rewardloop/cmd/rewardloop"
	"github.com/rewardloop/rewardloop/testkit/fleet"
	"github.com/rewardloop/rewardloop/testkit/netlab"
)

const (
	// lease is queue.lease in these tests.
	lease = 6 * time.Second
	// closed is allowed where a connection ends, which everybody is told of.
	closed = 5 * time.Second
	// silent is allowed where nobody is told: the lease ends, and somebody else scores.
	silent = lease + 4*time.Second
)

// fault is one run: what there is, what happens to it, and what is allowed.
type fault struct {
	name string // of the subtest
	what string // for the table

	hosts    bool // each worker on a host of a lab; the rest is on its bridge
	needs    []netlab.Ability
	brokers  int  // default 1
	embedded bool // the gateway is the broker
	gateways int  // default 1
	workers  int  // default 2
	cfg      fleet.Config
	load     fleet.Load

	happens func(s *stage) // calls Mark, makes the fault and ends it; nil: nothing happens
	within  time.Duration  // allowed from the fault to the last result of what was in flight
	because string         // why so long
}

// stage is the processes of one run.
type stage struct {
	*fleet.Run
	t        *testing.T
	fleet    *fleet.Fleet
	brokers  []*fleet.Process
	gateways []*fleet.Process
	workers  []*fleet.Process
	hosts    []*netlab.Host // of the workers
}

// pause lets the fault last.
func (s *stage) pause(d time.Duration) {
	s.t.Helper()
	select {
	case <-time.After(d):
	case <-s.t.Context().Done():
	}
}

// fleet starts the processes of a run.
func (f fault) fleet(t *testing.T, bin, nats string) *stage {
	t.Helper()
	cfg := f.cfg
	cfg.Binary, cfg.NATSServer, cfg.Lease = bin, nats, lease
	s := &stage{t: t}
	if f.hosts {
		cfg.Lab = netlab.New(t)
		cfg.Lab.Require(f.needs...)
	}
	s.fleet = fleet.New(t, cfg)
	if !f.embedded {
		s.brokers = s.fleet.Broker(make([]*netlab.Host, max(f.brokers, 1))...)
	}
	for i := range max(f.gateways, 1) {
		s.gateways = append(s.gateways, s.fleet.Gateway(fmt.Sprintf("g%d", i+1), nil))
	}
	workers := f.workers
	if workers == 0 {
		workers = 2
	}
	for i := range workers {
		var h *netlab.Host
		if f.hosts {
			h = cfg.Lab.Host(fmt.Sprintf("w%d", i+1))
		}
		s.hosts = append(s.hosts, h)
		s.workers = append(s.workers, s.fleet.Worker(fmt.Sprintf("w%d", i+1), h))
	}
	return s
}

// run makes one fault and returns its row of the table.
func (f fault) run(t *testing.T, bin, nats string) string {
	t.Helper()
	s := f.fleet(t, bin, nats)
	s.Run = s.fleet.Load(f.load, s.gateways...)
	if f.happens != nil {
		s.Reached(40)
		f.happens(s)
	}
	p := s.Wait()
	t.Log(p)
	p.Check(t)
	s.fleet.Lives(f.within, s.gateways...)
	allowed := "–"
	if f.within > 0 {
		allowed = fmt.Sprintf("%v (%s)", f.within, f.because)
		if max(p.Recovery, p.Gap) > f.within {
			t.Errorf("what was in flight had its results %v after the fault, the longest gap was %v; allowed are %s", p.Recovery, p.Gap, allowed)
		}
	}
	return fmt.Sprintf("| %s | %d | %d/%d/%d/%d | %d | %d | %s | %s | %s of %d | %s |\n", f.what, p.Samples,
		p.Scored, p.Missing+p.Failed, p.Duplicates, p.Wrong, p.Again, p.Twice,
		seconds(p.Gap), seconds(p.First), seconds(p.Recovery), p.InFlight, allowed)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// Every fault is measured, so each has the machine for itself.
func TestNoFaultLosesRepeatsOrSpoilsASample(t *testing.T) { //nolint:paralleltest // see above
	bin, nats := main.Binary(t), fleet.NATSServer(t)
	var rows strings.Builder
	whole := true
	for _, f := range append(processFaults(), networkFaults()...) {
		row, ran := "", false
		ok := t.Run(f.name, func(t *testing.T) {
			ran = true
			t.Cleanup(func() {
				if t.Skipped() {
					row = fmt.Sprintf("| %s | not run: this machine cannot make it |\n", f.what)
				}
			})
			row = f.run(t, bin, nats)
		})
		whole = whole && ok && ran
		rows.WriteString(row)
	}
	t.Logf("\n%s%s", head, rows.String())
	if os.Getenv("REWARDLOOP_RESULTS") == "" {
		return
	}
	require.True(t, whole, "docs/results/faults.md is written of a whole run without a failure")
	require.NoError(t, os.WriteFile(filepath.Join("..", "..", "docs", "results", "faults.md"), []byte(page(t, rows.String())), 0o644)) //nolint:gosec // a page for everybody
}

const head = "| fault | samples | scored/missing/duplicate/wrong | needed another attempt | scored twice | longest gap | next result | in flight recovered | allowed |\n" +
	"|---|---:|---|---:|---:|---:|---:|---:|---|\n"

// page is the whole of docs/results/faults.md.
func page(t *testing.T, rows string) string {
	t.Helper()
	commit, err := exec.CommandContext(t.Context(), "git", "describe", "--always", "--dirty").Output()
	require.NoError(t, err)
	return fmt.Sprintf(`# Faults

Written by %[1]smake test-fault%[1]s with %[1]sREWARDLOOP_RESULTS=1%[1]s: real processes, one broker unless the row says otherwise, one gateway, two
workers of eight places, 256 KiB a sample, 30 samples a second, 100 to 300 ms a score, %[1]squeue.lease: %[2]v%[1]s. The score is
the checksum of the bytes that arrived at the scorer, so that a payload of another sample is noticed. Network faults are made on the
hosts of workers, which are network namespaces on a bridge.

*Longest gap* is the longest time without any result. *Next result* is the time from the fault to the first result after it.
*In flight recovered* is the time from the fault until every sample that was in flight at the fault had its result; %[1]s1.92 s of 7%[1]s
means 7 such samples. *Scored twice* is the number of samples that the scorer scored more than once: a sample may be executed
more than once, but the trainer gets its result exactly once.

%[3]s, %[4]d cores, %[5]s, %[6]s, commit %[7]s.

%[8]s%[9]s`, "`", lease, runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), runtime.Version(),
		time.Now().UTC().Format(time.RFC3339), strings.TrimSpace(string(commit)), head, rows)
}
