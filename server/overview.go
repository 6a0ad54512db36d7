package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
	"github.com/rewardloop/rewardloop/store"
)

// Overview is a summary of the state of the server, as returned by GET /v1/overview.
type Overview struct {
	Now     time.Time `json:"now"`
	Version string    `json:"version"`
	Ready   bool      `json:"ready"`
	Reasons []string  `json:"reasons"`
	// Status describes why the server is not ready and what samples wait for, the worst first. If there is
	// nothing to report, Status has one line with level ok.
	Status      []StatusLine  `json:"status"`
	InFlight    int           `json:"in_flight"`
	Waiting     int           `json:"waiting"`
	Running     int           `json:"running"`
	Slots       int           `json:"slots"`
	Busy        int           `json:"busy"`
	PerSecond   *float64      `json:"samples_per_s"` // over the last 10 s
	ScoredTotal uint64        `json:"scored_total"`
	FailedTotal uint64        `json:"failed_total"`
	HeldBytes   int64         `json:"held_bytes"`
	Runs        []RunOverview `json:"runs"`
	Store       store.State   `json:"store"`
}

// StatusLine is one line of Overview.Status. Level is ok, wait or bad; Link is the view of the status page with
// more details.
type StatusLine struct {
	Level string `json:"level"`
	Text  string `json:"text"`
	Link  string `json:"link"`
}

// RunOverview is a summary of the newest step of a run.
type RunOverview struct {
	Run           string        `json:"run"`
	Step          int64         `json:"step"`
	Split         rewards.Split `json:"split"`
	Samples       int           `json:"samples"`
	Expected      *int          `json:"expected"`
	Mean          *float64      `json:"mean"`
	Std           *float64      `json:"std"`
	Exposed       float64       `json:"exposed_s"`
	ExposedShare  *float64      `json:"exposed_share"`
	FailedShare   *float64      `json:"failed_share"`
	Groups        int           `json:"groups"`
	ZeroStdGroups int           `json:"zero_std_groups"`
}

// Bounds of an overview.
const (
	overviewAge     = 900 * time.Millisecond // for which viewers share one
	overviewRuns    = 50
	overviewPending = 2000
	overviewLines   = 8
	rateOver        = 10 * time.Second
)

// overviews makes overviews, one for all who look.
type overviews struct {
	mu     sync.Mutex
	at     time.Time // guarded by mu
	latest *Overview // guarded by mu
	totals []total   // guarded by mu; for the rate
}

type total struct {
	at time.Time
	n  uint64
}

// overview answers GET /v1/overview.
func (s *Server) overview(c *gin.Context) {
	s.write(c, compat.JSONReply(http.StatusOK, false, s.glance(c)))
}

// glance is the newest overview, which several viewers share.
func (s *Server) glance(c *gin.Context) *Overview {
	o := &s.overviews
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.latest != nil && now.Sub(o.at) < overviewAge {
		return o.latest
	}
	v := &Overview{Now: now.UTC(), Version: s.version, Reasons: []string{}, Runs: []RunOverview{}}
	for _, err := range s.notReady(c.Request.Context(), s.loop.Progress()) {
		v.Reasons = append(v.Reasons, err.Error())
	}
	v.Ready = len(v.Reasons) == 0
	v.InFlight = s.loop.InFlight()
	v.HeldBytes, _ = s.loop.Bytes()
	for _, w := range s.presence.Workers() {
		v.Busy += w.Busy
		most := 0
		for _, p := range w.Profiles {
			most = max(most, p.Capacity)
		}
		v.Slots += most
	}
	for _, p := range s.loop.Progress() {
		v.Waiting += p.Waiting
		v.Running += p.Running
	}
	runs := s.loop.Runs(0)
	for _, r := range runs {
		for outcome, n := range r.Outcomes {
			switch rewards.Outcome(outcome) {
			case rewards.Scored:
				v.ScoredTotal += n
			case rewards.OutcomeCancelled:
			default:
				v.FailedTotal += n
			}
		}
		if len(v.Runs) < overviewRuns && len(r.Steps) > 0 {
			v.Runs = append(v.Runs, runOverview(r))
		}
	}
	v.PerSecond = o.rate(now, v.ScoredTotal+v.FailedTotal)
	v.Status = s.statusLines(v, runs)
	if kept := s.kept(); kept != nil {
		v.Store = kept.State()
	}
	o.latest, o.at = v, now
	return v
}

// rate is the samples that ended in a second, over the last 10 s. The caller holds mu.
func (o *overviews) rate(now time.Time, n uint64) *float64 {
	o.totals = append(o.totals, total{now, n})
	for len(o.totals) > 2 && now.Sub(o.totals[1].at) > rateOver {
		o.totals = o.totals[1:]
	}
	first := o.totals[0]
	took := now.Sub(first.at).Seconds()
	if took == 0 || n < first.n { // a run was forgotten
		return nil
	}
	r := math.Round(float64(n-first.n)/took*100) / 100
	return &r
}

