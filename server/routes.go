package server

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rewardloop/rewardloop/rewards"
)

// Routes that more than one place must know.
const (
	routeRoot    = "/"
	routeScorers = "/scorers/"
	routeStream  = "/v1/stream"
	routeClaim   = "/v1/claim"
	routeHealth  = "/healthz"
	routeReady   = "/readyz"
)

// routes is what the server answers to. A new protocol is an edge (flight.go) and a
// line among the edges below.
func (s *Server) routes() http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.RedirectTrailingSlash = false // a redirected POST loses its body with some clients
	r.HandleMethodNotAllowed = true
	r.ForwardedByClientIP = false
	r.UseRawPath = true // a run's name may hold a slash, written as %2F
	r.Use(s.observe, s.guard)

	// The stream.
	r.GET(routeStream, s.serveStream)
	if s.claims != nil {
		r.GET(routeClaim, s.serveClaims)
	}

	// Edges.
	pickles := s.scoring(s.pickleEdge())
	r.POST(routeRoot, pickles)
	r.POST(routeScorers+":name", pickles)
	r.POST("/v1/score", s.scoring(s.jsonEdge()))
	ways := s.ways()
	for first, w := range ways {
		r.POST(routeRoot+first, w.handler)
		if w.named {
			r.POST(routeRoot+first+"/:name", w.handler)
		}
	}
	r.POST(routeScorers+":name/"+wayCompute, ways[wayCompute].handler)
	for _, path := range []string{"/health", routeScorers + ":name/health"} {
		r.GET(path, s.roster)
		r.HEAD(path, s.roster)
	}
	r.GET("/rewards", s.rewardNames)

	// The reward router.
	for _, path := range routerPaths() {
		r.POST(path, s.forward(path))
	}
	r.GET("/v1/models", s.forward("/v1/models"))

	// State.
	r.GET("/v1/pending", s.pending)
	r.GET("/v1/failures", s.failures)
	r.GET("/v1/workers", s.workers)
	r.GET("/v1/runs", s.runs)
	r.GET("/v1/runs/:run/steps/:step", s.step)
	r.GET("/v1/runs/:run/steps/:step/rewards", s.stepRewards)
	r.GET("/v1/runs/:run/steps/:step/trace", s.stepTrace)
	r.GET("/v1/scorers", s.scorers)
	r.POST("/v1/reload", s.reloading)
	r.GET(routeRoot, s.page)

	// Operation.
	r.GET(routeHealth, s.health)
	r.HEAD(routeHealth, s.health)
	r.GET(routeReady, s.ready)
	r.HEAD(routeReady, s.ready)
	r.GET("/metrics", gin.WrapH(promhttp.HandlerFor(s.gatherer, promhttp.HandlerOpts{})))

	r.NoRoute(func(c *gin.Context) { s.noRoute(c, pickles, ways) })
	r.NoMethod(func(c *gin.Context) {
		s.refuse(c, &fault{status: http.StatusMethodNotAllowed, class: "method_not_allowed", message: "this path does not take a " + clip(c.Request.Method)})
	})
	return r
}

// way is a protocol's handler.
type way struct {
	handler gin.HandlerFunc
	named   bool // a reward's name may follow in the path
}

// wayCompute is the first part of Flow-Factory's path.
const wayCompute = "compute"

// ways are the protocols that answer in JSON, by the first part of their paths.
func (s *Server) ways() map[string]way {
	return map[string]way{
		"score":      {s.scoring(s.speak(s.unirl())), false},
		"latent":     {s.scoring(s.speak(s.latent())), true},
		"get_reward": {s.scoring(s.speak(s.openRLHF())), true},
		wayCompute:   {s.scoring(s.speak(s.flowFactory())), true},
		"rm":         {s.scoring(s.speak(s.slime())), true},
	}
}

// noRoute answers paths that no route has. The URLs of clients are written by people
// and normalised by client libraries: "//" is "/", and "/scorers/ocr/" is
// "/scorers/ocr".
func (s *Server) noRoute(c *gin.Context, pickles gin.HandlerFunc, ways map[string]way) {
	path := c.Request.URL.Path
	if c.Request.Method == http.MethodPost {
		if name, ok := pickleProfile(path); ok {
			c.Params = gin.Params{{Key: "name", Value: name}}
			pickles(c)
			return
		}
		if w, name, ok := wayOf(path, ways); ok {
			c.Params = gin.Params{{Key: "name", Value: name}}
			w.handler(c)
			return
		}
	}
	s.refuse(c, &fault{
		status: http.StatusNotFound, class: "not_found",
		message: "nothing at " + clip(path) + ": pickles go to / or /scorers/{name}, JSON to /v1/score, websockets to /v1/stream; GET / lists the others",
	})
}

// pickleProfile tells whether a path is one of the pickle edge's, slashes aside,
// and which profile it names.
func pickleProfile(path string) (name string, ok bool) {
	path = strings.Trim(path, "/")
	if path == "" {
		return "", true
	}
	name, ok = strings.CutPrefix(path+"/", strings.TrimPrefix(routeScorers, "/"))
	name = strings.Trim(name, "/")
	return name, ok && name != "" && !strings.Contains(name, "/")
}

// wayOf finds a path's protocol, slashes aside, and the reward it names.
func wayOf(path string, ways map[string]way) (w way, name string, ok bool) {
	parts := parts(path)
	switch len(parts) {
	case 1:
		w, ok = ways[parts[0]]
	case 2:
		w, ok = ways[parts[0]]
		name, ok = parts[1], ok && w.named
	case 3:
		w, ok = ways[wayCompute]
		name, ok = parts[1], ok && parts[0] == "scorers" && parts[2] == wayCompute
	}
	return w, name, ok
}

// parts are what stands between the slashes of a path.
func parts(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// pickles reports whether a request speaks the pickle protocol, so that every
// refusal is a pickle too: verl-omni's client fails on plain text in a way that ends
// its retries. A POST to a path that nobody knows counts as one: the pickle clients'
// URLs are free text.
func (s *Server) pickles(r *http.Request) bool {
	if r.Method != http.MethodPost {
		return false
	}
	parts := parts(r.URL.Path)
	if len(parts) == 0 {
		return true
	}
	switch parts[0] {
	case "v1", "score", "latent", "get_reward", wayCompute, "rm", "classify", "health", "rewards":
		return false
	case "scorers":
		return len(parts) < 3 || (parts[2] != wayCompute && parts[2] != "health")
	}
	return true
}

// profile looks up a reward by name.
func (s *Server) profile(name string) (*Profile, *fault) {
	known := make([]string, len(s.rewards()))
	for i := range s.rewards() {
		if s.rewards()[i].Name == name {
			return &s.rewards()[i], nil
		}
		known[i] = s.rewards()[i].Name
	}
	return nil, faultf(rewards.UnknownReward, "no reward named %q; known are %q", clip(name), known)
}
