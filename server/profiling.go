package server

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/server/compat"
)

// routeProfiles is where Go's profiles of this process are, for `go tool pprof`.
const routeProfiles = "/debug/pprof/"

// maxProfileSeconds bounds a profile over time: it slows the process down.
const maxProfileSeconds = 60

// profiling adds the profiles. They need the token, as every route that shows what the process does.
func (s *Server) profiling(r gin.IRoutes) {
	r.GET(routeProfiles, gin.WrapF(pprof.Index))
	r.GET(routeProfiles+":name", func(c *gin.Context) {
		if text := c.Query("seconds"); text != "" {
			if n, err := strconv.Atoi(text); err != nil || n < 1 || n > maxProfileSeconds {
				s.refuse(c, &compat.Fault{Status: http.StatusBadRequest, Class: "bad_input", Message: fmt.Sprintf("seconds: want 1 to %d", maxProfileSeconds)})
				return
			}
		}
		switch name := c.Param("name"); name {
		case "profile":
			pprof.Profile(c.Writer, c.Request)
		case "trace":
			pprof.Trace(c.Writer, c.Request)
		case "symbol":
			pprof.Symbol(c.Writer, c.Request)
		case "cmdline": // it may hold what nobody is to see
			s.refuse(c, &compat.Fault{Status: http.StatusNotFound, Class: "not_found", Message: "the command line is not shown"})
		default:
			pprof.Handler(name).ServeHTTP(c.Writer, c.Request)
		}
	})
}
