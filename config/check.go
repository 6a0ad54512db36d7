package config

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Note is something that is no fault, and that whoever wrote the file may want
// to know: a key without effect, or where a reward behaves otherwise than the
// same lines do in verl-omni, with the line that makes it the same.
type Note struct {
	Place   Place
	Key     string
	Message string
}

// String returns place, key and message on one line.
func (n Note) String() string { return Fault(n).String() }

// Notes are the notes of a configuration, in the order of the file.
func (c *Config) Notes() []Note { return slices.Clone(c.notes) }

func (r *reader) note(v value, message string) {
	r.noteAt(r.place(v.node), v.path, message)
}

func (r *reader) noteAt(at Place, key, message string) {
	r.notes = append(r.notes, Note{at, key, message})
}

func (r *reader) sortedNotes() []Note {
	slices.SortStableFunc(r.notes, func(a, b Note) int {
		return cmp.Or(a.Place.compare(b.Place), cmp.Compare(a.Key, b.Key))
	})
	return r.notes
}

// noteDifferences says where a profile is not what verl-omni makes of it.
func (r *reader) noteDifferences(p *Profile, path string) {
	if p.Single {
		return
	}
	if p.Aggregation != rewards.WeightedSum {
		key := path + ".aggregation"
		r.noteAt(r.places[key], key, fmt.Sprintf("verl-omni knows weighted_sum only; %s is rewardloop's", p.Aggregation))
	}
	for _, t := range p.Terms {
		if t.Required || t.OnFailure.Policy != "" {
			continue
		}
		r.noteAt(t.Place, path+".reward_functions."+t.Key, "where it fails, verl-omni adds 0; here the mean of the prompt group "+
			"stands in, and without a group the sample fails. `on_failure: zero` below it restores verl-omni's way")
	}
}

// whole checks what no single key can be wrong about.
func (r *reader) whole(c *Config) {
	l := c.Loop
	r.atMost("loop.message_bytes", "loop.max_bytes", l.MessageBytes, l.MaxBytes, formatSize)
	r.atMost("loop.credit_bytes", "loop.max_bytes", l.CreditBytes, l.MaxBytes, formatSize)
	period := func(n int64) string { return formatDuration(time.Duration(n)) }
	r.atMost("loop.sample_timeout", "loop.max_sample_timeout", int64(l.SampleTimeout), int64(l.MaxSampleTimeout), period)
	r.atMost("loop.http_sample_timeout", "loop.max_sample_timeout", int64(l.HTTPSampleTimeout), int64(l.MaxSampleTimeout), period)
	r.atMost("loop.compute_timeout", "loop.max_sample_timeout", int64(l.ComputeTimeout), int64(l.MaxSampleTimeout), period)
	r.atMost("loop.term_timeout", "loop.claim_timeout", int64(l.TermTimeout), int64(l.ClaimTimeout), period)
	r.atMost("loop.workers.breaker_pause", "loop.workers.breaker_max_pause",
		int64(l.Workers.BreakerPause), int64(l.Workers.BreakerMaxPause), period)
	if d := l.Dispatch; d.BackupAfter > 0 {
		if l.Deterministic {
			r.noteAt(r.places["loop.dispatch.backup_after"], "loop.dispatch.backup_after", "without effect beside loop.deterministic: of two answers the first would count")
		}
		if d.BackupAfter < 1 {
			r.faultAt("loop.dispatch.backup_after", "want 0 (never), or 1 and more times the usual service time, got %v", d.BackupAfter)
		}
		if d.Policy == DispatchRandomBlind {
			r.faultAt("loop.dispatch.backup_after", "needs the policy %s or %s: %s does not look for idle workers",
				DispatchRandom, DispatchSpeedWeighted, DispatchRandomBlind)
		}
	}
	r.server(c.Server)
	r.fabric(c)
}

