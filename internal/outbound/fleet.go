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
	// FleetPeriod is how often a Fleet asks its members for a Report, at least.
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

// Fleet carries the reports of upstreams between processes that share limits. Nil: the
// process is alone, and has all of them.
//
// Every process must hear the reports of all, its own included, in the same order. It may
// miss some as long as it hears later ones.
type Fleet interface {
	// Self names this process; no other has the name, not even its own earlier life.
	Self() string
	// Join makes m one of the processes that share an upstream, until leave is called. From
	// then on m is asked for its Report each FleetPeriod, and told what is heard of the
	// upstream, which begins with what is known already.
	Join(upstream string, m Member) (leave func())
	// Urge asks for a Report soon. It does not block.
	Urge()
}

// Member is a process's part in one upstream. Its methods may be called from any goroutine.
type Member interface {
	// Report is what the other processes shall know.
	Report() Report
	// Heard is told of a process's report, its own as well; nil: it has left the upstream.
	Heard(from string, r *Report)
}

// Report is what a process says of its part in an upstream. It replaces what it said before.
type Report struct {
	// Seq numbers a process's reports.
	Seq uint64 `json:"seq"`
	// Guest: it is there to know what the others know, and seldom asks for anything itself, as
	// a gateway without workers.
	Guest bool `json:"guest,omitempty"`
	// Requests and Tokens are what it wants in a minute, Places how many requests in
	// flight. They are only compared with each other.
	Requests float64 `json:"requests,omitempty"`
	Tokens   float64 `json:"tokens,omitempty"`
	Places   float64 `json:"places,omitempty"`
	// Used are the requests that it has in flight, which may be more than its share.
	Used int `json:"used,omitempty"`
	// Full is for how many milliseconds it has used all places that it may; 0: it does not.
	Full int64 `json:"full,omitempty"`
	// Open are the endpoints that it found out of service itself.
	Open []Opening `json:"open,omitempty"`
	// Alive are endpoints that another process found out of service, but which have
	// answered this one since.
	Alive []string `json:"alive,omitempty"`
}

// Opening is an endpoint that a process has taken out of service.
type Opening struct {
	// Endpoint is a digest of its URL.
	Endpoint string `json:"endpoint"`
	// Failed counts how often the process's own requests took it out of service or kept
	// it there; 0: it only relies on the report of others, and is asking for itself now.
	Failed int64 `json:"failed,omitempty"`
	// Due is in how many milliseconds it will be probed, counted from the report;
	// negative where nobody has come to do it. Pause is how long it was left alone, in
	// milliseconds.
	Due   int64 `json:"due"`
	Pause int64 `json:"pause"`
	// Probing: a probe is under way.
	Probing bool `json:"probing,omitempty"`
}

// Join makes the transport's upstreams, those of later as well, share their limits with the
// other processes of a fleet. A guest seldom has a call of its own: it has one place while
// it asks for no more. It may be called once, before Close.
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
