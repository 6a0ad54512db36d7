package server

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/failures"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
	"github.com/rewardloop/rewardloop/wire"
)

// pending answers GET /v1/pending?limit=100: samples without a result, the oldest
// first, how many there are, and which rewards do not fare well and why: their samples may
// wait at the clients.
func (s *Server) pending(c *gin.Context) {
	limit, ok := s.bounded(c, "limit", 100, 10_000)
	if !ok {
		return
	}
	list, total := s.loop.Pending(limit)
	held, granted := s.loop.Bytes()
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{
		"total": total, "held_bytes": held, "granted_bytes": granted, "samples": orEmpty(list),
		"rewards": orEmpty[loop.Progress](s.ailing()),
	}))
}

// ailing is how those rewards fare that do not fare well, or that a worker cannot score.
func (s *Server) ailing() []loop.Progress {
	return slices.DeleteFunc(s.loop.Progress(), func(p loop.Progress) bool { return p.State == loop.Progressing && p.Why == "" })
}

// failures answers GET /v1/failures?reward=: what has failed and why, alike ones together,
// the newest first, and how many failures there were since the gateway began.
func (s *Server) failures(c *gin.Context) {
	list, total := s.loop.Failures()
	if name, ok := c.GetQuery("reward"); ok {
		list = slices.DeleteFunc(list, func(f failures.Failure) bool { return f.Reward != name })
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{"total": total, "failures": orEmpty[failures.Failure](list)}))
}

// workers answers GET /v1/workers: who is there, and which worker gets no samples of which
// reward, and why.
func (s *Server) workers(c *gin.Context) {
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{
		"workers": orEmpty[wire.WorkerInfo](s.presence.Workers()), "breakers": orEmpty[loop.BreakerInfo](s.loop.Breakers()),
	}))
}

// runs answers GET /v1/runs?groups=20: every run with its latest steps and groups.
func (s *Server) runs(c *gin.Context) {
	groups, ok := s.bounded(c, "groups", 20, 10_000)
	if !ok {
		return
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{"runs": orEmpty[loop.RunState](s.loop.Runs(groups))}))
}

// scorers answers GET /v1/scorers: the rewards that can be asked for.
func (s *Server) scorers(c *gin.Context) {
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{"rewards": s.named()}))
}

// listEngines answers GET /v1/engines: the servers of engines that this process has started.
func (s *Server) listEngines(c *gin.Context) {
	servers := []EngineServer{}
	if s.engines != nil {
		servers = append(servers, s.engines()...)
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{"servers": servers}))
}

// defaultReward is the name that the default reward has beside the empty one.
const defaultReward = "default"

// named are the rewards, each once: the default one has two names.
func (s *Server) named() []Profile {
	return slices.DeleteFunc(slices.Clone(s.rewards()), func(p Profile) bool {
		return p.Name == "" && slices.ContainsFunc(s.rewards(), func(o Profile) bool { return o.Name == defaultReward })
	})
}

// bounded reads a number of the query; it answers a bad one itself.
func (s *Server) bounded(c *gin.Context, name string, usual, most int) (int, bool) {
	text, ok := c.GetQuery(name)
	if !ok {
		return usual, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		s.refuse(c, compat.Faultf(rewards.Malformed, "%s=%s: want a number from 0 to %d", name, fmt.Sprintf("%q", strictjson.Clip(text)), most))
		return 0, false
	}
	return n, true
}

// orEmpty makes "none" a list.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
