//go:build linux

package fleet_test

import (
	"bytes"
	"encoding/binary"
	"image/png"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/fleet"
	"github.com/rewardloop/rewardloop/wire"
)

func scored(id string, score float64) *wire.Result {
	return &wire.Result{Type: "result", ID: id, Outcome: rewards.Scored, RewardScore: &score, Attempts: 1, Worker: "w1"}
}

func TestAReportFindsWhatIsMissingRepeatedWrongOrFailed(t *testing.T) {
	t.Parallel()
	want := map[string]float64{"s-0": 0.5, "s-1": 0.25, "s-2": 0.125, "s-3": 1. / (1 << 31), "s-4": 0.75}
	again := scored("s-1", 0.25)
	again.Attempts = 2
	p := fleet.Fed(t, want, scored("s-0", 0.5), again, scored("s-1", 0.25), scored("s-2", 0.25),
		&wire.Result{ID: "s-4", Outcome: rewards.Failed})
	require.Equal(t, 2, p.Scored)
	require.Equal(t, 1, p.Missing)
	require.Equal(t, 1, p.Duplicates)
	require.Equal(t, 1, p.Wrong)
	require.Equal(t, 1, p.Failed)
	require.Equal(t, 1, p.Again)
	require.Len(t, p.Faults, 3)
	require.Equal(t, 10*time.Millisecond, p.Gap)
	require.Equal(t, 10*time.Millisecond, p.First)
	require.Equal(t, 4, p.InFlight)
	require.Equal(t, 40*time.Millisecond, p.Recovery)
	var spoiled spoiledTB
	spoiled.TB = t
	p.Check(&spoiled)
	require.True(t, spoiled.failed)
}

// spoiledTB notes a failure.
type spoiledTB struct {
	testing.TB
	failed bool
}

func (s *spoiledTB) Errorf(string, ...any) { s.failed = true }

func TestAReportWithoutAFaultPasses(t *testing.T) {
	t.Parallel()
	p := fleet.Fed(t, map[string]float64{"s-0": 0.5, "s-1": 0.25}, scored("s-1", 0.25), scored("s-0", 0.5))
	p.Check(t)
	require.Equal(t, 1, p.InFlight)
}

// text is a server's text frame.
func text(s string) []byte {
	switch n := len(s); {
	case n < 126:
		return append([]byte{0x81, byte(n)}, s...)
	case n < 1<<16:
		return append(binary.BigEndian.AppendUint16([]byte{0x81, 126}, uint16(n)), s...)
	default:
		return append(binary.BigEndian.AppendUint64([]byte{0x81, 127}, uint64(n)), s...)
	}
}

func TestATapCountsResultsThatComeTwiceHoweverTheBytesAreCut(t *testing.T) {
	t.Parallel()
	stream := []byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")
	for _, m := range []string{
		`{"type":"welcome"}`,
		`{"type":"result","id":"a","outcome":"scored"}`,
		`{"type":"result","id":"b","outcome":"scored","details":{"x":"` + string(bytes.Repeat([]byte("x"), 300)) + `"}}`,
		`{"type":"result","id":"r","outcome":"rejected"}`, // and sent again by the client
		`{"type":"result","id":"r","outcome":"scored"}`,
		`{"type":"result","id":"b","outcome":"scored","details":{"x":"` + string(bytes.Repeat([]byte("x"), 70000)) + `"}}`,
	} {
		stream = append(stream, text(m)...)
		stream = append(stream, 0x89, 2, 'h', 'i') // a ping
	}
	part := `{"type":"result","id":"a","outcome":"scored"}`
	stream = append(stream, 0x01, 10)
	stream = append(stream, part[:10]...)
	stream = append(stream, 0x80, byte(len(part)-10))
	stream = append(stream, part[10:]...)
	for _, size := range []int{1, 7, 4096, len(stream)} {
		var chunks [][]byte
		var conns []int
		for rest := stream; len(rest) > 0; {
			n := min(size, len(rest))
			chunks, conns, rest = append(chunks, rest[:n]), append(conns, 1), rest[n:]
		}
		chunks = append(chunks, []byte("HTTP/1.1 101 S\r\n\r\n"), text(`{"type":"result","id":"a","outcome":"scored"}`))
		conns = append(conns, 2, 2)
		same, later := fleet.Tapped(conns, chunks)
		require.Equal(t, 2, same, "in chunks of %d", size)
		require.Equal(t, 1, later, "in chunks of %d", size)
	}
}

func TestPicturesArePNGsOfTheSizeAskedForAndNoTwoHaveTheSameScore(t *testing.T) {
	t.Parallel()
	seen := map[float64]bool{}
	for range 100 {
		file, err := fleet.Picture(10_000)
		require.NoError(t, err)
		require.Len(t, file, 10_000)
		_, err = png.Decode(bytes.NewReader(file))
		require.NoError(t, err)
		seen[fleet.Checksum(file)] = true
	}
	require.Len(t, seen, 100)
}

func TestBrokersFormAClusterAndOneComesBackAfterKill9(t *testing.T) {
	t.Parallel()
	f := fleet.New(t, fleet.Config{NATSServer: fleet.NATSServer(t)})
	brokers := f.Broker(nil, nil, nil)
	require.Len(t, brokers, 3)
	brokers[0].Kill9()
	brokers[0].Start()
	brokers[1].Stop()
	brokers[1].Cont()
	brokers[2].Terminate()
	require.NotEqual(t, -1, brokers[2].Wait(), "it ended by itself")
	require.Contains(t, brokers[2].Log(), "Server Exiting")
}
