package server

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/server/compat"
)

// Routes that more than one place must know.
const (
	routeRoot    = "/"
	routeStream  = "/v1/stream"
	routeClaim   = "/v1/claim"
	routeHealth  = "/healthz"
	routeReady   = "/readyz"
	routeEngines = "/v1/engines"
	routeAssets  = "/assets/:name"
)

// ownPrefix begins the paths of our own.
const ownPrefix = "/v1"

// ownPaths begin the paths whose clients read JSON, beside those of the protocols.
func ownPaths() []string {
	list := []string{ownPrefix}
	for _, p := range routerPaths() {
		list = append(list, p.path)
	}
	return list
}

// protocols are those with which samples come in over HTTP: our own, and those of other
// systems.
func (s *Server) protocols() []compat.Protocol {
	own := compat.Protocol{System: "rewardloop", Method: http.MethodPost, Paths: []string{ownPrefix + "/score"}, Run: "_score", Read: s.readScore}
	return append([]compat.Protocol{own}, compat.Protocols()...)
}

// routes is what the server answers to.
func (s *Server) routes() http.Handler {
	releaseMode()
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

	// Samples, and what clients of other systems ask beside.
	for _, p := range s.protocols() {
		for _, path := range p.Paths {
			path = strings.ReplaceAll(path, "{name}", ":name")
			if p.Tell != nil {
				r.GET(path, s.tell(p))
				r.HEAD(path, s.tell(p))
				continue
			}
			r.POST(path, s.score(p))
		}
	}

	// The reward router.
	for _, p := range routerPaths() {
		r.Handle(p.method, p.path, s.forward(p.path))
	}

	// state.
	r.GET("/v1/pending", s.pending)
	r.GET("/v1/failures", s.failures)
	r.GET("/v1/workers", s.workers)
	r.GET("/v1/runs", s.runs)
	r.GET("/v1/runs/:run/steps/:step", s.step)
	r.GET("/v1/runs/:run/steps/:step/rewards", s.stepRewards)
	r.GET("/v1/runs/:run/steps/:step/trace", s.stepTrace)
	r.GET("/v1/scorers", s.scorers)
	r.GET(routeEngines, s.listEngines)
	s.results(r)
	r.POST("/v1/reload", s.reloading)
	r.GET(routeRoot, s.page)
	r.GET(routeAssets, s.asset)
	r.HEAD(routeAssets, s.asset)

	// Operation.
	r.GET(routeOpenAPI, s.document())
	r.GET(routeHealth, s.health)
	r.HEAD(routeHealth, s.health)
	r.GET(routeReady, s.ready)
	r.HEAD(routeReady, s.ready)
	s.profiling(r)
	r.GET("/metrics", gin.WrapH(promhttp.HandlerFor(s.gatherer, promhttp.HandlerOpts{})))

	r.NoRoute(s.noRoute)
	r.NoMethod(func(c *gin.Context) {
		s.refuse(c, &compat.Fault{Status: http.StatusMethodNotAllowed, Class: "method_not_allowed", Message: "this path does not accept a " + strictjson.Clip(c.Request.Method)})
	})
	return r
}

// noRoute answers paths that no route has. Those of protocols are understood with slashes
// too many.
func (s *Server) noRoute(c *gin.Context) {
	path := c.Request.URL.Path
	if c.Request.Method == http.MethodPost {
		if p, name, ok := compat.Find(path); ok {
			c.Params = gin.Params{{Key: "name", Value: name}}
			s.score(p)(c)
			return
		}
	}
	s.refuse(c, &compat.Fault{
		Status: http.StatusNotFound, Class: "not_found",
		Message: "nothing at " + strictjson.Clip(path) + ": pickles go to / or /scorers/{name}, JSON to /v1/score, websockets to /v1/stream; GET / lists the others",
	})
}

// tell is the route of a protocol that asks about this server.
func (s *Server) tell(p compat.Protocol) gin.HandlerFunc {
	return func(c *gin.Context) {
		s.write(c, p.Tell(&compat.State{
			Reward: c.Param("name"), Rewards: s.askable(), Workers: s.presence.Workers(), Draining: s.admission.isClosed() || s.loop.Draining(),
		}))
	}
}

// askable are the rewards as protocols know them.
func (s *Server) askable() []compat.Reward {
	list := make([]compat.Reward, len(s.rewards()))
	for i, p := range s.rewards() {
		list[i] = compat.Reward{Name: p.Name, Extra: p.Extra}
	}
	return list
}
