package loop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/memqueue"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// irrevocable is a queue that takes nothing back.
type irrevocable struct{ *memqueue.Queue }

func (irrevocable) Revoke(context.Context, wire.AttemptKey) error { return errors.New("as planned") }

// bare runs a test in a bubble on a gateway with options of the test's own, whose workers
// are stubs.
func bare(t *testing.T, o loop.Options, test func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := memqueue.New(1, lease)
		o.Presence = e
		o.Queue = irrevocable{e}
		m, err := loop.New(o)
		require.NoError(t, err)
		m.Start(t.Context())
		test(t, &stage{Rig: &rig.Rig{Manager: m}, queue: e})
		m.Stop()
		e.Close()
	})
}

func TestEveryFaultOfAConfigIsNamed(t *testing.T) {
	t.Parallel()
	_, err := loop.New(loop.Options{Config: loop.Config{
		MaxBytes: 1000, MessageBytes: 2000, CreditSamples: -1, OnStepDeadline: "perhaps", Weights: map[string]float64{"a": -1},
		Dispatch: dispatch.Config{Policy: "best", BackupAfter: 0.5, BackupShare: 2},
	}})
	for _, part := range []string{
		"credit_samples: want 0…1000000, got -1", `on_step_deadline: want one of mask, fail, proceed_with_shortfall, got "perhaps"`,
		"message_bytes: want at most 1KB, which is max_bytes, got 2KB", `run_weights: the weight of "a" must be positive, got -1`,
		`dispatch.policy: want one of random, speed_weighted, got "best"`, "dispatch.backup_after: want 0 (never), or 1 and more", "dispatch.backup_share: want 1e-06…1, got 2",
	} {
		require.ErrorContains(t, err, part)
	}
}

func TestAGatewayThatWasNeverStartedStops(t *testing.T) {
	t.Parallel()
	m, err := loop.New(loop.Options{})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(m.Gateway(), "gw-"), "it has a name of its own")
	m.Stop()
	m.Stop()
}

func TestTheFirstSamplesOfAStepAreShownWithoutTheirBytes(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var shown []loop.Examined
	o := loop.Options{Config: loop.Config{NumExamine: 2}, Examine: func(x loop.Examined) {
		mu.Lock()
		defer mu.Unlock()
		shown = append(shown, x)
	}}
	bare(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		w := s.stub(t, "w")
		defer w.release()
		for _, id := range []string{"cancelled", "a", "b", "c"} {
			sample := rig.Sample(id, 30)
			sample.Prompt, sample.GroundTruth = "a cat", []byte(`"cat"`)
			f := s.submit(t, "_run", sample)
			if id == "cancelled" {
				f.Cancel("not wanted")
				continue
			}
			w.answer(t, w.claim(t), 2)
			result(t, f)
		}
		require.Len(t, shown, 2)
		for i, id := range []string{"a", "b"} {
			x := shown[i]
			require.Equal(t, id, x.Sample.ID)
			require.Equal(t, "_run", x.Sample.Run)
			require.Equal(t, "a cat", x.Sample.Prompt)
			require.JSONEq(t, `"cat"`, string(x.Sample.GroundTruth))
			require.Equal(t, []int{1, 10, 3}, x.Sample.Media[0].Shape)
			require.Empty(t, x.Sample.Media[0].Data)
			require.InDelta(t, 2.0, *x.Result.RewardScore, 0)
		}
	})
}

func gaugesOf(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	all, err := reg.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range all {
		if g := f.GetMetric()[0].GetGauge(); g != nil {
			values[strings.TrimPrefix(f.GetName(), "rewardloop_")] = g.GetValue()
		}
	}
	return values
}

func TestThePlacesOfAProfileAreTold(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	bare(t, loop.Options{Metrics: reg}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		p.send(t, rig.Sample("waits", 300))
		before := gaugesOf(t, reg)
		require.InDelta(t, 1, before["wanted_places"], 0)
		require.InDelta(t, 0, before["live_places"], 0)
		w := s.stub(t, "w")
		defer w.release()
		w.claim(t)
		p.send(t, rig.Sample("more", 300))
		after := gaugesOf(t, reg)
		require.InDelta(t, 2, after["wanted_places"], 0)
		require.InDelta(t, 8, after["live_places"], 0)
		require.InDelta(t, 1, after["busy_places"], 0)
		require.InDelta(t, 2, after["loop_samples_in_flight"], 0)
		require.Greater(t, after["loop_held_bytes"], 600.0)
		require.Positive(t, after["loop_granted_bytes"])
		require.InDelta(t, float64(s.Manager.StepBytes()), after["loop_step_rows_bytes"], 0)
		require.Positive(t, after["loop_step_rows_bytes"])
	})
}

