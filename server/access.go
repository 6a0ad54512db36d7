package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/metric"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
)

// metrics are the server's own.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	panics   prometheus.Counter
	joined   prometheus.Counter
	// handshakes are those of TLS that failed.
	handshakes prometheus.Counter
}

func newMetrics(s *Server, reg prometheus.Registerer) *metrics {
	set := metric.For(reg, "http")
	set.Gauge("body_bytes", "Bytes of memory that are reserved for the bodies of HTTP requests in progress.", func() float64 { return float64(s.bodies.inUse()) })
	set.Gauge("requests_in_flight", "HTTP requests that wait for scores.", func() float64 { return float64(s.admission.count()) })
	set.Gauge("connections", "Open HTTP connections of clients, websockets excluded.", func() float64 { return float64(s.conns.Load()) })
	set.Gauge("streams", "Open websockets of clients.", func() float64 { return float64(s.streams.count()) })
	return &metrics{
		requests: set.Counters("requests_total", "HTTP requests that were answered, by route and status; 499: the client disconnected, 101: a websocket that has ended.",
			metric.By("route"), metric.By("code")),
		seconds: set.Histograms("request_seconds", "Time in seconds from the header of an HTTP request to the end of its answer, by route; websockets are excluded.",
			prometheus.ExponentialBuckets(0.001, 2, 18), metric.By("route")),
		handshakes: set.Counter("tls_failures_total", "Connections without TLS or without a trusted client certificate."),
		panics:     set.Counter("panics_total", "Panics of the handlers of HTTP requests."),
		joined:     set.Counter("joined_requests_total", "HTTP requests that shared the result of an unfinished request with the same body, instead of being scored again."),
	}
}

// complaints takes what net/http says of connections that came to nothing.
type complaints struct{ s *Server }

// Write is for a log.Logger.
func (c complaints) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if !strings.Contains(text, "TLS handshake error") {
		c.s.log.Debug("message of the HTTP server", "message", text)
		return len(line), nil
	}
	c.s.metrics.handshakes.Inc()
	if missed, ok := c.s.warnings.allow(time.Now()); ok {
		c.s.log.Warn("the server refused a connection of a client", "error", text, "not_logged_before", missed)
	}
	return len(line), nil
}

// observe logs and counts every request, and stands between a handler's panic and
// the process.
func (s *Server) observe(c *gin.Context) {
	start := time.Now()
	defer func() {
		p := recover()
		if p != nil {
			s.panicked(c, p)
		}
		s.count(c, time.Since(start))
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p) // net/http's own way to cut a connection
		}
	}()
	if c.Request.Body != http.NoBody {
		_ = http.NewResponseController(c.Writer).SetReadDeadline(start.Add(s.cfg.BodyTimeout))
	}
	c.Next()
}

// panicked answers a request whose handler has panicked, if that is still possible.
func (s *Server) panicked(c *gin.Context, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		return
	}
	s.metrics.panics.Inc()
	s.log.ErrorContext(c.Request.Context(), "panic in a handler", "route", c.FullPath(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if c.Writer.Written() || c.GetBool(upgradedKey) {
		c.Abort()
		return
	}
	f := &compat.Fault{Status: http.StatusInternalServerError, Class: rewards.Panicked, Message: "the server failed on this request"}
	if c.Request.Method == http.MethodPost {
		// A sample's: flow_grpo's client retries a 500 a thousand times.
		f.Status = http.StatusServiceUnavailable
	}
	s.refuse(c, f)
}

func (s *Server) count(c *gin.Context, took time.Duration) {
	route, code := c.FullPath(), c.Writer.Status()
	if route == "" {
		route = "other" // paths are strangers' text; the metric has one for all
	}
	if c.GetBool(upgradedKey) {
		code = http.StatusSwitchingProtocols
	} else {
		s.metrics.seconds.WithLabelValues(route).Observe(took.Seconds())
	}
	s.metrics.requests.WithLabelValues(route, strconv.Itoa(code)).Inc()
	ctx := c.Request.Context()
	if s.log.Enabled(ctx, slog.LevelDebug) {
		s.log.DebugContext(ctx, "http request",
			"method", c.Request.Method, "path", c.Request.URL.Path, "status", code, "took", took,
			"bytes", c.Writer.Size(), "remote", c.Request.RemoteAddr, "token_name", c.GetString(clientKey), "request_id", c.Writer.Header().Get("X-Request-Id"))
	}
}
