package node

import (
	"context"
	"time"

	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/models"
)

// openSpool opens the folder of a durable gateway. A node without an HTTP server takes no samples whose
// sender could come back.
func (n *Node) openSpool() (err error) {
	if !n.cfg.Queue.Durable || n.noServer {
		return nil
	}
	cfg := n.cfg.Queue.Spool
	cfg.Free, cfg.Log = models.FreeSpace, n.log
	n.spool, err = spool.Open(cfg)
	if err != nil {
		return err
	}
	spoolMetrics(n.metrics, n.spool)
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
	n.log.InfoContext(ctx, "samples were restored from the spool", "dir", n.cfg.Queue.Spool.Dir, "samples", got.Samples, "bytes", got.Bytes, "results", got.Results,
		"runs", got.Runs, "dropped", got.Dropped, "skipped", n.spool.Stats().Skipped, "took", time.Since(begun).Round(time.Millisecond))
	if got.Bytes > n.cfg.Loop.MaxBytes {
		n.log.WarnContext(ctx, "samples restored from the spool exceed loop.max_bytes; clients get no credit until enough of these samples are scored", "bytes", got.Bytes)
	}
	return nil
}
