package config

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Fabric holds the settings of the section fabric.
type Fabric struct {
	// NATS are the servers of an engine that runs by itself; none: it is in this process.
	NATS []string
	// NATSListen is where the engine of this process takes others; "": nowhere.
	NATSListen string
	NATSDir    string
	ACLFile    string
	NKeyFile   string
	CredsFile  string
	TLSCA      string
	TLSCert    string
	TLSKey     string
	// TLSClients lets only those into NATSListen who show a certificate of TLSCA.
	TLSClients bool
	// Name is this process among all; "": host and process number.
	Name string
	// Advertise is where workers reach this gateway; "": it follows from server.listen.
	Advertise string
	// Rewards are those that this process's workers serve; none: all of the file.
	Rewards  []string
	Lease    time.Duration
	ClaimTTL time.Duration
	Replicas int
	// Durable keeps accepted samples and unconfirmed results in SpoolDir, and tickets on the
	// disk of NATS.
	Durable    bool
	SpoolDir   string
	SpoolBytes int64
	SpoolFsync string // FsyncNone or FsyncGroup
}

// Values of fabric.spool_fsync.
const (
	FsyncNone  = "none"
	FsyncGroup = "group"
)

// Networked reports whether workers of other processes may join.
func (f Fabric) Networked() bool { return len(f.NATS) > 0 || f.NATSListen != "" }

// defaultFabric has the default of every setting.
func defaultFabric() Fabric {
	return Fabric{Lease: 15 * time.Second, ClaimTTL: 2 * time.Minute, Replicas: 1, SpoolBytes: 16 << 30, SpoolFsync: FsyncNone}
}

// section is the table of the settings of fabric.
func (f *Fabric) section() section {
	return section{
		name: "fabric", doc: "Gateways and workers on several machines. Without it one process does it all.",
		settings: []setting{
			texts("nats", &f.NATS, "Servers of the NATS that all share, such as [nats://a:4222, nats://b:4222]; tls:// for TLS."),
			text("nats_listen", &f.NATSListen, "Address and port at which this gateway's own NATS takes workers and other gateways, instead of nats. "+
				"One that others can reach needs acl_file; without it one of the loopback takes processes of the same user."),
			text("nats_dir", &f.NATSDir, "Folder for the files of that NATS. Empty: a temporary one."),
			text("acl_file", &f.ACLFile, "Who may connect to it, as `rewardloop fabric acl` writes it."),
			text("nkey_file", &f.NKeyFile, "This process's key for NATS: gateway.nk or worker.nk."),
			text("creds_file", &f.CredsFile, "The same where NATS knows its users by JWT."),
			text("tls_ca", &f.TLSCA, "CA file (PEM) by which the certificates of NATS and of gateways are checked. Empty: the system's."),
			text("tls_cert", &f.TLSCert, "Certificate file (PEM): that of nats_listen, and what NATS and gateways that ask for one are shown."),
			text("tls_key", &f.TLSKey, "Its private key file (PEM)."),
			toggle("tls_clients", &f.TLSClients, "nats_listen takes only those who show a certificate that tls_ca has signed."),
			text("name", &f.Name, "Name of this process; another one for each. Empty: host and process number."),
			text("advertise", &f.Advertise, "Where workers reach this gateway, such as ws://10.0.0.5:8080. Empty: it follows from server.listen."),
			texts("rewards", &f.Rewards, "Rewards that the workers of this process serve, by the names of their sections. Empty: all of this file."),
			period("lease", &f.Lease, time.Second, "How long a worker may be silent before its samples go to others."),
			period("claim_ttl", &f.ClaimTTL, time.Second, "How long a ticket entitles to the sample that it is for."),
			integer("replicas", &f.Replicas, 1, 5, "Servers of a NATS cluster that each keep the tickets."),
			toggle("durable", &f.Durable, "A sample that this gateway has acknowledged is scored although its process dies; tickets are kept on disk, too. "+
				"Off: it lives in memory, and its client sends it again."),
			text("spool_dir", &f.SpoolDir, "Folder for such samples and their results; with durable. Another one for each gateway."),
			size("spool_bytes", &f.SpoolBytes, 1<<20, "Bytes of its files; samples beyond it wait at their clients. At least 8/7 of loop.message_bytes."),
			choice("spool_fsync", &f.SpoolFsync, []string{FsyncNone, FsyncGroup}, "What a power failure may cost: acknowledged samples (none), or nothing that was acknowledged (group: "+
				"one fsync every few milliseconds for all samples that wait for it)."),
		},
	}
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
	if f.Durable && f.SpoolBytes-f.SpoolBytes/8 < c.Loop.MessageBytes {
		r.faultAt("fabric.spool_bytes", "seven eighths of it are less than one sample may have (loop.message_bytes: %s)", formatSize(c.Loop.MessageBytes))
	}
	if f.SpoolFsync != FsyncNone && !f.Durable {
		r.faultAt("fabric.spool_fsync", "is for fabric.durable: true")
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
}
