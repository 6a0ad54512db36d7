package python

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// peer is the other end of a conn, in the place of a process.
type peer struct {
	t    *testing.T
	conn net.Conn
}

func (p peer) read() (got call) {
	p.t.Helper()
	var sizes [8]byte
	_, err := io.ReadFull(p.conn, sizes[:])
	require.NoError(p.t, err)
	js := make([]byte, binary.LittleEndian.Uint32(sizes[:4])+binary.LittleEndian.Uint32(sizes[4:]))
	_, err = io.ReadFull(p.conn, js)
	require.NoError(p.t, err)
	require.NoError(p.t, json.Unmarshal(js[:binary.LittleEndian.Uint32(sizes[:4])], &got))
	return got
}

func (p peer) answer(id uint64) {
	p.t.Helper()
	head, err := encodeFrame(map[string]any{"op": "result", "id": id, "score": 1}, 0)
	require.NoError(p.t, err)
	_, err = p.conn.Write(head)
	require.NoError(p.t, err)
}

// While a frame is being written a caller who leaves does not wait for it, and its cancel
// is sent as soon as the frame is through. A frame that nobody has begun is taken back.
func TestACancelIsSentBehindTheFrameThatIsBeingWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := newConn(&process{conn: ours}, Config{CallTimeout: time.Hour, CancelGrace: time.Minute, StallTimeout: time.Minute}, "f")
		released := 0
		c.async, c.release = true, func(*waiter, bool) { released++ }
		go c.write()
		go func() { _ = c.read() }()
		p := peer{t, theirs}
		ask := func(ctx context.Context) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := c.call(ctx, nil, call{Op: "call"}, [][]byte{make([]byte, 1<<20)}, 1<<20)
				done <- err
			}()
			synctest.Wait()
			return done
		}
		first := ask(t.Context()) // it is sent
		assert.Equal(t, uint64(1), p.read().ID)
		two, leaveTwo := context.WithCancel(t.Context())
		second := ask(two) // the peer does not read: it is being written
		three, leaveThree := context.WithCancel(t.Context())
		third := ask(three) // and this one waits
		leaveThree()
		require.ErrorIs(t, <-third, rewards.Cancelled)
		assert.Equal(t, 1, released, "nobody has it: its place is free")
		c.cancel(1) // as the caller of the first does who leaves
		leaveTwo()
		synctest.Wait()
		assert.Empty(t, second, "its body may not change while it is read")
		assert.Equal(t, uint64(2), p.read().ID)
		require.ErrorIs(t, <-second, rewards.Cancelled)
		cancelled := []uint64{p.read().ID, p.read().ID}
		assert.ElementsMatch(t, []uint64{1, 2}, cancelled)
		p.answer(2)
		p.answer(1)
		require.NoError(t, <-first)
		synctest.Wait()
		assert.Equal(t, 3, released)
		assert.Empty(t, c.pending)

		require.NoError(t, theirs.Close())
		synctest.Wait()
		held, blamed, lost := c.die()
		assert.Empty(t, lost)
		assert.Empty(t, held)
		assert.Nil(t, blamed)
		_, err := c.call(t.Context(), nil, call{Op: "call"}, nil, 0)
		require.ErrorIs(t, err, errGone)
		synctest.Wait()
	})
}
