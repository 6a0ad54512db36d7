package wsconn_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/wsconn"
)

func TestATextThatIsMadeLateTellsOfWhatHappenedMeanwhile(t *testing.T) {
	t.Parallel()
	got := make(chan string, 16)
	url, conns := serve(t, wsconn.Config{}, funcs{})
	dial(t, url, wsconn.Config{}, funcs{text: func(msg []byte) error { got <- string(msg); return nil }})
	server := <-conns
	count, entered, leave := 0, make(chan struct{}), make(chan struct{})
	require.NoError(t, server.SendLater(func() []byte { // the writer is held here
		close(entered)
		<-leave
		return nil // nothing to tell after all
	}))
	<-entered
	require.NoError(t, server.Send([]byte("before")))
	require.NoError(t, server.SendLater(func() []byte { return []byte(strconv.Itoa(count)) }))
	require.NoError(t, server.Send([]byte("after")))
	count = 7
	close(leave)
	for _, want := range []string{"before", "7", "after"} {
		select {
		case msg := <-got:
			assert.Equal(t, want, msg)
		case <-time.After(10 * time.Second):
			require.Fail(t, "no message", want)
		}
	}
}
