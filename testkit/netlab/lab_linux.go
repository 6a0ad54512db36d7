package netlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	// namespaces is where ip keeps them by name.
	namespaces = "/run/netns"
	nsPrefix   = "rewardloop-"
	linkPrefix = "rl"
	// device is the name of each host's only link, beside lo.
	device = "eth0"
	// maxHosts is what the addresses of a Lab are for.
	maxHosts = 200
	// toolTimeout bounds one call of ip, tc or iptables.
	toolTimeout = 20 * time.Second
)

// labs numbers the labs of this process.
var labs atomic.Int32 //nolint:gochecknoglobals // names are the process's

// Lab is a bridge with hosts. Its methods must be called by the test's goroutine.
type Lab struct {
	t      testing.TB
	id     string // <pid>-<n>, and in names of links <pid>n<n>
	bridge string
	net    netip.Prefix // /24; .1 is the bridge
	hosts  []*Host
}

// Host is a network namespace with one link to the bridge.
type Host struct {
	// Name is the name that was passed to Lab.Host.
	Name string
	// IP is the address of the host.
	IP netip.Addr

	lab  *Lab
	ns   string // name of the namespace
	port string // the bridge's end of its link
}

// New creates a lab, or skips the test with the reason. The lab is removed when the test ends.
func New(t testing.TB) *Lab {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it makes a network")
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: netlab makes network namespaces, and that takes root; this is user ", os.Geteuid())
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("SKIPPED: netlab needs ip (package iproute2): ", err)
	}
	sweep()
	n := labs.Add(1)
	l := &Lab{t: t, id: fmt.Sprintf("%d-%d", os.Getpid(), n), bridge: fmt.Sprintf("%s%dn%d", linkPrefix, os.Getpid(), n)}
	t.Cleanup(l.remove)
	if err := l.build(int(n)); err != nil {
		t.Skip("SKIPPED: this machine makes no network namespace on a bridge: ", err)
	}
	return l
}

// build makes the bridge, with a probe namespace first: it is what is forbidden in
// most containers.
func (l *Lab) build(n int) error {
	probe := nsPrefix + l.id + "-probe"
	if err := errors.Join(tool("ip", "netns", "add", probe), tool("ip", "netns", "del", probe)); err != nil {
		return err
	}
	prefix, err := freeNet(os.Getpid()*7 + n)
	if err != nil {
		return err
	}
	l.net = prefix
	return errors.Join(
		tool("ip", "link", "add", l.bridge, "type", "bridge"),
		tool("ip", "addr", "add", l.IP().String()+"/24", "dev", l.bridge),
		tool("ip", "link", "set", l.bridge, "up"),
	)
}

// freeNet is a /24 of 10.128.0.0/9 that none of this machine's addresses is in.
func freeNet(from int) (netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Prefix{}, err
	}
	for i := range 1 << 15 {
		k := (from + i) & (1<<15 - 1)
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + k>>8), byte(k), 0}), 24)
		taken := false
		for _, a := range addrs {
			if used, err := netip.ParsePrefix(a.String()); err == nil && used.Overlaps(p) {
				taken = true
			}
		}
		if !taken {
			return p, nil
		}
	}
	return netip.Prefix{}, errors.New("no /24 of 10.128.0.0/9 is free")
}

// IP returns the address of the bridge, at which the hosts reach the test process.
func (l *Lab) IP() netip.Addr { return l.net.Addr().Next() }

// Host adds a host. Names are unique within a lab.
func (l *Lab) Host(name string) *Host {
	l.t.Helper()
	k := len(l.hosts)
	require.Less(l.t, k, maxHosts, "a lab has addresses for so many hosts")
	base := l.net.Addr().As4()
	base[3] = byte(10 + k)
	h := &Host{
		Name: name, IP: netip.AddrFrom4(base), lab: l, ns: nsPrefix + l.id + "-" + name,
		port: l.bridge + "h" + strconv.FormatInt(int64(k), 36),
	}
	l.hosts = append(l.hosts, h)
	in := func(args ...string) error { return tool("ip", append([]string{"-n", h.ns}, args...)...) }
	require.NoError(l.t, errors.Join(
		tool("ip", "netns", "add", h.ns),
		tool("ip", "link", "add", h.port, "type", "veth", "peer", "name", device, "netns", h.ns),
		tool("ip", "link", "set", h.port, "master", l.bridge),
		tool("ip", "link", "set", h.port, "up"),
		in("addr", "add", h.IP.String()+"/24", "dev", device),
		in("link", "set", "lo", "up"),
		in("link", "set", device, "up"),
		in("route", "add", "default", "via", l.IP().String()),
	), "host %s", name)
	return h
}

// remove takes everything away; what is not there any more is no fault.
func (l *Lab) remove() {
	for _, h := range l.hosts {
		if err := tool("ip", "netns", "del", h.ns); err != nil {
			l.t.Logf("netlab: %v", err)
		}
		_ = tool("ip", "link", "del", h.port) // gone with its other end, unless a process still lives there
	}
	if l.net.IsValid() {
		if err := tool("ip", "link", "del", l.bridge); err != nil {
			l.t.Logf("netlab: %v", err)
		}
	}
}

// sweep removes what labs of dead processes left behind.
func sweep() {
	entries, _ := os.ReadDir(namespaces)
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), nsPrefix); ok && orphaned(rest, "-") {
			_ = tool("ip", "netns", "del", e.Name())
		}
	}
	links, _ := net.Interfaces()
	for _, i := range links {
		if rest, ok := strings.CutPrefix(i.Name, linkPrefix); ok && orphaned(rest, "n") {
			_ = tool("ip", "link", "del", i.Name)
		}
	}
}

// orphaned reports whether a name begins with the id of a process that is dead.
func orphaned(name, end string) bool {
	digits, _, ok := strings.Cut(name, end)
	pid, err := strconv.Atoi(digits)
	return ok && err == nil && pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// tool runs ip, tc or iptables.
func tool(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput() //nolint:gosec // the names are those of this file
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// Command is like exec.CommandContext for a program in this host. The started process is the
// program itself, so that signals reach it.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", h.ns, name}, args...)...) //nolint:gosec // what to run is the caller's business
}

// Listen opens a socket of this process in the host; "127.0.0.1:80" is the host's own loopback
// address.
func (h *Host) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	var l net.Listener
	err := h.within(func() error {
		var lc net.ListenConfig
		var err error
		l, err = lc.Listen(ctx, network, address)
		return err
	})
	return l, err
}

// Dial connects from the host. address is host:port with an IP address, not a name.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var c net.Conn
	err := h.within(func() error {
		var d net.Dialer
		d.FallbackDelay = -1 // one goroutine: the one that is in the host
		var err error
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// within runs f on a thread that is in the host's namespace; sockets stay where they
// were opened. A thread that cannot come back ends with its goroutine.
func (h *Host) within(f func() error) error {
	done := make(chan error, 1)
	go func() { // ends with f
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer home.Close()
		there, err := os.Open(namespaces + "/" + h.ns)
		if err == nil {
			defer there.Close()
			err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
			if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
		} else {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("in host %s: %w", h.Name, err)
	}
	return nil
}