// To take an attempt back is a hint: a sample ends although the queue will not hear of it.
func TestAQueueThatTakesNothingBackCostsNoResult(t *testing.T) {
	t.Parallel()
	bare(t, loop.Options{}, func(t *testing.T, s *stage) {
		t.Helper()
		w := s.stub(t, "w")
		defer w.release()
		f := s.submit(t, "_run", rig.Sample("x", 3))
		ticket := w.claim(t)
		f.Cancel("not wanted")
		require.Equal(t, rewards.OutcomeCancelled, result(t, f).Outcome)
		w.answer(t, ticket, 1) // too late
		_, _, err := s.Manager.Claim(t.Context(), ticket, "w")
		require.ErrorIs(t, err, wire.ErrGone)
		ticket.Gateway = "another"
		_, _, err = s.Manager.Claim(t.Context(), ticket, "w")
		require.ErrorIs(t, err, wire.ErrGone)
	})
}

// listener keeps what a client hears.
type listener struct{ texts chan string }

func (l listener) Text(b []byte) error {
	l.texts <- string(b)
	return nil
}

func (listener) Binary(io.Reader) error { return nil }

// dialled serves a gateway over a real websocket and connects to it.
func dialled(t *testing.T) (c *wsconn.Conn, heard chan string) {
	t.Helper()
	e := memqueue.New(1, lease)
	m, err := loop.New(loop.Options{Queue: e, Presence: e})
	require.NoError(t, err)
	m.Start(t.Context())
	served := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(served)
		c, err := wsconn.Upgrade(w, r, wsconn.UpgradeConfig{Subprotocols: []string{wire.Protocol}})
		if err == nil {
			_ = m.Serve(r.Context(), c)
		}
	}))
	c, err = wsconn.Dial(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http"), wsconn.DialConfig{Subprotocol: wire.Protocol})
	require.NoError(t, err)
	heard = make(chan string, 1000)
	go func() { _ = c.Run(context.Background(), listener{heard}) }() // ends with the connection
	t.Cleanup(func() {
		_ = c.Close(wsconn.CloseGoingAway, "")
		<-served
		m.Stop()
		e.Close()
		srv.Close()
	})
	return c, heard
}

func TestADeclarationThatComesTooLateIsAnsweredAndTheConnectionLives(t *testing.T) {
	t.Parallel()
	c, heard := dialled(t)
	require.NoError(t, c.Send([]byte(`{"type":"hello","run":"run"}`)))
	enough := time.After(time.Minute)
	for told := ""; !strings.Contains(told, "step 1 (train) ended at its deadline"); {
		require.NoError(t, c.Send([]byte(`{"type":"step","step":1,"expected":2,"deadline_ms":1}`)))
		require.NoError(t, c.Send([]byte(`{"type":"fetch","req":1,"step":1,"chunk":0,"groups":0,"wait_ms":20}`))) // paces the test
		for told = ""; !strings.Contains(told, `"rewards"`) && !strings.Contains(told, `"error"`); {
			select {
			case told = <-heard:
			case <-enough:
				require.Fail(t, "no answer within a minute")
			}
		}
	}
	require.NoError(t, c.Send([]byte(`{"type":"fetch","req":2,"step":7,"chunk":0,"groups":0}`)))
	for told := ""; !strings.Contains(told, `"req":2`); {
		select {
		case told = <-heard:
		case <-enough:
			require.Fail(t, "no answer within a minute")
		}
	}
}

// scripted is a spool that hands out what the test wrote into it.
type scripted struct {
	records []spool.Kept
	fails   error
	damaged int
	dropped []string
}

func (*scripted) Put(spool.Record) error { return nil }
func (*scripted) Flush() error           { return nil }
func (*scripted) Trouble() error         { return nil }

