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
	r.Use(s.observe, s.guard)

	// The stream.
	r.GET(routeStream, s.serveStream)

	// Edges.
	pickles := s.scoring(s.pickleEdge())
	r.POST(routeRoot, pickles)
	r.POST(routeScorers+":name", pickles)
	r.POST("/v1/score", s.scoring(s.jsonEdge()))

	// State.
	r.GET("/v1/pending", s.pending)
	r.GET("/v1/workers", s.workers)
	r.GET("/v1/runs", s.runs)
	r.GET("/v1/scorers", s.scorers)
	r.GET(routeRoot, s.page)

	// Operation.
	r.GET(routeHealth, s.health)
	r.HEAD(routeHealth, s.health)
	r.GET(routeReady, s.ready)
	r.HEAD(routeReady, s.ready)
	r.GET("/metrics", gin.WrapH(promhttp.HandlerFor(s.gatherer, promhttp.HandlerOpts{})))

	r.NoRoute(func(c *gin.Context) { s.noRoute(c, pickles) })
	r.NoMethod(func(c *gin.Context) {
		s.refuse(c, &fault{status: http.StatusMethodNotAllowed, class: "method_not_allowed", message: "this path does not take a " + clip(c.Request.Method)})
	})
	return r
}

// noRoute answers paths that no route has. The URLs of pickle clients are written by
// people and normalised by client libraries: "//" is "/", and "/scorers/ocr/" is
// "/scorers/ocr".
func (s *Server) noRoute(c *gin.Context, pickles gin.HandlerFunc) {
	path := c.Request.URL.Path
	if name, ok := pickleProfile(path); ok && c.Request.Method == http.MethodPost {
		c.Params = gin.Params{{Key: "name", Value: name}}
		pickles(c)
		return
	}
	s.refuse(c, &fault{
		status: http.StatusNotFound, class: "not_found",
		message: "nothing at " + clip(path) + ": pickles go to / or /scorers/{name}, JSON to /v1/score, websockets to /v1/stream",
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

// pickles reports whether a request speaks the pickle protocol, so that every
// refusal is a pickle too: verl-omni's client fails on plain text in a way that ends
// its retries.
func (s *Server) pickles(r *http.Request) bool {
	return r.Method == http.MethodPost && !strings.HasPrefix(r.URL.Path, "/v1/")
}

// profile looks up a reward by name.
func (s *Server) profile(name string) (*Profile, *fault) {
	known := make([]string, len(s.profiles))
	for i := range s.profiles {
		if s.profiles[i].Name == name {
			return &s.profiles[i], nil
		}
		known[i] = s.profiles[i].Name
	}
	return nil, faultf(rewards.UnknownReward, "no reward named %q; known are %q", clip(name), known)
}
