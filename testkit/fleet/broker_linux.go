package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// broker is one nats-server.
type broker struct {
	*Process
	monitor string // host:port of its monitoring
	routes  string // host:port for the others of a cluster
}

// Broker starts one nats-server for each host (nil means no host), several of them as a cluster,
// and returns when JetStream is ready. Processes that are started later use it.
func (f *Fleet) Broker(hosts ...hostOf) []*Process {
	f.t.Helper()
	var urls, routes []string
	for i, h := range hosts {
		b := &broker{monitor: f.address(h), routes: f.address(h)}
		b.Process = &Process{Name: fmt.Sprintf("nats%d", i+1), Addr: f.address(h), f: f, host: h, bin: f.cfg.NATSServer}
		b.args = []string{"-c", f.file(b.Name + ".conf")}
		b.ready = func(*Process) bool { return f.healthy(b) }
		f.brokers = append(f.brokers, b)
		urls, routes = append(urls, "nats://"+f.way(b.Name, b.Addr)), append(routes, "nats://"+b.routes)
	}
	require.NotEmpty(f.t, f.cfg.NATSServer, "fleet: name nats-server in Config.NATSServer")
	var out []*Process
	for _, b := range f.brokers {
		f.write(b.Name+".conf", f.conf(b, routes))
		f.processes = append(f.processes, b.Process)
		b.launch() // a cluster is ready when most of it runs
		out = append(out, b.Process)
	}
	for _, b := range f.brokers {
		b.awaitReady()
	}
	f.nats = strings.Join(urls, ",")
	return out
}

// conf has the short pings that notice a dead client in seconds, not in minutes.
func (f *Fleet) conf(b *broker, routes []string) string {
	text := fmt.Sprintf("server_name: %q\nlisten: %q\nhttp: %q\nping_interval: \"2s\"\nping_max: 2\njetstream {store_dir: %q}\n",
		b.Name, b.Addr, b.monitor, f.file(b.Name))
	if len(routes) > 1 {
		text += fmt.Sprintf("cluster {name: fleet, listen: %q, routes: [%s]}\n", b.routes, strings.Join(routes, ", "))
	}
	return text
}

// healthy asks a broker whether it and its JetStream are ready.
func (f *Fleet) healthy(b *broker) bool {
	var health struct{ Status string }
	if !f.ask(b, "/healthz", &health) || health.Status != "ok" {
		return false
	}
	if len(f.brokers) == 1 {
		return true
	}
	var js struct {
		Meta struct{ Leader string } `json:"meta_cluster"`
	}
	return f.ask(b, "/jsz", &js) && js.Meta.Leader != ""
}

// ask reads one page of a broker's monitoring.
func (f *Fleet) ask(b *broker, path string, into any) bool {
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.monitor+path, http.NoBody)
	if err != nil {
		return false
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(into) == nil
}

// StreamLeader returns the broker that is the leader of a stream.
func (f *Fleet) StreamLeader(stream string) *Process {
	f.t.Helper()
	type detail struct {
		Name    string
		Cluster struct{ Leader string }
	}
	for _, b := range f.brokers {
		var js struct {
			Accounts []struct {
				Streams []detail `json:"stream_detail"`
			} `json:"account_details"`
		}
		if !f.ask(b, "/jsz?accounts=1&streams=1", &js) {
			continue
		}
		for _, a := range js.Accounts {
			i := slices.IndexFunc(a.Streams, func(d detail) bool { return d.Name == stream })
			if i < 0 {
				continue
			}
			j := slices.IndexFunc(f.brokers, func(b *broker) bool { return b.Name == a.Streams[i].Cluster.Leader })
			if j >= 0 {
				return f.brokers[j].Process
			}
		}
	}
	f.t.Fatalf("no broker knows who leads stream %s", stream)
	return nil
}