func (s *scripted) Later(r spool.Record) {
	if r.Kind == spool.Drop {
		s.dropped = append(s.dropped, r.ID)
	}
}

func (s *scripted) Each(use func(*spool.Kept) error) error {
	for _, k := range s.records {
		if err := use(&k); errors.Is(err, spool.ErrDamaged) {
			s.damaged++
		} else if err != nil {
			return err
		}
	}
	return s.fails
}

func keptAs(kind spool.Kind, id, meta string, body []byte) spool.Kept {
	return spool.Kept{
		Kind: kind, Run: "run", Epoch: 7, ID: id, Meta: []byte(meta), Size: int64(len(body)),
		Sum: crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)), Body: bytes.NewReader(body),
	}
}

func TestRecordsThatAGatewayCannotUseAreDroppedAndTheOthersAreNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		encoded := func(sample *rewards.Sample) []byte {
			msg, err := wire.Encode(sample, wire.Options{})
			require.NoError(t, err)
			return msg.Bytes()
		}
		frame := func(id string, n int) []byte { return encoded(rig.Sample(id, n)) }
		res, err := wire.EncodeControl(&wire.Result{Type: "result", ID: "answered", Outcome: rewards.Scored, RewardScore: new(1.0)})
		require.NoError(t, err)
		until := fmt.Sprintf(`{"reward":%%q,"arrived":%d,"deadline":%d}`, time.Now().UnixNano(), time.Now().Add(time.Minute).UnixNano())
		own, foreign := fmt.Sprintf(until, ""), fmt.Sprintf(until, "gone")
		damaged := keptAs(spool.Result, "result-damaged", `{}`, res)
		damaged.Sum++
		otherSum := keptAs(spool.Sample, "sum", own, frame("sum", 3))
		otherSum.Sum++
		s := &scripted{records: []spool.Kept{
			keptAs(spool.Run, "", "", nil),
			keptAs(spool.Member, "member", `{`, nil),
			keptAs(spool.Result, "answered", fmt.Sprintf(`{"at":%d}`, time.Now().UnixNano()), res),
			keptAs(spool.Result, "result-meta", `{`, res),
			keptAs(spool.Result, "result-none", `{}`, []byte("{")),
			keptAs(spool.Result, "result-other", `{}`, []byte(`{"type":"draining"}`)),
			damaged,
			keptAs(spool.Sample, "good", own, frame("good", 3)),
			keptAs(spool.Sample, "big-0", own, encoded(ofGroup("big", 0, 100))), // max_bytes was more
			keptAs(spool.Sample, "meta", `{`, frame("meta", 3)),
			keptAs(spool.Sample, "reward", foreign, frame("reward", 3)),
			keptAs(spool.Sample, "head", own, []byte("no frame")),
			keptAs(spool.Sample, "tail", own, frame("tail", 300)[:400]),
			otherSum,
		}}
		e := memqueue.New(1, lease)
		defer e.Close()
		m, err := loop.New(loop.Options{Queue: e, Presence: e, Spool: s, Config: loop.Config{
			MaxBytes: 16 << 10, MessageBytes: 8 << 10, GroupProfiles: []string{""},
		}})
		require.NoError(t, err)
		defer m.Stop()
		got, err := m.Restore()
		require.NoError(t, err)
		good := int64(len(frame("good", 3)))
		require.Equal(t, loop.Restored{Runs: 1, Samples: 1, Results: 1, Dropped: 7, Bytes: good}, got)
		require.Equal(t, []string{"member", "result-meta", "result-none", "result-other", "big-0", "meta", "reward"}, s.dropped)
		require.Equal(t, 4, s.damaged)
		held, _ := m.Bytes()
		require.Equal(t, good, held, "what was dropped holds no memory")
		require.Equal(t, 1, m.InFlight())
	})
}

func TestASpoolThatCannotBeReadStopsTheStart(t *testing.T) {
	t.Parallel()
	m, err := loop.New(loop.Options{Spool: &scripted{fails: errors.New("the disk is gone")}})
	require.NoError(t, err)
	_, err = m.Restore()
	require.ErrorContains(t, err, "loop: restore: the disk is gone")
	m.Stop()
}
