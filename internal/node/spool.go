package node

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/loop"
)

// openSpool opens the folder of a durable gateway. Who has no edge takes no samples whose
// sender could come back.
func (n *Node) openSpool() (err error) {
	f := n.cfg.Fabric
	if !f.Durable || n.noServer {
		return nil
	}
	n.spool, err = spool.Open(spool.Config{Dir: f.SpoolDir, MaxBytes: f.SpoolBytes, Log: n.log})
	if err == nil {
		n.metrics.MustRegister(spooled{n.spool})
	}
	return err
}

// newLoop makes the gateway, and gives it what its last life has left.
func (n *Node) newLoop(ctx context.Context, o loop.Options) (err error) {
	if n.spool != nil {
		o.Spool = n.spool
	}
	if n.Loop, err = loop.New(o); err != nil || n.spool == nil {
		return err
	}
	begun := time.Now()
	got, err := n.Loop.Restore()
	if err != nil {
		return err
	}
	n.log.InfoContext(ctx, "taken in from the spool", "dir", n.cfg.Fabric.SpoolDir, "samples", got.Samples, "bytes", got.Bytes, "results", got.Results,
		"runs", got.Runs, "dropped", got.Dropped, "skipped", n.spool.Stats().Skipped, "took", time.Since(begun).Round(time.Millisecond))
	if got.Bytes > n.cfg.Loop.MaxBytes {
		n.log.WarnContext(ctx, "samples of the last life exceed loop.max_bytes: clients get no credit before they are scored", "bytes", got.Bytes)
	}
	return nil
}

//nolint:gochecknoglobals // tables
var (
	spoolBytes   = desc("spool_bytes", "Bytes of the files in fabric.spool_dir.")
	spoolLive    = desc("spool_live_bytes", "Those of them that are kept: samples without a result, results that are not confirmed.")
	spoolRecords = desc("spool_records", "Records that are kept.")
	spoolSkipped = desc("spool_skipped_total", "Damaged and half-written records that were passed over.")
	spoolRefused = desc("spool_refused_total", "Samples that were refused because fabric.spool_bytes was reached.")
	spoolFailed  = desc("spool_write_failures_total", "Writes that the system refused.")
)

// spooled collects how the spool is.
type spooled struct{ spool *spool.Spool }

var _ prometheus.Collector = spooled{}

// Describe implements prometheus.Collector; nothing is promised, as of devices.
func (s spooled) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s spooled) Collect(to chan<- prometheus.Metric) {
	st := s.spool.Stats()
	gauge(to, spoolBytes, int(st.Bytes))
	gauge(to, spoolLive, int(st.Live))
	gauge(to, spoolRecords, st.Records)
	count(to, spoolSkipped, float64(st.Skipped))
	count(to, spoolRefused, float64(st.Refused))
	count(to, spoolFailed, float64(st.Failed))
}
