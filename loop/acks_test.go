package loop_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// lazy is a connection whose writer is busy until the test lets it go on.
type lazy struct {
	*peer
	waiting []func() []byte
}

// SendLater implements stream.Conn.
func (l *lazy) SendLater(later func() []byte) error {
	l.waiting = append(l.waiting, later)
	return nil
}

func TestSamplesThatComeWhileTheWriterIsBusyAreAcknowledgedTogether(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Profiles: profiles(t, term(hashing(time.Second)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := &lazy{peer: &peer{m: s.Manager}}
		var err error
		p.session, err = s.Manager.Attach(wire.Hello{Run: "run"}, p)
		require.NoError(t, err)
		defer s.Manager.Detach(p.session, p)
		names := ids("a", 5)
		for _, id := range names {
			p.send(t, rig.Sample(id, 30))
		}
		require.Len(t, p.waiting, 1)
		require.NoError(t, p.peer.SendLater(p.waiting[0]))
		acks := got[*wire.Ack](p.peer)
		require.Len(t, acks, 1)
		assert.Equal(t, names, acks[0].IDs)
		assert.Nil(t, p.waiting[0](), "each is acknowledged once")
		p.send(t, rig.Sample("later", 30))
		require.Len(t, p.waiting, 2)
		p.result(t, "later")
	})
}
