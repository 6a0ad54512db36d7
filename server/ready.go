package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
	"github.com/rewardloop/rewardloop/wire"
)

// selfTest runs the caller's test at most once at a time and remembers its result
// for a while, so that probes cost nothing.
type selfTest struct {
	life    context.Context //nolint:containedctx // a test outlives the probe that began it
	every   time.Duration
	timeout time.Duration
	test    func(context.Context) error // nil: always passes
	running sync.WaitGroup

	mu      sync.Mutex
	current *testRun // the one under way or the last one; guarded by mu
}

// testRun is one run; err and at are set before done is closed.
type testRun struct {
	done chan struct{}
	at   time.Time
	err  error
}

func newSelfTest(life context.Context, cfg Config, test func(context.Context) error) *selfTest {
	return &selfTest{life: life, every: cfg.SelfTestEvery, timeout: cfg.SelfTestTimeout, test: test}
}

// result returns the last result if it is fresh, else that of a run, waiting for it
// no longer than the timeout. A run that ignores its context is not started twice.
func (t *selfTest) result(ctx context.Context) error {
	if t.test == nil {
		return nil
	}
	run := t.run() //nolint:contextcheck // a test outlives the probe that began it
	timer := time.NewTimer(t.timeout)
	defer timer.Stop()
	select {
	case <-run.done:
		return run.err
	case <-timer.C:
		return fmt.Errorf("no result after %s", t.timeout)
	case <-ctx.Done():
		return errors.New("has no result yet")
	}
}

func (t *selfTest) run() *testRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.current; r != nil {
		select {
		case <-r.done:
			if time.Since(r.at) < t.every {
				return r
			}
		default:
			return r
		}
	}
	r := &testRun{done: make(chan struct{})}
	t.current = r
	t.running.Go(func() { // ends with the test, at the latest when it heeds the end of the server's life
		ctx, cancel := context.WithTimeout(t.life, t.timeout)
		defer cancel()
		r.err = t.guarded(ctx)
		r.at = time.Now()
		close(r.done)
	})
	return r
}

func (t *selfTest) guarded(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the self-test panicked: %v", p)
		}
	}()
	return t.test(ctx)
}

func (t *selfTest) wait(ctx context.Context) error {
	return waitFor(ctx, func() { t.running.Wait() })
}

// notReady lists why no samples should be sent here: an orchestrator then takes the gateway
// from all its clients, so that it is not for a reward of several that is stopped.
func (s *Server) notReady(ctx context.Context, progress []loop.Progress) []error {
	var why rewards.Faults
	why.Add(s.admission.isClosed() || s.loop.Draining(), "draining")
	live, workers := 0, s.presence.Workers()
	for _, w := range workers {
		if w.State == wire.WorkerReady {
			live++
		}
	}
	why.Add(live == 0, "none of %d workers is ready", len(workers))
	if len(why) == 0 && len(progress) > 0 && !slices.ContainsFunc(progress, func(p loop.Progress) bool { return p.State != loop.Stopped }) {
		for _, p := range progress {
			why = append(why, fmt.Errorf("reward %s: %s", p.Reward, p.Why))
		}
	}
	if len(why) > 0 {
		return why // a self-test could only time out
	}
	if err := s.selfTest.result(ctx); err != nil {
		why = append(why, fmt.Errorf("self-test: %w", err))
	}
	return why
}

// ready answers GET /readyz?reward=: 200 if samples can be sent here, or those of one
// reward, else 503. Probes show no token; who shows it, or needs none, is told why, and how
// each reward fares.
func (s *Server) ready(c *gin.Context) {
	progress := s.loop.Progress()
	why := s.notReady(c.Request.Context(), progress)
	if name, asked := c.GetQuery("reward"); asked {
		i := slices.IndexFunc(progress, func(p loop.Progress) bool { return p.Reward == cmp.Or(name, defaultReward) })
		if i < 0 {
			_, f := compat.LookUp(s.askable(), name)
			s.refuse(c, cmp.Or(f, compat.Faultf(rewards.UnknownReward, "no reward named %q", strictjson.Clip(name))))
			return
		}
		if progress = progress[i : i+1]; progress[0].State == loop.Stopped && len(why) == 0 {
			why = append(why, errors.New(progress[0].Why))
		}
	}
	out := map[string]any{"ready": len(why) == 0}
	if _, shown := s.tokens.presented(c.Request, false); shown {
		out["rewards"] = orEmpty[loop.Progress](progress)
		if len(why) > 0 {
			texts := make([]string, len(why))
			for i, err := range why {
				texts[i] = err.Error()
			}
			out["reasons"] = texts
		}
	}
	if len(why) > 0 {
		s.write(c, compat.JSONReply(http.StatusServiceUnavailable, true, out))
		return
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, out))
}

// health answers GET /healthz: the process lives and answers.
func (s *Server) health(c *gin.Context) {
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{"status": "ok"}))
}

// Describe replaces the descriptions of the rewards. The names and columns must be those of
// Options.Profiles.
func (s *Server) Describe(profiles []Profile) { s.profiles.Store(&profiles) }

// rewards are those that can be asked for.
func (s *Server) rewards() []Profile { return *s.profiles.Load() }

// reloading answers POST /v1/reload: what holds from now on, and what needs a restart; 422 with
// everything that is wrong where nothing was changed, 503 while another reload is under way.
func (s *Server) reloading(c *gin.Context) {
	if s.reload == nil {
		s.refuse(c, &compat.Fault{Status: http.StatusNotFound, Class: "no_reload", Message: "this process was started without a configuration that can be read again"})
		return
	}
	if !s.rereads.TryLock() {
		s.refuse(c, &compat.Fault{Status: http.StatusServiceUnavailable, Class: "reloading", Message: "another reload of the configuration is in progress; try again", Pause: true})
		return
	}
	defer s.rereads.Unlock()
	done, err := s.reload(c.Request.Context())
	if err != nil {
		s.refuse(c, &compat.Fault{Status: http.StatusUnprocessableEntity, Class: "bad_configuration", Message: err.Error()})
		return
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{"applied": orEmpty(done.Applied), "restart": orEmpty(done.Restart)}))
}
