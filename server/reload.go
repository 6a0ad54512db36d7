package server

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/server/compat"
)

// Describe replaces what the server tells of the rewards. Their names and columns must be those
// that it was made with.
func (s *Server) Describe(profiles []Profile) { s.profiles.Store(&profiles) }

// rewards are those that can be asked for.
func (s *Server) rewards() []Profile { return *s.profiles.Load() }

// reloading answers POST /v1/reload: what holds from now on, and what needs a restart; 422 with
// everything that is wrong where nothing was changed, 503 while another reload is under way.
func (s *Server) reloading(c *gin.Context) {
	if s.reload == nil {
		s.refuse(c, &compat.Fault{Status: http.StatusNotFound, Class: "no_reload", Message: "this process does not know where its configuration came from"})
		return
	}
	if !s.rereads.TryLock() {
		s.refuse(c, &compat.Fault{Status: http.StatusServiceUnavailable, Class: "reloading", Message: "the configuration is being read already; ask again", Pause: true})
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
