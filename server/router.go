package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
)

// routerPath is something that engines that serve models (vLLM, SGLang) are asked for.
type routerPath struct{ method, path string }

func routerPaths() []routerPath {
	return []routerPath{
		{http.MethodPost, "/v1/chat/completions"},
		{http.MethodPost, "/v1/completions"},
		{http.MethodPost, "/v1/embeddings"},
		{http.MethodPost, "/classify"},
		{http.MethodGet, "/v1/models"},
	}
}

// routed reports whether a path is the router's, whose clients read OpenAI's errors.
func routed(path string) bool {
	return slices.ContainsFunc(routerPaths(), func(p routerPath) bool { return p.path == path })
}

// forward is the reward router: it hands a request on to one of the engines that
// Options.Router knows, and the engine's answer back. Which one, how often, and for
// how long each is tried is the Router's affair. Unlike samples, requests with the
// same body are not joined: a client that asks twice wants two answers.
//
//   - The body must be a JSON object and is forwarded byte for byte; "stream": true is
//     refused, because a reward needs the whole answer.
//   - Headers are forwarded both ways, except those of the connection, and those with
//     which somebody shows who he is (withheld): the Router has the engine's own key.
//   - 4xx of the engine is handed on, so that a 400 stays a 400; 401, 403, 407, 408 and
//     429 are between this server and the engine. 503 with Retry-After says that
//     another try may succeed, 422 that it would not.
//   - A closed request cancels the call.
func (s *Server) forward(path string) gin.HandlerFunc {
	return func(c *gin.Context) {
		if s.router == nil {
			s.refuse(c, &compat.Fault{
				Status: http.StatusNotFound, Class: "not_found",
				Message: "no engine is configured to answer " + path + ": set reward.reward_model with rollout.name: external and its base_urls",
			})
			return
		}
		leave, ok := s.routed.enter()
		if !ok {
			s.refuse(c, compat.Faultf(rewards.Draining, "this gateway has stopped"))
			return
		}
		defer leave()
		call := &outbound.Call{
			Method: c.Request.Method, Path: path, Header: forwarded(c.Request.Header), MaxBytes: s.cfg.RouterBytes, Statuses: handedOn,
		}
		if c.Request.Method == http.MethodPost {
			b, f := s.readBody(c, s.cfg.JSONBytes, 1)
			if f == nil {
				defer b.release()
				f = checkCall(b.data)
			}
			if f != nil {
				s.refuse(c, f)
				return
			}
			call.Body = b.data
		}
		s.route(c, call)
	}
}

func (s *Server) route(c *gin.Context, call *outbound.Call) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), s.cfg.RouterTimeout)
	defer cancel()
	a, err := s.router.Do(ctx, call)
	if c.Request.Context().Err() != nil {
		c.Status(statusGone) // for log and metrics; nobody reads it
		c.Abort()
		return
	}
	if err == nil && a.Status >= http.StatusInternalServerError {
		err = fmt.Errorf("%w: the engine answered %d", rewards.Unavailable, a.Status)
	}
	if err != nil {
		s.log.WarnContext(ctx, "an engine did not answer", "route", call.Path, "error", err)
		f := compat.Faultf(rewards.ClassOf(err), "%s", rewards.MessageOf(err))
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			f.Status = http.StatusServiceUnavailable // the time that this server gave it, or the server, has ended
		}
		s.write(c, openAI(f))
		return
	}
	h := c.Writer.Header()
	maps.Copy(h, forwarded(a.Header))
	kind := a.Header.Get("Content-Type")
	if kind == "" {
		kind = binaryType // bytes; nothing is guessed
	}
	s.write(c, compat.Reply{Status: a.Status, ContentType: kind, Body: a.Body})
}

// handedOn tells which statuses are the engine's answer to the client.
func handedOn(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return status >= 400 && status < 500
}

// checkCall refuses bodies that are no JSON object, and those that ask for a stream.
func checkCall(body []byte) *compat.Fault {
	t, err := strictjson.Parse(body)
	if err == nil {
		err = t.Object(func(key string, v strictjson.Text) error {
			if key == "stream" && !v.Null() && v.Kind() != 'f' {
				return errors.New("the reward router does not stream answers: leave stream out, or send false")
			}
			return nil
		})
	}
	if err != nil {
		return compat.AsFault(err)
	}
	return nil
}

// withheld are the headers that concern one connection (RFC 9110, 7.6.1), those that
// the writer sets itself, and those with which somebody shows who he is.
func withheld() []string {
	return []string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Accept-Encoding", "Content-Encoding", "Content-Length", "Date", "Expect", "Host", "Retry-After", "Server",
		"Api-Key", "Authorization", "Cookie", "Forwarded", "Origin", "Proxy-Authorization", "Referer", "Set-Cookie", "Www-Authenticate", "X-Api-Key",
	}
}

// forwarded copies the headers that are handed on.
func forwarded(h http.Header) http.Header {
	drop := map[string]bool{}
	for _, name := range withheld() {
		drop[name] = true
	}
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			drop[textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	out := http.Header{}
	for name, values := range h {
		if !drop[name] && !strings.HasPrefix(name, "X-Forwarded-") && !strings.HasPrefix(name, "Sec-") && !strings.HasPrefix(name, "Access-Control-") {
			out[name] = values
		}
	}
	return out
}

// openAI is the form of a fault where OpenAI's clients read it: they show the message
// of an object, and nothing of a text.
func openAI(f *compat.Fault) compat.Reply {
	a := compat.JSONReply(f.Status, f.Transient(), map[string]any{
		"error": map[string]any{"message": f.Message, "type": f.Class, "code": f.Class, "param": nil},
	})
	a.Pause, a.Reason = f.Pause, f
	return a
}
