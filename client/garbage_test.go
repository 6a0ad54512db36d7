package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// rawClient sends what it is told, and collects what it is told.
type rawClient struct {
	conn  *wsconn.Conn
	inbox chan any
	ended chan error
}

// Binary implements wsconn.Handler.
func (c *rawClient) Binary(io.Reader) error { return nil }

// Text implements wsconn.Handler.
func (c *rawClient) Text(b []byte) error {
	v, err := wire.DecodeControl(b)
	if err != nil {
		return err
	}
	c.inbox <- v
	return nil
}

func dialRaw(t *testing.T, url string) *rawClient {
	t.Helper()
	conn, err := wsconn.Dial(t.Context(), url+"/v1/stream", wsconn.DialConfig{Subprotocol: wire.Protocol})
	require.NoError(t, err)
	c := &rawClient{conn: conn, inbox: make(chan any, 4096), ended: make(chan error, 1)}
	var wg sync.WaitGroup
	wg.Go(func() { c.ended <- conn.Run(context.Background(), c) })
	t.Cleanup(func() {
		_ = conn.Close(wsconn.CloseNormal, "")
		wg.Wait()
	})
	return c
}

// next waits for the next message that is neither an ack nor credit.
func (c *rawClient) next(t *testing.T) any {
	t.Helper()
	for {
		select {
		case v := <-c.inbox:
			switch v.(type) {
			case *wire.Ack, *wire.Credit:
				continue
			}
			return v
		case err := <-c.ended:
			c.ended <- err // whoever asks next
			if len(c.inbox) > 0 {
				continue // what came before the end is told before it
			}
			require.Fail(t, "the connection ended", "%v", err)
		case <-time.After(20 * time.Second):
			require.Fail(t, "no message came for 20 s")
		}
	}
}

func (c *rawClient) send(t *testing.T, b []byte) {
	t.Helper()
	require.NoError(t, c.conn.SendBinary(t.Context(), b))
}

// alive proves that the connection works: a sample goes through.
func (c *rawClient) alive(t *testing.T, id string) {
	t.Helper()
	c.send(t, encoded(t, rig.Sample(id, 300)))
	res, ok := c.next(t).(*wire.Result)
	require.True(t, ok)
	require.Equal(t, id, res.ID)
	require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
	require.InDelta(t, rig.Hash(rig.Sample(id, 300)), *res.RewardScore, 0)
}

func encoded(t *testing.T, s *rewards.Sample) []byte {
	t.Helper()
	msg, err := wire.Encode(s, wire.Options{})
	require.NoError(t, err)
	return msg.Bytes()
}

