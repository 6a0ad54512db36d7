package server

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // the page is part of the program
	"fmt"
	"html/template"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/failures"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
	"github.com/rewardloop/rewardloop/web"
	"github.com/rewardloop/rewardloop/wire"
)

//go:embed page.html
var pageHTML string

// pageTemplate escapes whatever trainers put into ids and names.
//
//nolint:gochecknoglobals // a table, parsed once
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"ms": showMS, "bytes": showBytes, "score": showScore, "name": showName, "share": showShare,
	"reward": rewardOf, "drift": showDrift, "leapt": leapt, "brief": brief,
}).Parse(pageHTML))

// How much the page shows; the rest is in the state endpoints.
const (
	pagePending = 25
	pageGroups  = 12
	pageSteps   = 8
	pageFails   = 5
)

// pageData is what page.html, the page without scripts, shows.
type pageData struct {
	Version, Now, Uptime string
	Refresh              int
	Ready                bool
	Reasons              []string
	Progress             []loop.Progress // of rewards that do not fare well

	InFlight, Total, Requests, Streams int
	Held, Granted                      int64
	Slots, Busy                        int

	Pending  []loop.PendingSample
	Failures []failures.Failure
	Kinds    int // of failures
	Failed   uint64
	Workers  []wire.WorkerInfo
	Breakers []loop.BreakerInfo
	Runs     []pageRun
	Rewards  []Profile
}

// page answers GET / with the status page for browsers, and with the list of
// endpoints for everybody else. For browsers without scripts /?plain is the state as tables.
func (s *Server) page(c *gin.Context) {
	switch {
	case !asksForHTML(c.Request):
		s.write(c, compat.JSONReply(http.StatusOK, false, s.endpoints()))
	case plain(c.Request):
		s.plainPage(c)
	default:
		s.webPage(c)
	}
}