// fabric checks what joins processes.
func (r *reader) fabric(c *Config) {
	f := c.Fabric
	if len(f.NATS) > 0 && f.NATSListen != "" {
		r.faultAt("fabric.nats_listen", "fabric.nats names a NATS that runs by itself, and this starts one: leave one of them out")
	}
	if c.NumWorkers == 0 && !f.Networked() {
		r.faultAt("reward.num_workers", "without workers here fabric.nats or fabric.nats_listen must say how others join")
	}
	if (f.TLSCert == "") != (f.TLSKey == "") {
		r.faultAt("fabric.tls_cert", "fabric.tls_cert and fabric.tls_key go together")
	}
	if f.TLSClients && (f.TLSCA == "" || f.TLSCert == "" || f.NATSListen == "") {
		r.faultAt("fabric.tls_clients", "needs fabric.nats_listen with fabric.tls_cert, and fabric.tls_ca to check by")
	}
	if f.NKeyFile != "" && f.CredsFile != "" {
		r.faultAt("fabric.creds_file", "fabric.nkey_file is there as well: leave one of them out")
	}
	if f.ACLFile != "" && f.NATSListen != "" && f.NKeyFile == "" {
		r.faultAt("fabric.acl_file", "this process needs a key of the list itself: write fabric.nkey_file, which is gateway.nk")
	}
	if f.ACLFile != "" && f.NATSListen == "" {
		r.faultAt("fabric.acl_file", "is for the NATS of this process: it needs fabric.nats_listen")
	}
	if f.Durable && f.SpoolDir == "" {
		r.faultAt("fabric.durable", "needs fabric.spool_dir, a folder for the samples that are to survive the process")
	}
	if f.SpoolDir != "" && !f.Durable {
		r.faultAt("fabric.spool_dir", "is for fabric.durable: true")
	}
	if f.Durable && f.SpoolBytes < c.Loop.MessageBytes {
		r.faultAt("fabric.spool_bytes", "is less than one sample may have (loop.message_bytes: %s)", formatSize(c.Loop.MessageBytes))
	}
	if f.NATSListen != "" {
		public, problem := publicAddress(f.NATSListen)
		switch {
		case problem != "":
			r.faultAt("fabric.nats_listen", "%s", problem)
		case public && f.ACLFile == "":
			r.faultAt("fabric.nats_listen", "%s can be reached from other machines: write fabric.acl_file, which `rewardloop fabric acl` makes", f.NATSListen)
		}
	}
	for _, u := range f.NATS {
		if x, err := url.Parse(u); err != nil || (x.Scheme != "nats" && x.Scheme != "tls") || x.Host == "" {
			r.faultAt("fabric.nats", "want addresses such as nats://10.0.0.5:4222 or tls://nats.lab:4222, got %q", shorten(u))
		}
	}
	if f.Advertise != "" {
		if x, err := url.Parse(f.Advertise); err != nil || (x.Scheme != "ws" && x.Scheme != "wss") || x.Host == "" || strings.Trim(x.Path, "/") != "" || x.User != nil {
			r.faultAt("fabric.advertise", "want an address such as ws://10.0.0.5:8080, or wss:// where server.tls_cert is written, got %q", shorten(f.Advertise))
		}
	}
	for _, name := range f.Rewards {
		if c.Profiles[name] == nil {
			r.faultAt("fabric.rewards", "there is no reward %q; known are %s", shorten(name), strings.Join(slices.Sorted(maps.Keys(c.Profiles)), ", "))
		}
	}
	if f.Pool != "" && !poolName.MatchString(f.Pool) {
		r.faultAt("fabric.pool", "want up to 64 of a-z, 0-9 and -, got %q", shorten(f.Pool))
	}
}

// poolName is what a pool may be called: it is part of a subject of NATS.
var poolName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// atMost is a fault of the smaller setting, or of the larger if only that was
// written.
func (r *reader) atMost(small, large string, a, b int64, show func(int64) string) {
	if a <= b {
		return
	}
	at, word, other, bound := small, "most", large, b
	if _, written := r.places[small]; !written {
		at, word, other, bound = large, "least", small, a
	}
	r.faultAt(at, "want at %s %s, which is %s", word, show(bound), other)
}

func (r *reader) server(s Server) {
	if (s.TLSCert == "") != (s.TLSKey == "") {
		given, missing := "tls_cert", "tls_key"
		if s.TLSCert == "" {
			given, missing = missing, given
		}
		r.faultAt("server."+given, "needs server.%s beside it", missing)
	}
	if s.ClientCA != "" && s.TLSCert == "" {
		r.faultAt("server.client_ca", "needs server.tls_cert and server.tls_key: certificates of clients are checked within TLS")
	}
	public, problem := publicAddress(s.Listen)
	switch {
	case problem != "":
		r.faultAt("server.listen", "%s", problem)
	case public && s.TokenFile == "":
		r.faultAt("server.listen", "%s can be reached from other machines: write server.token_file, or listen on 127.0.0.1", s.Listen)
	case public && s.TLSCert == "":
		r.noteAt(r.places["server.listen"], "server.listen", "without server.tls_cert the token crosses the network in clear")
	}
}

// publicAddress reports whether other machines may reach an address. A name that
// is not localhost counts as public: what it means is another machine's choice.
func publicAddress(listen string) (public bool, problem string) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return false, fmt.Sprintf("want an address and a port such as 127.0.0.1:8080, got %q", shorten(listen))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false, fmt.Sprintf("want a port of 0…65535, got %q", shorten(port))
	}
	if strings.EqualFold(host, "localhost") {
		return false, ""
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || !ip.IsLoopback(), ""
}
