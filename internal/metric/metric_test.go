package metric_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/metric"
)

// page is what /metrics shows.
func page(reg *prometheus.Registry) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return strings.TrimSpace(w.Body.String())
}

func TestADeclarationMakesRegistersAndZeroes(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := metric.For(reg, "loop")
	m.Counter("late_total", "Late results.").Add(2)
	m.Counters("ended_total", "Ended samples.", metric.By("reward", "a", "b"), metric.By("class", "x")).WithLabelValues("b", "x").Inc()
	m.Counters("open_total", "Open things.", metric.By("reward", "a"), metric.By("anything"))
	m.Histogram("step_seconds", "Time.", []float64{1}).Observe(0.5)
	m.Histograms("stage_seconds", "Time.", []float64{1}, metric.By("stage")).WithLabelValues("queue").Observe(2)
	m.Level("connections", "Connections.").Inc()
	m.Gauge("held_bytes", "Bytes.", func() float64 { return 7 })
	assert.Equal(t, strings.TrimSpace(`
# HELP rewardloop_loop_connections Connections.
# TYPE rewardloop_loop_connections gauge
rewardloop_loop_connections 1
# HELP rewardloop_loop_ended_total Ended samples.
# TYPE rewardloop_loop_ended_total counter
rewardloop_loop_ended_total{class="x",reward="a"} 0
rewardloop_loop_ended_total{class="x",reward="b"} 1
# HELP rewardloop_loop_held_bytes Bytes.
# TYPE rewardloop_loop_held_bytes gauge
rewardloop_loop_held_bytes 7
# HELP rewardloop_loop_late_total Late results.
# TYPE rewardloop_loop_late_total counter
rewardloop_loop_late_total 2
# HELP rewardloop_loop_stage_seconds Time.
# TYPE rewardloop_loop_stage_seconds histogram
rewardloop_loop_stage_seconds_bucket{stage="queue",le="1"} 0
rewardloop_loop_stage_seconds_bucket{stage="queue",le="+Inf"} 1
rewardloop_loop_stage_seconds_sum{stage="queue"} 2
rewardloop_loop_stage_seconds_count{stage="queue"} 1
# HELP rewardloop_loop_step_seconds Time.
# TYPE rewardloop_loop_step_seconds histogram
rewardloop_loop_step_seconds_bucket{le="1"} 1
rewardloop_loop_step_seconds_bucket{le="+Inf"} 1
rewardloop_loop_step_seconds_sum 0.5
rewardloop_loop_step_seconds_count 1
`), page(reg))
	require.Panics(t, func() { m.Counter("late_total", "Late results.") }, "a name is declared once")
}

func TestWithoutARegistererMetricsCountForNobody(t *testing.T) {
	t.Parallel()
	m := metric.For(nil, "loop")
	m.Counter("late_total", "Late results.").Inc()
	m.Gauge("held_bytes", "Bytes.", func() float64 { return 7 })
	metric.Table(m, nil, func(func(int, ...string)) {}, metric.Gauge("n", "A number.", func(n int) int { return n }))
}

// device is something that comes and goes.
type device struct {
	name string
	free *float64
	open bool
}

func TestATableAsksAtEachScrape(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	half := 0.5
	all := []device{{"a", &half, true}, {"b", nil, false}, {"not \xff UTF-8", nil, true}}
	metric.Table(metric.For(reg, ""), []string{"device"}, func(yield func(device, ...string)) {
		for _, d := range all {
			yield(d, d.name)
		}
	},
		metric.Gauge("open", "1 while the device is open, else 0.", func(d device) bool { return d.open }),
		metric.Gauge("free", "Free share.", func(d device) *float64 { return d.free }),
		metric.Count("runs_total", "Runs.", func(device) uint64 { return 3 }),
		metric.Counts("items_total", "Items.", "end", func(_ device, put func(float64, ...string)) { put(1, "ok"); put(2, "failed") }),
		metric.Gauges("limit", "Limits.", "limit", func(_ device, put func(float64, ...string)) { put(4, "rate") }),
	)
	assert.Equal(t, strings.TrimSpace(`
# HELP rewardloop_free Free share.
# TYPE rewardloop_free gauge
rewardloop_free{device="a"} 0.5
# HELP rewardloop_items_total Items.
# TYPE rewardloop_items_total counter
rewardloop_items_total{device="a",end="failed"} 2
rewardloop_items_total{device="a",end="ok"} 1
rewardloop_items_total{device="b",end="failed"} 2
rewardloop_items_total{device="b",end="ok"} 1
# HELP rewardloop_limit Limits.
# TYPE rewardloop_limit gauge
rewardloop_limit{device="a",limit="rate"} 4
rewardloop_limit{device="b",limit="rate"} 4
# HELP rewardloop_open 1 while the device is open, else 0.
# TYPE rewardloop_open gauge
rewardloop_open{device="a"} 1
rewardloop_open{device="b"} 0
# HELP rewardloop_runs_total Runs.
# TYPE rewardloop_runs_total counter
rewardloop_runs_total{device="a"} 3
rewardloop_runs_total{device="b"} 3
`), page(reg), "a value that no label may have costs its samples alone")
	all = nil
	assert.Empty(t, page(reg))
}
