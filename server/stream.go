package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
	"github.com/rewardloop/rewardloop/wire"
)

// upgradedKey marks a request whose connection speaks websocket now.
const upgradedKey = "upgraded"

// serveStream upgrades a connection and hands it to the loop until it ends.
func (s *Server) serveStream(c *gin.Context) {
	leave, ok := s.streams.enter()
	if !ok || s.loop.Draining() {
		if ok {
			leave()
		}
		s.refuse(c, &compat.Fault{Status: http.StatusServiceUnavailable, Class: rewards.Unavailable, Message: "this gateway accepts no more streams now", Pause: true})
		return
	}
	defer leave()
	// Upgrading clears the deadlines of net/http.
	conn, err := wsconn.Upgrade(c.Writer, c.Request, wsconn.UpgradeConfig{
		Config: s.cfg.Stream, Subprotocols: []string{wire.Protocol}, Version: s.version,
	})
	if err != nil { // it has been answered
		if missed, ok := s.warnings.allow(time.Now()); ok && errors.Is(err, wsconn.ErrProtocol) {
			s.log.WarnContext(c.Request.Context(), "a client of another release was refused", "remote", c.Request.RemoteAddr, "token_name", c.GetString(clientKey), "error", err, "not_logged_before", missed)
		}
		s.log.DebugContext(c.Request.Context(), "stream refused", "remote", c.Request.RemoteAddr, "token_name", c.GetString(clientKey), "error", err)
		c.Abort()
		return
	}
	c.Set(upgradedKey, true)
	defer func() { _ = conn.Close(wsconn.CloseGoingAway, "") }() // a second close; for a loop that panics
	begun := time.Now()
	err = s.loop.Serve(loop.As(s.life, c.GetString(clientKey)), conn)
	s.log.DebugContext(s.life, "stream ended", "remote", c.Request.RemoteAddr, "token_name", c.GetString(clientKey), "took", time.Since(begun), "error", err)
	c.Abort()
}

// serveClaims hands a worker's connection to who answers claims; it has a token of its own.
func (s *Server) serveClaims(c *gin.Context) {
	leave, ok := s.claiming.enter()
	if !ok {
		s.refuse(c, &compat.Fault{Status: http.StatusServiceUnavailable, Class: rewards.Unavailable, Message: "this gateway has stopped"})
		return
	}
	defer leave()
	c.Set(upgradedKey, true)
	s.claims.ServeHTTP(c.Writer, c.Request)
	c.Abort()
}