func asksForHTML(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

func plain(r *http.Request) bool { return r.URL.Query().Has("plain") }

// isShell reports whether a request is for the status page itself: the same bytes for everybody,
// so that they need no token. What the page shows it asks for with one.
func isShell(route string, r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	return route == routeAssets || route == routeRoot && asksForHTML(r) && !plain(r)
}

// webPage answers with the page of package web.
func (s *Server) webPage(c *gin.Context) {
	page, err := web.Page()
	if err != nil {
		s.noPage(c, err)
		return
	}
	h := c.Writer.Header()
	h.Set("Content-Security-Policy", web.Policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Vary", "Accept")
	s.write(c, compat.Reply{Status: http.StatusOK, ContentType: "text/html; charset=utf-8", Body: page})
}

// asset answers GET /assets/{name}: a file of the page. Its name holds the digest of its content,
// so that a browser asks for it once.
func (s *Server) asset(c *gin.Context) {
	name := c.Param("name")
	content, contentType, ok := web.Asset(name)
	if !ok {
		s.noRoute(c)
		return
	}
	h := c.Writer.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("ETag", `"`+name+`"`)
	s.writeBy(c)
	http.ServeContent(c.Writer, c.Request, name, time.Time{}, bytes.NewReader(content))
	c.Abort()
}

// noPage answers where the page cannot be shown.
func (s *Server) noPage(c *gin.Context, err error) {
	s.log.ErrorContext(c.Request.Context(), "status page", "error", err)
	s.write(c, compat.JSON.Refusal(&compat.Fault{Status: http.StatusInternalServerError, Class: rewards.Internal, Message: "the status page cannot be shown"}))
}

// plainPage answers with the state as tables.
func (s *Server) plainPage(c *gin.Context) {
	d := s.pageData(c)
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, d); err != nil {
		s.noPage(c, err)
		return
	}
	h := c.Writer.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Vary", "Accept")
	s.write(c, compat.Reply{Status: http.StatusOK, ContentType: "text/html; charset=utf-8", Body: out.Bytes()})
}

// endpoints are the paths that there are, by what they are for, and whose clients ask for which.
func (s *Server) endpoints() map[string]any {
	var score, router []string
	state := []string{"/v1/pending", "/v1/failures", "/v1/workers", "/v1/runs", "/v1/scorers", "/metrics", routeHealth, routeReady, routeOpenAPI}
	systems := map[string]string{}
	for _, p := range s.protocols() {
		for _, path := range p.Paths {
			systems[path] = p.System
		}
		if p.Tell != nil {
			state = append(state, p.Paths...)
		} else {
			score = append(score, p.Paths...)
		}
	}
	for _, p := range routerPaths() {
		router = append(router, p.path)
	}
	return map[string]any{
		"service": "rewardloop", "version": s.version, "stream": routeStream, "score": score, "router": router, "state": state, "systems": systems,
		"page": "/ with Accept: text/html; /?plain without scripts", "in_flight": s.loop.InFlight(),
	}
}

func (s *Server) pageData(c *gin.Context) pageData {
	const (
		refresh  = 5                      // seconds
		patience = 500 * time.Millisecond // of the page with a self-test that hangs
	)
	ctx, cancel := context.WithTimeout(c.Request.Context(), patience)
	defer cancel()
	now := time.Now()
	d := pageData{
		Version: s.version, Now: now.Format("2006-01-02 15:04:05 MST"), Uptime: now.Sub(s.begun).Round(time.Second).String(), Refresh: refresh,
		InFlight: s.loop.InFlight(), Requests: s.admission.count(), Streams: s.streams.count(),
		Workers: s.presence.Workers(), Breakers: s.loop.Breakers(), Rewards: s.named(),
	}
	for _, err := range s.notReady(ctx, s.loop.Progress()) {
		d.Reasons = append(d.Reasons, err.Error())
	}
	d.Ready = len(d.Reasons) == 0
	d.Progress = s.ailing()
	d.Pending, d.Total = s.loop.Pending(pagePending)
	d.Failures, d.Failed = s.loop.Failures()
	d.Kinds = len(d.Failures)
	d.Failures = d.Failures[:min(d.Kinds, pageFails)]
	d.Held, d.Granted = s.loop.Bytes()
	for _, w := range d.Workers {
		d.Busy += w.Busy
	}
	for _, r := range s.loop.Runs(pageGroups) {
		run := pageRun{r, trends(r.Steps)}
		run.Steps = r.Steps[:min(len(r.Steps), pageSteps)]
		d.Runs = append(d.Runs, run)
	}
	return d
}

// showMS gives milliseconds in the unit a person would choose.
func showMS(ms float64) string {
	switch {
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64) + " ms"
	case ms < 1000:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	case ms < 120_000:
		return strconv.FormatFloat(ms/1000, 'f', 1, 64) + " s"
	}
	return strconv.FormatFloat(ms/60_000, 'f', 1, 64) + " min"
}

func showBytes(n int64) string {
	const unit = 1024
	if n < unit {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < 3; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[i])
}

// showScore shows a number that may be absent. One that is small is not shown as zero.
func showScore(v *float64) string {
	switch {
	case v == nil:
		return "–"
	case *v != 0 && (math.Abs(*v) < 1e-3 || math.Abs(*v) >= 1e6):
		return strconv.FormatFloat(*v, 'g', 3, 64)
	}
	return strconv.FormatFloat(*v, 'f', 4, 64)
}

// showName cuts long names in the middle, where ids differ least.
func showName(s string) string {
	const most = 44
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most/2]) + "…" + string(r[len(r)-most/2+1:])
}

// brief is the first line of a reason: the page shows a traceback once, among the failures.
func brief(s string) string {
	line, rest, _ := strings.Cut(s, "\n")
	if rest != "" {
		line += " …"
	}
	return line
}

// share is one outcome's number on the page.
type share struct {
	Name string
	N    uint64
	Bad  bool
}

// showShare lists outcomes that occurred, scored first.
func showShare(v any) []share {
	var list []share
	add := func(name string, n uint64) {
		if n > 0 {
			list = append(list, share{name, n, name != string(rewards.Scored)})
		}
	}
	switch m := v.(type) {
	case map[string]uint64:
		for k, n := range m {
			add(k, n)
		}
	case map[rewards.Outcome]int:
		for k, n := range m {
			add(string(k), uint64(max(n, 0)))
		}
	}
	slices.SortFunc(list, func(a, b share) int { return cmp.Or(compareBool(a.Bad, b.Bad), strings.Compare(a.Name, b.Name)) })
	return list
}
