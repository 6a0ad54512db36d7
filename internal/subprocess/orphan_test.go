package subprocess_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// parent is the life of a process that is killed while its child hangs.
func parent() {
	p, err := subprocess.New(subprocess.Config{Kind: "hash", Slots: 1})
	if err == nil {
		err = p.Start(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() { _, _ = p.Do(context.Background(), work("hang")) }()
	for p.Stats().Busy == 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(p.Stats().PIDs[0])
	select {}
}

func TestAHangingChildDiesWithItsParent(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "parent")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(said))
	require.NoError(t, err, said)
	require.True(t, runs(pid))
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool { return !runs(pid) }, 10*time.Second, time.Millisecond)
}

// runs reports whether a process exists and is no zombie; an orphan may stay one
// where nobody reaps it.
func runs(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// BenchmarkDo is what a slot costs beside the work: a 512x512 RGB picture into
// shared memory, two frames over the socket.
func BenchmarkDo(b *testing.B) {
	p, err := subprocess.New(subprocess.Config{Kind: "hash", Slots: 1})
	require.NoError(b, err)
	require.NoError(b, p.Start(b.Context()))
	defer func() { require.NoError(b, p.Stop(context.Background())) }()
	req := work("calls", make([]byte, 512*512*3))
	for b.Loop() {
		if _, err := p.Do(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
