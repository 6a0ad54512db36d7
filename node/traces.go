package node

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/rewardloop/rewardloop/internal/otlp"
)

// openTraces makes what sends the process's spans; nil where nothing is traced.
func openTraces(p *parts) (*otlp.Exporter, error) {
	host := hostName()
	return otlp.Start(otlp.Options{
		Config: p.cfg.Telemetry, Process: otlp.Process{Instance: host + "-" + strconv.Itoa(os.Getpid()), Host: host, Version: p.version},
		Outbound: p.cfg.Outbound, Log: p.log, Metrics: p.metrics,
	})
}

// tracesTimeout is how long a process that ends waits for its collector.
const tracesTimeout = 3 * time.Second

// closeTraces sends what spans are left.
func (p *parts) closeTraces() {
	ctx, cancel := context.WithTimeout(context.Background(), tracesTimeout)
	defer cancel()
	p.traces.Close(ctx)
}
