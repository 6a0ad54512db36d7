package server

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rewardloop/rewardloop/server/compat"
)

// NewWorker returns the HTTP server of a worker process without a gateway: /healthz, /readyz,
// /v1/engines and /metrics, and the reward router on its own listener (ServeRouter). Loop, Presence
// and Profiles of the options are not needed; SelfTest must return an error if the workers cannot
// accept samples. The server may listen on a public address without a token.
func NewWorker(o Options) (*Server, error) { return build(o, (*Server).workerRoutes) }

// workerRoutes is what a worker's process answers to.
func (s *Server) workerRoutes() http.Handler {
	releaseMode()
	r := gin.New()
	r.HandleMethodNotAllowed = true
	r.Use(s.observe, s.guard)
	local := func(c *gin.Context) {
		if !isTrusted(c.Request) {
			s.noWorkerRoute(c)
		}
	}
	for _, p := range routerPaths() {
		r.Handle(p.method, p.path, local, s.forward(p.path))
	}
	r.GET(routeHealth, s.health)
	r.HEAD(routeHealth, s.health)
	r.GET(routeReady, s.workerReady)
	r.HEAD(routeReady, s.workerReady)
	r.GET(routeEngines, s.listEngines)
	s.profiling(r)
	r.GET("/metrics", gin.WrapH(promhttp.HandlerFor(s.gatherer, promhttp.HandlerOpts{})))
	r.NoRoute(s.noWorkerRoute)
	return r
}

func (s *Server) noWorkerRoute(c *gin.Context) {
	s.refuse(c, &compat.Fault{Status: http.StatusNotFound, Class: "not_found", Message: "this process is a worker: send samples to a gateway; a worker serves /healthz, /readyz, /v1/engines and /metrics"})
}

// workerReady answers GET /readyz: 200 if the workers can take samples, else 503.
func (s *Server) workerReady(c *gin.Context) {
	var err error
	if s.admission.isClosed() {
		err = errors.New("draining")
	} else if err = s.selfTest.result(c.Request.Context()); err != nil {
		err = fmt.Errorf("not ready: %w", err)
	}
	if err != nil {
		s.write(c, compat.JSONReply(http.StatusServiceUnavailable, true, map[string]any{"ready": false, "reasons": []string{err.Error()}}))
		return
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{"ready": true}))
}
