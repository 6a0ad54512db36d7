package node

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/models"
)

// openSpool opens the folder of a durable gateway. Who has no edge takes no samples whose
// sender could come back.
func (n *Node) openSpool() (err error) {
	if !n.cfg.Fabric.Durable || n.noServer {
		return nil
	}
	cfg := n.cfg.Fabric.Spool
	cfg.Free, cfg.Log = models.FreeSpace, n.log
	n.spool, err = spool.Open(cfg)
	if err != nil {
		return err
	}
	n.metrics.MustRegister(spooled{n.spool})
	if why := spool.Short(cfg.Dir, cfg.MaxBytes, models.FreeSpace); why != "" {
		n.log.Warn(why + "; " + spool.ShortAdvice)
	}
	return nil
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
	n.log.InfoContext(ctx, "taken in from the spool", "dir", n.cfg.Fabric.Spool.Dir, "samples", got.Samples, "bytes", got.Bytes, "results", got.Results,
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
	spoolRefused = desc("spool_refused_total", "Samples that had to wait at their clients because the spool had no room for them or could not be written.")
	spoolFull    = desc("spool_full", "1 while the spool takes no samples, because it has no room for them or cannot be written.")
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
	gauge(to, spoolBytes, int(st.Bytes+st.Reserve))
	gauge(to, spoolLive, int(st.Live))
	gauge(to, spoolRecords, st.Records)
	count(to, spoolSkipped, float64(st.Skipped))
	count(to, spoolRefused, float64(st.Refused))
	count(to, spoolFailed, float64(st.Failed))
	full := 0
	if s.spool.Trouble() != nil {
		full = 1
	}
	gauge(to, spoolFull, full)
}