// runOverview is the newest step of a run.
func runOverview(r loop.RunState) RunOverview {
	st := r.Steps[0]
	v := RunOverview{Run: r.Run, Step: st.Step, Split: st.Split, Samples: st.Arrived, Exposed: st.ExposedMS / 1000}
	if st.Expected > 0 {
		v.Expected = &st.Expected
	}
	if whole := st.ArrivalMS + st.ExposedMS; whole > 0 {
		share := st.ExposedMS / whole
		v.ExposedShare = &share
	}
	if len(st.Stats) > 0 {
		c := st.Stats[0]
		v.Mean, v.Std, v.Groups, v.ZeroStdGroups = c.Mean, c.Std, c.Groups, c.ZeroStdGroups
	}
	ended, failed := 0, 0
	for outcome, n := range st.Outcomes {
		if outcome != rewards.OutcomeCancelled {
			ended += n
			if outcome != rewards.Scored {
				failed += n
			}
		}
	}
	if ended > 0 {
		share := float64(failed) / float64(ended)
		v.FailedShare = &share
	}
	return v
}

// statusLines say what is waited for, and why.
func (s *Server) statusLines(v *Overview, runs []loop.RunState) []StatusLine {
	var lines []StatusLine
	add := func(level, link, text string, args ...any) {
		lines = append(lines, StatusLine{level, fmt.Sprintf(text, args...), link})
	}
	for _, why := range v.Reasons {
		add("bad", "#/failures", "not ready: %s", brief(why))
	}
	for _, p := range s.ailing() {
		add("bad", "#/pending", "reward %s: %s; %d samples wait, %d run", p.Reward, brief(p.Why), p.Waiting, p.Running)
	}
	pending, _ := s.loop.Pending(overviewPending)
	for _, r := range runs {
		for _, st := range r.Steps {
			// All that is to come has come: the trainer waits.
			if st.InFlight == 0 || !st.Ended && (st.Expected == 0 || st.Arrived < st.Expected) {
				continue
			}
			var oldest *loop.PendingSample
			for i := range pending {
				if p := &pending[i]; p.Run == r.Run && p.Step == st.Step && (oldest == nil || p.LastError != "" && oldest.LastError == "") {
					oldest = p
				}
			}
			why, since := "", 0.0
			if oldest != nil {
				since = oldest.AgeMS
				why = brief(cmp.Or(oldest.LastError, oldest.Waits, strings.ReplaceAll(oldest.Stage, "_", " ")))
				if oldest.Attempt > 1 {
					why += fmt.Sprintf(" (attempt %d)", oldest.Attempt)
				}
			}
			link := "#/run/" + url.PathEscape(r.Run) + "/step/" + strconv.FormatInt(st.Step, 10) + "?split=" + string(st.Split)
			add("wait", link, "step %d of run %s waits for %s, the oldest for %s: %s", st.Step, r.Run, rewards.Count(st.InFlight, "sample"), showMS(since), why)
		}
	}
	if len(lines) == 0 {
		switch {
		case v.InFlight > 0:
			add("ok", "#/workers", "%s in flight, %d of %d places busy; no step waits for rewards", rewards.Count(v.InFlight, "sample"), v.Busy, v.Slots)
		default:
			add("ok", "#/workers", "nothing is waited for: no sample is in flight")
		}
	}
	return lines[:min(len(lines), overviewLines)]
}

// How often events are looked for, and how many viewers have them at a time.
const (
	eventsEvery    = 250 * time.Millisecond
	eventsOverview = 4  // looks at results for one at the overview
	eventsComment  = 60 // looks without an event for a comment: 15 s
	eventKeys      = 50
	maxViewers     = 64
)

// events answers GET /v1/events with Server-Sent Events: each change of the overview and the results.
func (s *Server) events(c *gin.Context) {
	if n := s.viewers.Add(1); n > maxViewers {
		s.viewers.Add(-1)
		s.refuse(c, compat.Faultf(rewards.Unavailable, "%d viewers receive events already; poll /v1/overview instead", maxViewers))
		return
	}
	defer s.viewers.Add(-1)
	h := c.Writer.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // of proxies
	c.Writer.WriteHeader(http.StatusOK)
	out := http.NewResponseController(c.Writer)
	send := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout)) // a viewer that reads nothing
		if _, err := c.Writer.WriteString(text); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	t := time.NewTicker(eventsEvery)
	defer t.Stop()
	var seen string
	var latest int64
	quiet := 0
	for n := 0; !s.admission.isClosed(); n++ {
		text := ""
		if n%eventsOverview == 0 {
			if v := changes(s.glance(c)); v != seen {
				seen = v
				text += event("overview", s.glance(c))
			}
		}
		if kept := s.kept(); kept != nil && kept.Latest() != latest {
			first := latest == 0
			latest = kept.Latest()
			if !first || latest > 0 {
				text += s.newResults(c, kept)
			}
		}
		if quiet++; text != "" {
			quiet = 0
		} else if quiet >= eventsComment {
			text, quiet = ": still here\n\n", 0
		}
		if text != "" && !send(text) {
			return
		}
		select {
		case <-t.C:
		case <-c.Request.Context().Done():
			return
		case <-s.life.Done():
			return
		}
	}
}

// changes is an overview without what changes by itself.
func changes(v *Overview) string {
	own := *v
	own.Now = time.Time{}
	b, err := json.Marshal(&own)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func event(name string, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return "event: " + name + "\ndata: " + string(b) + "\n\n"
}

// newResults tells of the newest rows.
func (s *Server) newResults(c *gin.Context, kept *store.Store) string {
	rows, _, err := kept.Reader().Results(c.Request.Context(), store.Query{Sort: store.Newest, Limit: eventKeys})
	if err != nil || len(rows) == 0 {
		return ""
	}
	keys := make([]int64, len(rows))
	for i, r := range rows {
		keys[i] = r.Key
	}
	slices.Sort(keys)
	return event("results", map[string]any{"keys": keys, "run": rows[0].Run, "step": rows[0].Step})
}
