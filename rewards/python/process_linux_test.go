package python_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// bareProcess is a process.py without the pool: a test writes its frames and reads its replies.
type bareProcess struct {
	tb   testing.TB
	conn net.Conn
}

// processReply is what the tests read of a reply.
type processReply struct {
	Op    string  `json:"op"`
	ID    uint64  `json:"id"`
	Class string  `json:"class"`
	Async bool    `json:"async"`
	Score float64 `json:"score"`
}

// startProcess runs process.py with a function of testdata/rewards.py and waits until it is
// ready. The process ends with the test.
func startProcess(tb testing.TB, load map[string]any) *bareProcess {
	tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(tb, err)
	ours, theirs := os.NewFile(uintptr(fds[0]), "test"), os.NewFile(uintptr(fds[1]), "process")
	conn, err := net.FileConn(ours)
	require.NoError(tb, err)
	require.NoError(tb, ours.Close())
	cmd := exec.Command(interpreter(tb), "-u", "process.py") // it ends with its socket
	cmd.Stderr, cmd.ExtraFiles, cmd.WaitDelay = os.Stderr, []*os.File{theirs}, 10*time.Second
	require.NoError(tb, cmd.Start())
	require.NoError(tb, theirs.Close())
	tb.Cleanup(func() {
		require.NoError(tb, conn.Close())
		require.NoError(tb, cmd.Wait(), "the process ends when its socket is closed")
	})
	h := &bareProcess{tb, conn}
	all := map[string]any{"protocol": 2, "path": "testdata/rewards.py", "limits": map[string]int{}, "stall_seconds": 60, "pixels": "auto"}
	maps.Copy(all, load)
	h.write(frame(tb, all))
	require.Equal(tb, "ready", h.read().Op)
	return h
}

// frame encodes a frame without a body.
func frame(tb testing.TB, header map[string]any) []byte {
	tb.Helper()
	js, err := json.Marshal(header)
	require.NoError(tb, err)
	out := make([]byte, 8, 8+len(js))
	binary.LittleEndian.PutUint32(out, uint32(len(js)))
	return append(out, js...)
}

func callFrame(tb testing.TB, id uint64, word string) []byte {
	tb.Helper()
	return frame(tb, map[string]any{"op": "call", "id": id, "sample": map[string]any{"id": "s", "ground_truth": word}})
}

func cancelFrame(tb testing.TB, id uint64) []byte {
	tb.Helper()
	return frame(tb, map[string]any{"op": "cancel", "id": id})
}

func (h *bareProcess) write(data []byte) {
	h.tb.Helper()
	require.NoError(h.tb, h.conn.SetWriteDeadline(time.Now().Add(time.Minute)))
	_, err := h.conn.Write(data)
	require.NoError(h.tb, err)
}

func (h *bareProcess) read() processReply {
	h.tb.Helper()
	require.NoError(h.tb, h.conn.SetReadDeadline(time.Now().Add(time.Minute)))
	var sizes [8]byte
	_, err := io.ReadFull(h.conn, sizes[:])
	require.NoError(h.tb, err, "the process is alive and answers")
	js := make([]byte, binary.LittleEndian.Uint32(sizes[:4]))
	_, err = io.ReadFull(h.conn, js)
	require.NoError(h.tb, err)
	var r processReply
	require.NoError(h.tb, json.Unmarshal(js, &r), "%s", js)
	return r
}

// A call and its cancel that are read in one turn of the event loop end the call's task
// before its first step.
func TestCallsThatAreCancelledBeforeTheirFirstStepAreAnswered(t *testing.T) {
	t.Parallel()
	h := startProcess(t, map[string]any{"name": "judge"})
	const calls = 200
	var burst []byte
	for id := range uint64(calls) {
		burst = append(burst, callFrame(t, id+1, "slow")...)
		burst = append(burst, cancelFrame(t, id+1)...)
	}
	h.write(burst)
	answered := map[uint64]int{}
	for range calls {
		r := h.read()
		assert.Equal(t, "error", r.Op)
		answered[r.ID]++
	}
	assert.Len(t, answered, calls, "each call once")
	h.write(callFrame(t, calls+1, "0.5"))
	assert.Equal(t, processReply{Op: "result", ID: calls + 1, Score: 0.5}, h.read(), "and no task is left behind")
}

// Frames in any order and in bursts that are read at once: every call and group is answered
// exactly once, whatever was cancelled, and the process lives on. REWARDLOOP_SEED repeats one.
func TestEveryCallIsAnsweredOnceInWhateverOrderFramesCome(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if named := os.Getenv("REWARDLOOP_SEED"); named != "" {
		_, err := fmt.Sscan(named, &seed)
		require.NoError(t, err)
	}
	for name, load := range map[string]map[string]any{
		"async":    {"name": "AsyncGrouped", "post_process": true},
		"plain":    {"name": "Grouped", "post_process": true},
		"threaded": {"name": "Grouped", "post_process": true, "concurrency": 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Logf("REWARDLOOP_SEED=%d", seed)
			shuffleFrames(t, startProcess(t, load), rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

func shuffleFrames(t *testing.T, h *bareProcess, r *rand.Rand) {
	t.Helper()
	asked, answered := 0, map[uint64]int{}
	for range 40 {
		var burst []byte
		for range 1 + r.IntN(60) {
			switch id := uint64(asked); r.IntN(4) {
			case 0:
				burst = append(burst, cancelFrame(t, 1+r.Uint64N(id+2))...) // of any, also one that is over or to come
			case 1:
				asked++
				burst = append(burst, frame(t, map[string]any{"op": "group", "id": id + 1, "scores": []any{1.0, nil}})...)
			default:
				asked++
				burst = append(burst, callFrame(t, id+1, "0.5")...)
			}
		}
		h.write(burst)
		for range r.IntN(asked - len(answered) + 1) {
			answered[h.read().ID]++
		}
	}
	for len(answered) < asked {
		answered[h.read().ID]++
	}
	h.write(callFrame(t, uint64(asked)+1, "0.5"))
	assert.Equal(t, uint64(asked)+1, h.read().ID, "nothing is answered twice, and the process is alive")
	for id, times := range answered {
		assert.Equal(t, 1, times, "call %d", id)
	}
}
