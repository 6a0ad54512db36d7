package outbound

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// FleetPeriod is the maximum time between two calls of Member.Report by a Fleet.
	FleetPeriod = time.Second
	// shareHold is how long a larger share is known before it is used, and how old the
	// last report of its own may be that a process has heard back. That both are the same
	// is what keeps the sum of all shares within the limit: see window.
	shareHold = 3 * time.Second
	// silence is how long another process may say nothing before its share is divided
	// among the others, who then hold it for shareHold: 8 s after its last report.
	silence = 5 * time.Second
	// unheard is the number of processes that one counts with which never heard any.
	unheard = 8
	// maxPeers bounds the processes that an upstream counts.
	maxPeers = 4096
)

// Fleet carries the reports of upstreams between the processes that share limits. A nil Fleet means
// that this process is alone and has all limits for itself.
//
// Every process must receive the reports of all processes, including its own, in the same order. A
// process may miss reports as long as it receives later ones.
type Fleet interface {
	// Self returns the name of this process. The name is unique, even among earlier processes.
	Self() string
	// Join makes m a member of the processes that share an upstream, until leave is called. The
	// Fleet then calls m.Report every FleetPeriod, and m.Heard with the reports about the upstream,
	// first those that it has already.
	Join(upstream string, m Member) (leave func())
	// Urge requests a call of Report soon. Urge does not block.
	Urge()
}

// Member is a process's part in one upstream. Its methods may be called from any goroutine.
type Member interface {
	// Report returns the report for the other processes.
	Report() Report
	// Heard is called with the report of a process, which may be this one. A nil report means that
	// the process has left the upstream.
	Heard(from string, r *Report)
}

// Report is the report of a process about its part in an upstream. It replaces the process's
// previous report.
type Report struct {
	// Seq is the sequence number of the report.
	Seq uint64 `json:"seq"`
	// Guest means that the process joined mainly for the reports of the others and rarely sends
	// requests itself, such as a gateway without workers.
	Guest bool `json:"guest,omitempty"`
	// Requests and Tokens are the demand per minute, Places the demand for requests in flight. Only
	// the ratios between processes matter.
	Requests float64 `json:"requests,omitempty"`
	Tokens   float64 `json:"tokens,omitempty"`
	Places   float64 `json:"places,omitempty"`
	// Used is the number of requests in flight, which may exceed the process's share.
	Used int `json:"used,omitempty"`
	// Full is the time in milliseconds for which the process has used all its places; 0: it does
	// not.
	Full int64 `json:"full,omitempty"`
	// Open lists the endpoints that the process itself found out of service.
	Open []Opening `json:"open,omitempty"`
	// Alive lists endpoints that another process found out of service, and that have answered this
	// process since.
	Alive []string `json:"alive,omitempty"`
}

// Opening is an endpoint that a process has taken out of service.
type Opening struct {
	// Endpoint is a digest of the endpoint's URL.
	Endpoint string `json:"endpoint"`
	// Failed is the number of times that the process's own requests took the endpoint out of
	// service or kept it there. 0 means that the process relies on the report of another process,
	// and probes the endpoint now.
	Failed int64 `json:"failed,omitempty"`
	// Due is the time in milliseconds from the report to the next probe; it is negative if the
	// probe is overdue because no call has come. Pause is the length of the pause in milliseconds.
	Due   int64 `json:"due"`
	Pause int64 `json:"pause"`
	// Probing means that a probe is in flight.
	Probing bool `json:"probing,omitempty"`
}

// Join makes all present and future upstreams of the transport share their limits with the other
// processes of a fleet. A guest rarely has calls of its own: it has one place as long as it does
// not need more. Join may be called once, before Close.
func (t *Transport) Join(f Fleet, guest bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.fleet != nil {
		return
	}
	t.fleet, t.guest = f, guest
	for _, g := range t.sorted() {
		t.enlist(g)
	}
}

// enlist makes an upstream a member. The caller holds mu.
func (t *Transport) enlist(g *Upstream) {
	if t.fleet == nil {
		return
	}
	key := g.cfg.fleetKey(t.fleet.Self())
	g.key = key
	t.keys[key]++
	if n := t.keys[key]; n > 1 { // the same endpoints with another user
		key += "#" + strconv.Itoa(n)
	}
	g.join(t.fleet, t.guest, key)
}

// quit ends an upstream's part in the fleet. Its calls that are under way go on. The caller holds mu.
func (t *Transport) quit(g *Upstream) {
	if leave := g.leave.Swap(nil); leave != nil {
		(*leave)()
		t.keys[g.key]--
	}
}

// fleetKey is equal for upstreams of several processes that share their limits: the name,
// and a digest of the limits, the endpoints and the key file's name. Upstreams that differ
// in any of it are strangers to each other. Endpoints on the loopback interface are each
// machine's own, so that their upstreams are shared within it only.
func (c UpstreamConfig) fleetKey(self string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%v %v %v\n%s\n", c.Name, c.Concurrency, c.RPM, c.TPM, filepath.Base(c.KeyFile))
	local := false
	all := make([]string, 0, len(c.URLs))
	for _, raw := range c.URLs {
		if u, err := url.Parse(raw); err == nil {
			all = append(all, urlDigest(u))
			local = local || onThisMachine(u.Hostname())
		}
	}
	slices.Sort(all)
	fmt.Fprintln(h, strings.Join(all, "\n"))
	if local {
		machine, err := os.Hostname()
		if err != nil {
			machine = self
		}
		fmt.Fprintln(h, machine)
	}
	return fmt.Sprintf("%.64s@%s", c.Name, hex.EncodeToString(h.Sum(nil)[:12]))
}

// onThisMachine reports whether a host means another machine everywhere.
func onThisMachine(host string) bool {
	ip := net.ParseIP(host)
	return namesLoopback(host) || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// urlDigest stands for an endpoint where others may read it. User, password and query
// are not part of it, because a digest of a short secret can be guessed.
func urlDigest(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	sum := sha256.Sum256([]byte(u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port) + strings.TrimSuffix(u.EscapedPath(), "/")))
	return hex.EncodeToString(sum[:9])
}