// frame puts a safetensors message together, however wrong.
func frame(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

// header describes one tensor and a sample with one medium.
func header(id, tensor, media string) string {
	sample := fmt.Sprintf(`{"id":%q,"media":[%s]}`, id, media)
	return fmt.Sprintf(`{"__metadata__":{"sample":%q},"m":%s}`, sample, tensor)
}

const (
	goodTensor = `{"dtype":"U8","shape":[10,10,3],"data_offsets":[0,300]}`
	goodMedia  = `{"tensor":"m","kind":"image","layout":"HWC","encoding":"raw"}`
)

// garbageNode is a gateway with small limits.
func garbageNode(t *testing.T) *node {
	t.Helper()
	return newNode(t, rig.Options{
		Workers: 1, Worker: rig.Settings{Places: 4}, Profiles: profile(t, hashComponent()),
		Loop: loop.Config{MessageBytes: 100_000, CreditBytes: 200_000, CreditSamples: 64},
	})
}

func TestABadSampleIsAnsweredByNameAndHurtsNobodyElse(t *testing.T) {
	t.Parallel()
	n := garbageNode(t)
	whole := encoded(t, rig.Sample("bad", 300))
	long := binary.LittleEndian.AppendUint64(nil, 1<<40)
	for name, c := range map[string]struct {
		message []byte
		class   rewards.Class
		id      string // empty: nobody could read it
	}{
		"the good one, to compare":        {frame(header("bad", goodTensor, goodMedia), 300), "", "bad"},
		"nothing":                         {nil, rewards.Malformed, ""},
		"half a length":                   {[]byte{1, 2, 3}, rewards.Malformed, ""},
		"a length and nothing":            {[]byte{8, 0, 0, 0, 0, 0, 0, 0}, rewards.Malformed, ""},
		"a header of a terabyte":          {long, rewards.TooLarge, ""},
		"a header that is no JSON":        {frame("{{{{{{{{", 0), rewards.Malformed, ""},
		"a header that is a list":         {frame("[1,2,3] ", 0), rewards.Malformed, ""},
		"a header of another protocol":    {frame(`{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0), rewards.Malformed, ""},
		"a header with half its bytes":    {whole[:40], rewards.Malformed, ""},
		"a sample without an id":          {frame(header("", goodTensor, goodMedia), 300), rewards.Malformed, ""},
		"one byte too few":                {whole[:len(whole)-1], rewards.Malformed, "bad"},
		"no data at all":                  {whole[:len(whole)-300], rewards.Malformed, "bad"},
		"one byte too many":               {append(bytes.Clone(whole), 0), rewards.Malformed, "bad"},
		"beyond message_bytes":            {encoded(t, rig.Sample("bad", 120_000)), rewards.TooLarge, "bad"},
		"an unknown dtype":                {frame(header("bad", strings.Replace(goodTensor, "U8", "Q4", 1), goodMedia), 300), rewards.Malformed, "bad"},
		"a dtype that does not fit":       {frame(header("bad", strings.Replace(goodTensor, "U8", "F32", 1), goodMedia), 300), rewards.Malformed, "bad"},
		"a shape that does not fit":       {frame(header("bad", strings.Replace(goodTensor, "[10,10,3]", "[10,11,3]", 1), goodMedia), 300), rewards.Malformed, "bad"},
		"a shape that overflows":          {frame(header("bad", strings.Replace(goodTensor, "[10,10,3]", "[4294967296,4294967296,3]", 1), goodMedia), 300), rewards.Malformed, "bad"},
		"a negative shape":                {frame(header("bad", strings.Replace(goodTensor, "[10,10,3]", "[-10,-10,3]", 1), goodMedia), 300), rewards.Malformed, "bad"},
		"offsets that overlap nothing":    {frame(header("bad", strings.Replace(goodTensor, "[0,300]", "[10,310]", 1), goodMedia), 310), rewards.Malformed, "bad"},
		"a shape of two dimensions":       {frame(header("bad", strings.Replace(goodTensor, "[10,10,3]", "[100,3]", 1), goodMedia), 300), rewards.Malformed, "bad"},
		"five channels":                   {frame(header("bad", strings.Replace(goodTensor, "[10,10,3]", "[10,6,5]", 1), goodMedia), 300), rewards.Malformed, "bad"},
		"a layout that does not exist":    {frame(header("bad", goodTensor, strings.Replace(goodMedia, "HWC", "WHC", 1)), 300), rewards.Malformed, "bad"},
		"a layout of a video":             {frame(header("bad", goodTensor, strings.Replace(goodMedia, "HWC", "THWC", 1)), 300), rewards.Malformed, "bad"},
		"no layout":                       {frame(header("bad", goodTensor, strings.Replace(goodMedia, `"layout":"HWC",`, "", 1)), 300), rewards.Malformed, "bad"},
		"an encoding nobody reads":        {frame(header("bad", goodTensor, strings.Replace(goodMedia, `"raw"`, `"avi"`, 1)), 300), wire.UnsupportedEncoding, "bad"},
		"an unknown key of the sample":    {frame(strings.Replace(header("bad", goodTensor, goodMedia), `\"media\"`, `\"colour\":1,\"media\"`, 1), 300), rewards.Malformed, "bad"},
		"a key in the wrong case":         {frame(strings.Replace(header("bad", goodTensor, goodMedia), `\"media\"`, `\"Prompt\":\"x\",\"media\"`, 1), 300), rewards.Malformed, "bad"},
		"a key twice":                     {frame(strings.Replace(header("bad", goodTensor, goodMedia), `\"media\"`, `\"id\":\"other\",\"media\"`, 1), 300), rewards.Malformed, "bad"},
		"a tensor that nobody names":      {frame(header("bad", goodTensor, ""), 300), rewards.Malformed, "bad"},
		"a medium without its tensor":     {frame(header("bad", goodTensor, strings.Replace(goodMedia, `"m"`, `"other"`, 1)), 300), rewards.Malformed, "bad"},
		"a run that is another's":         {encoded(t, &rewards.Sample{ID: "bad", Run: "other"}), rewards.Malformed, "bad"},
		"a reward that nobody knows":      {encoded(t, &rewards.Sample{ID: "bad", Reward: "none"}), rewards.UnknownReward, "bad"},
		"a header of 2 MiB":               {frame(header("bad", goodTensor, goodMedia)+strings.Repeat(" ", 2<<20), 300), rewards.TooLarge, ""},
		"a number that is no number":      {frame(strings.Replace(header("bad", goodTensor, goodMedia), `\"media\"`, `\"step\":99999999999999999999,\"media\"`, 1), 300), rewards.Malformed, "bad"},
		"invalid UTF-8 in the prompt":     {frame(strings.Replace(header("bad", goodTensor, goodMedia), `\"media\"`, `\"prompt\":\"`+"\xff"+`\",\"media\"`, 1), 300), rewards.Malformed, ""},
		"ground truth nested for ever":    {frame(strings.Replace(header("bad", goodTensor, goodMedia), `\"media\"`, `\"ground_truth\":`+strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000)+`,\"media\"`, 1), 300), rewards.Malformed, "bad"},
		"a deadline that is not positive": {frame(strings.Replace(header("bad", goodTensor, goodMedia), `\"media\"`, `\"deadline_ms\":-5,\"media\"`, 1), 300), rewards.Malformed, "bad"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := dialRaw(t, n.url)
			hello, err := wire.EncodeControl(&wire.Hello{Run: "run " + name})
			require.NoError(t, err)
			require.NoError(t, raw.conn.Send(hello))
			require.IsType(t, &wire.Welcome{}, raw.next(t))
			raw.alive(t, "before")
			raw.send(t, c.message)
			switch m := raw.next(t).(type) {
			case *wire.Error:
				require.Empty(t, c.id, "the id was not told: %+v", m)
				require.Equal(t, c.class, m.Code, m.Message)
				require.NotEmpty(t, m.Message)
			case *wire.Result:
				require.Equal(t, c.id, m.ID)
				if c.class == "" {
					require.Equal(t, rewards.Scored, m.Outcome, m.Errors)
					break
				}
				require.Equal(t, rewards.Rejected, m.Outcome)
				require.Equal(t, c.class, m.Errors[0].Class, m.Errors)
				require.NotEmpty(t, m.Errors[0].Message)
				require.Nil(t, m.RewardScore)
			default:
				require.Fail(t, "neither error nor result", "%T", m)
			}
			raw.alive(t, "after")
			if c.class != "" {
				raw.alive(t, "bad") // its id is not used up
			}
		})
	}
	t.Cleanup(func() { // after every case; a worker gives its reference back just after the result
		assert.Eventually(t, func() bool {
			held, _ := n.Manager.Bytes()
			return held == 0 && n.Buffers.Live() == 0
		}, 10*time.Second, time.Millisecond, "bytes of frames that nobody released")
	})
}

func TestABadControlMessageIsAnsweredByNameAndTheConnectionLives(t *testing.T) {
	t.Parallel()
	n := garbageNode(t)
	raw := dialRaw(t, n.url)
	complaint := func(message string, class rewards.Class) {
		t.Helper()
		require.NoError(t, raw.conn.Send([]byte(message)))
		e, ok := raw.next(t).(*wire.Error)
		require.True(t, ok, message)
		require.Equal(t, class, e.Code, "%s: %s", message, e.Message)
	}
	complaint(`{"type":"confirm","seq":1}`, rewards.Malformed) // before hello
	raw.send(t, encoded(t, rig.Sample("early", 300)))
	require.Equal(t, rewards.Malformed, raw.next(t).(*wire.Error).Code)
	require.NoError(t, raw.conn.Send([]byte(`{"type":"hello","run":"r"}`)))
	require.IsType(t, &wire.Welcome{}, raw.next(t))
	for _, message := range []string{
		``, `{`, `null`, `[]`, `"hello"`, `{}`, `{"type":7}`, `{"type":"dance"}`, `{"type":"hello","run":"r"}`,
		`{"type":"confirm"}`, `{"type":"confirm","seq":-1}`, `{"type":"confirm","seq":1e99}`, `{"type":"confirm","seq":1,"seq":2}`, `{"type":"confirm","Seq":1}`,
		`{"type":"cancel","ids":[]}`, `{"type":"cancel","ids":"x"}`, `{"type":"cancel"}`, `{"type":"step","step":1,"expected":-4}`,
		`{"type":"step","step":1,"expected":4,"split":"test"}`, `{"type":"welcome","session":"s"}`, `{"type":"credit","samples":9,"bytes":9}`,
		`{"type":"confirm","seq":1} trailing`, strings.Repeat("[", 5000), `{"type":"result","id":"x","outcome":"scored","reward_score":1}`,
	} {
		complaint(message, rewards.Malformed)
	}
	raw.alive(t, "x")
	for _, message := range []string{
		`{"type":"confirm","seq":99999999}`, `{"type":"cancel","ids":["nobody"]}`, `{"type":"step","step":1,"expected":4}`,
		`{"type":"step","split":"val","step":1,"expected":8,"total":true}`, `{"type":"end_of_step","step":1}`,
	} {
		require.NoError(t, raw.conn.Send([]byte(message))) // valid, and no answer is due
	}
	raw.alive(t, "y")
}

func TestARefusedHelloIsExplainedBeforeTheConnectionCloses(t *testing.T) {
	t.Parallel()
	n := garbageNode(t)
	for hello, class := range map[string]rewards.Class{
		`{"type":"hello","run":"_edge"}`:               rewards.Malformed,
		`{"type":"hello","run":"r","reward":"none"}`:   rewards.UnknownReward,
		`{"type":"hello","run":"r","epoch":4}`:         rewards.Malformed,
		`{"type":"hello","run":"r","client":"server"}`: "",
	} {
		raw := dialRaw(t, n.url)
		require.NoError(t, raw.conn.Send([]byte(hello)))
		if class == "" {
			require.IsType(t, &wire.Welcome{}, raw.next(t))
			continue
		}
		e, ok := raw.next(t).(*wire.Error)
		require.True(t, ok)
		require.Equal(t, class, e.Code, e.Message)
		select {
		case err := <-raw.ended:
			require.ErrorContains(t, err, "hello refused")
		case <-time.After(10 * time.Second):
			require.Fail(t, "the connection lives on")
		}
	}
}

func TestTheSameIDWithOtherBytesAndSamplesBeyondTheCreditAreRefusedOnTheirOwn(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	wait := hashComponent()
	wait.Scorer = rewards.ScorerFunc(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		select {
		case <-block:
		case <-ctx.Done():
		}
		return rewards.Score{Value: rig.Hash(s)}, nil
	})
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{wait}, Timeout: time.Minute})
	require.NoError(t, err)
	n := newNode(t, rig.Options{
		Workers: 1, Worker: rig.Settings{Places: 8}, Profiles: map[string]*rewards.Manager{"": m}, Loop: loop.Config{CreditSamples: 4},
	})
	raw := dialRaw(t, n.url)
	require.NoError(t, raw.conn.Send([]byte(`{"type":"hello","run":"r"}`)))
	require.IsType(t, &wire.Welcome{}, raw.next(t))
	raw.send(t, encoded(t, rig.Sample("0", 300)))
	raw.send(t, encoded(t, rig.Sample("0", 600)))
	refused, ok := raw.next(t).(*wire.Result)
	require.True(t, ok)
	require.Equal(t, rewards.IDReused, refused.Errors[0].Class)
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		raw.send(t, encoded(t, rig.Sample(id, 300)))
	}
	over := 0
	scored := map[string]bool{}
	closed := false
	for over+len(scored) < 6 {
		res, ok := raw.next(t).(*wire.Result)
		require.True(t, ok)
		if res.Outcome == rewards.Rejected {
			require.Equal(t, rewards.OverCredit, res.Errors[0].Class, res.ID)
			over++
		} else {
			require.Equal(t, rewards.Scored, res.Outcome)
			require.InDelta(t, rig.Hash(rig.Sample(res.ID, 300)), *res.RewardScore, 0)
			scored[res.ID] = true
		}
		if over == 2 && !closed {
			closed = true
			close(block)
		}
	}
	require.Equal(t, 2, over)
	require.True(t, scored["0"], "the first of the id stays")
	raw.alive(t, "6")
}
