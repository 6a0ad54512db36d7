package netlab

import (
	"errors"
	"os/exec"
	"strconv"
	"sync"

	"github.com/stretchr/testify/require"
)

// Ability is a kind of fault that is not possible on every machine.
type Ability string

const (
	// Drop is required for DropInput and DropOutput.
	Drop Ability = "dropping packets with iptables"
	// Lose is required for Loss.
	Lose Ability = "losing packets at random with iptables -m statistic"
	// Limit is required for Rate.
	Limit Ability = "limiting bandwidth with tc tbf"
)

// probes holds a command for each Ability, run inside a namespace on lo.
var probes = map[Ability][]string{ //nolint:gochecknoglobals // a table
	Drop:  {"iptables", "-w", "-A", "INPUT", "-i", "lo", "-j", "DROP"},
	Lose:  {"iptables", "-w", "-A", "INPUT", "-i", "lo", "-m", "statistic", "--mode", "random", "--probability", "0.05", "-j", "DROP"},
	Limit: {"tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "40mbit", "burst", "64kb", "latency", "100ms"},
}

// tried remembers what the probes said: nil or why not.
var tried = struct { //nolint:gochecknoglobals // the machine's abilities, asked for once
	sync.Mutex
	said map[Ability]error
}{said: map[Ability]error{}}

// Require skips the test with the reason if this machine lacks one of the abilities.
func (l *Lab) Require(abilities ...Ability) {
	l.t.Helper()
	for _, a := range abilities {
		if err := l.try(a); err != nil {
			l.t.Skipf("SKIPPED: this machine lacks %s: %v", a, err)
		}
	}
}

// try makes the fault once in a namespace of its own.
func (l *Lab) try(a Ability) error {
	tried.Lock()
	defer tried.Unlock()
	if err, ok := tried.said[a]; ok {
		return err
	}
	probe := probes[a]
	ns := nsPrefix + l.id + "-try"
	_, err := exec.LookPath(probe[0])
	if err == nil {
		err = tool("ip", "netns", "add", ns)
	}
	if err == nil {
		err = errors.Join(tool("ip", append([]string{"netns", "exec", ns}, probe...)...), tool("ip", "netns", "del", ns))
	}
	tried.said[a] = err
	return err
}

// Down takes the link down, like a pulled cable.
func (h *Host) Down() { h.must("ip", "link", "set", h.port, "down") }

// Up brings the link up again.
func (h *Host) Up() { h.must("ip", "link", "set", h.port, "up") }

// DropInput drops every packet to the host. Packets from the host still leave.
func (h *Host) DropInput() { h.inside("iptables", "-w", "-A", "INPUT", "-i", device, "-j", "DROP") }

// DropOutput drops every packet from the host, on the host itself, before its link. Packets to the
// host still arrive.
func (h *Host) DropOutput() { h.inside("iptables", "-w", "-A", "OUTPUT", "-o", device, "-j", "DROP") }

// Loss drops the given percentage of the packets to the host, at random.
func (h *Host) Loss(percent float64) {
	h.inside("iptables", "-w", "-A", "INPUT", "-i", device, "-m", "statistic", "--mode", "random",
		"--probability", strconv.FormatFloat(percent/100, 'f', 6, 64), "-j", "DROP")
}

// Rate limits the bandwidth of the host's link in both directions, with a queue of at most 100 ms.
func (h *Host) Rate(bitsPerSecond int64) {
	shape := []string{"root", "tbf", "rate", strconv.FormatInt(bitsPerSecond, 10) + "bit", "burst", "64kb", "latency", "100ms"}
	h.must("tc", append([]string{"qdisc", "replace", "dev", h.port}, shape...)...)
	h.inside("tc", append([]string{"qdisc", "replace", "dev", device}, shape...)...)
}

// Heal ends every fault of the host.
func (h *Host) Heal() {
	if _, err := exec.LookPath("iptables"); err == nil {
		h.inside("iptables", "-w", "-F")
	}
	if _, err := exec.LookPath("tc"); err == nil {
		_ = tool("tc", "qdisc", "del", "dev", h.port, "root") // none is no fault
		_ = tool("ip", "netns", "exec", h.ns, "tc", "qdisc", "del", "dev", device, "root")
	}
	h.Up()
}

func (h *Host) inside(name string, args ...string) {
	h.lab.t.Helper()
	h.must("ip", append([]string{"netns", "exec", h.ns, name}, args...)...)
}

// must fails the test: a fault that was not made would look like one survived.
func (h *Host) must(name string, args ...string) {
	h.lab.t.Helper()
	require.NoError(h.lab.t, tool(name, args...), "host %s", h.Name)
}
