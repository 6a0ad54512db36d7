//go:build linux

package netlab_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/testkit/netlab"
)

// pairOfHosts is a lab with an echo in host a and a connection to it from host b.
func pairOfHosts(t *testing.T, needs ...netlab.Ability) (a, b *netlab.Host, c net.Conn) {
	t.Helper()
	lab := netlab.New(t)
	lab.Require(needs...)
	a, b = lab.Host("a"), lab.Host("b")
	l, err := a.Listen(t.Context(), "tcp", a.IP.String()+":7")
	require.NoError(t, err)
	echo(t, l)
	c, err = b.Dial(t.Context(), "tcp", a.IP.String()+":7")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	_, _ = roundTrip(t, c, []byte("hello"))
	return a, b, c
}

func TestHostsReachEachOtherAndTheTestReachesThem(t *testing.T) {
	t.Parallel()
	a, b, c := pairOfHosts(t)
	require.Equal(t, b.IP.String(), c.LocalAddr().(*net.TCPAddr).IP.String())
	_, _ = roundTrip(t, dial(t, a.IP.String()+":7"), []byte("hello"))
}

func TestAHostReachesTheTest(t *testing.T) {
	t.Parallel()
	lab := netlab.New(t)
	l, err := net.Listen("tcp", lab.IP().String()+":0")
	require.NoError(t, err)
	echo(t, l)
	c, err := lab.Host("a").Dial(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, _ = roundTrip(t, c, []byte("hello"))
}

func TestACommandRunsInItsHostAndIsTheProcessThatSignalsReach(t *testing.T) {
	t.Parallel()
	lab := netlab.New(t)
	h := lab.Host("a")
	out, err := h.Command(t.Context(), "ip", "-4", "-o", "addr", "show", "dev", "eth0").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), h.IP.String())
	cmd := h.Command(t.Context(), "sleep", "600")
	require.NoError(t, cmd.Start())
	// The process is ip until it becomes sleep.
	require.Eventually(t, func() bool {
		name, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/comm")
		return err == nil && strings.TrimSpace(string(name)) == "sleep"
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	err = cmd.Wait()
	require.Equal(t, syscall.SIGKILL, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), "%v", err)
}

func TestALinkThatIsDownPassesNothingAndHealsWithTheConnection(t *testing.T) {
	t.Parallel()
	_, b, c := pairOfHosts(t)
	b.Down()
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	silent(t, c, 300*time.Millisecond)
	b.Up()
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
}

func TestACutOfOneDirectionLeavesTheOther(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*netlab.Host){"input": (*netlab.Host).DropInput, "output": (*netlab.Host).DropOutput} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, c := pairOfHosts(t, netlab.Drop)
			cut(b)
			_, err := c.Write([]byte("x"))
			require.NoError(t, err)
			silent(t, c, 300*time.Millisecond)
			// The host's own connections are not touched, nor are those of the other.
			own, err := b.Listen(t.Context(), "tcp", "127.0.0.1:7")
			require.NoError(t, err)
			echo(t, own)
			o, err := b.Dial(t.Context(), "tcp", "127.0.0.1:7")
			require.NoError(t, err)
			defer o.Close()
			_, _ = roundTrip(t, o, []byte("x"))
			_, _ = roundTrip(t, dial(t, a.IP.String()+":7"), []byte("x"))
			b.Heal()
			_, err = io.ReadFull(c, make([]byte, 1))
			require.NoError(t, err)
		})
	}
}

func TestLossLosesSomePacketsAndTCPMendsThem(t *testing.T) {
	t.Parallel()
	a, _, c := pairOfHosts(t, netlab.Lose)
	a.Loss(5)
	b := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB: at most 64 KiB to a packet
	got, _ := roundTrip(t, c, b)
	require.True(t, bytes.Equal(b, got))
	out, err := a.Command(t.Context(), "iptables", "-w", "-nvxL", "INPUT").Output()
	require.NoError(t, err)
	fields := strings.Fields(strings.Split(strings.TrimSpace(string(out)), "\n")[2])
	lost, err := strconv.Atoi(fields[0])
	require.NoError(t, err)
	t.Logf("%d packets lost of a megabyte", lost)
	assert.Equal(t, "DROP", fields[2])
}

func TestARateLimitsTheHost(t *testing.T) {
	t.Parallel()
	a, _, c := pairOfHosts(t, netlab.Limit)
	a.Rate(16 << 20) // 2 MiB a second
	_, took := roundTrip(t, c, make([]byte, 1<<20))
	require.GreaterOrEqual(t, took, 400*time.Millisecond)
	a.Heal()
}

func TestNewSweepsWhatAKilledTestLeftBehind(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it makes networks")
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: takes root")
	}
	dead := exec.CommandContext(t.Context(), "true")
	require.NoError(t, dead.Run())
	pid := strconv.Itoa(dead.Process.Pid)
	ns, link := "rewardloop-"+pid+"-1-w1", "rl"+pid+"n1"
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "add", ns).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: this machine makes no network namespace: %s", out)
	}
	require.NoError(t, exec.CommandContext(t.Context(), "ip", "link", "add", link, "type", "bridge").Run())
	netlab.New(t)
	require.NoFileExists(t, "/run/netns/"+ns)
	_, err := net.InterfaceByName(link)
	require.Error(t, err)
}

func TestALabLeavesNothingBehind(t *testing.T) { //nolint:tparallel // the subtest's end is looked at
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it makes networks")
	}
	var name string
	t.Run("lab", func(t *testing.T) {
		lab := netlab.New(t)
		h := lab.Host("a")
		name = lab.IP().String()
		out, err := h.Command(t.Context(), "true").CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		require.NotContains(t, a.String(), name+"/")
	}
}
