package config

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// This file says which sections there are besides those of rewards and engines. What the keys
// of a section are, the package says whose Config they set (config/keys); here are the few that
// belong to the process as a whole.

// sections are all settings of c outside of rewards and engines.
func (c *Config) sections() []*keys.Section {
	var all keys.Set
	l := all.Section("loop", "How samples are accepted, queued and answered.", &c.Loop, keys.Func(c.Server.SampleKeys))
	l.Section("workers", "The reward-loop workers of this process; reward.num_workers is their number.", &c.Workers, &c.Loop.Breaker)
	all.Section("pool", "Models, child processes and decoders of this process.", &c.Pool)
	all.Section("store", "Final results that a gateway keeps for the page, rewardloop export and rewardloop replay.", &c.Store)
	all.Section("outbound", "Outgoing HTTP requests of this process: to engines, scorers on other servers and sandboxes.", &c.Outbound)
	all.Section("server", "The HTTP server and its websocket.", &c.Server)
	all.Section("telemetry", "Traces of samples for a collector of OpenTelemetry (docs/tracing.md).", &c.Telemetry)
	f := all.Section("queue", "Gateways and workers on several machines. Without this section one process is both.", &c.Queue)
	f.Check(c.checkQueue)
	return all.Sections
}

// Loop holds the settings of the section loop, except those of HTTP and of the workers.
type Loop struct {
	loop.Config

	Deterministic                  bool
	ComponentTimeout, DrainTimeout time.Duration
}

// Keys implements keys.Described.
func (l *Loop) Keys(k *keys.Set) {
	l.Config.Keys(k)
	k.Bool(&l.Deterministic, "deterministic", "Makes results independent of worker and batch, at a lower speed: ONNX batches of one, no backup requests, and seeds of judge requests that are derived from the sample's id.")
	k.Duration(&l.ComponentTimeout, "component_timeout", rewards.DefaultComponentTimeout, "Time limit for one component of a sample, retries included, unless the component sets timeout.").Min(time.Millisecond)
	k.Duration(&l.DrainTimeout, "drain_timeout", 30*time.Second, "Time limit for finishing samples in flight when the process stops.")
	k.AtMost("component_timeout", "claim_timeout")
	// The lesser of these counts, so that a program may set them otherwise; in a file it is a slip.
	k.AtMost("credit_bytes", "max_bytes")
	k.AtMost("sample_timeout", "max_sample_timeout")
	k.Check(func(r keys.Report) {
		if l.Deterministic && l.Dispatch.BackupAfter > 0 {
			r.Note("dispatch.backup_after", "has no effect with %s, because the faster of two answers would count", r.Path("deterministic"))
		}
	})
}

// Pool holds the settings of the section pool.
type Pool struct {
	// Isolation is a value of ort.Isolation, which has the same values as tesseract.Isolation.
	Isolation string
	ModelsDir string
	// Colocated reports that a trainer uses the memory of the cards between its reward phases.
	Colocated bool
	ONNX      ort.Config
	Tesseract tesseract.Config
	Python    python.Config
	Decode    media.Config
}

// Keys implements keys.Described.
func (p *Pool) Keys(k *keys.Set) {
	k.Choice(&p.Isolation, "isolation", []string{string(ort.Process), string(ort.Inline)},
		"Isolation of ONNX Runtime and Tesseract, whose native code can crash. process: in child processes. inline: in this process, for debugging only.")
	k.Text(&p.ModelsDir, "models_dir", "", "Folder of model files. Empty: $REWARDLOOP_MODELS, else .cache/models in the Git checkout of rewardloop, else rewardloop/models in the user's cache folder.")
	k.Bool(&p.Colocated, "colocated", "Shares the GPUs with one trainer: engines and models use GPU memory, and samples are scored, only in the trainer's reward phase (`loop.phase(\"reward\")`). Needs a gateway with workers.")
	k.Section("onnx", "ONNX Runtime, which runs models such as PP-OCR.", &p.ONNX)
	k.Section("tesseract", "Tesseract, a text reader of builtin://ocr.", &p.Tesseract)
	k.Section("python", "Processes that run Python reward functions (Linux only).", &p.Python)
	k.Section("decode", "Decoding of images, videos and sound files.", &p.Decode)
}

// Queue holds the settings of the section queue: the addresses and credentials of NATS, and the
// spool of a durable gateway.
type Queue struct {
	queue.Config

	Spool spool.Config

	ACLFile, NKeyFile, CredsFile string
	TLSCA, TLSCert, TLSKey       string
	TLSClients                   bool
	// Advertise is the address at which workers reach this gateway. If it is empty, the address
	// follows from server.listen.
	Advertise string
	// Rewards are the names of the rewards that this process's workers serve. If empty, the workers
	// serve all rewards of the file.
	Rewards  []string
	ClaimTTL time.Duration
}

// Keys implements keys.Described.
func (f *Queue) Keys(k *keys.Set) {
	f.Config.Keys(k)
	k.Text(&f.ACLFile, "acl_file", "", "File with the users that may connect to the NATS of this gateway, written by `rewardloop queue acl`.")
	k.Text(&f.NKeyFile, "nkey_file", "", "File with the NATS key of this process: gateway.nk or worker.nk.")
	k.Text(&f.CredsFile, "creds_file", "", "File with the NATS credentials of this process, where NATS identifies users by JWT.")
	k.Text(&f.TLSCA, "tls_ca", "", "CA file (PEM) by which the certificates of NATS and of gateways are checked. Empty: the system's certificates.")
	k.Text(&f.TLSCert, "tls_cert", "", "Certificate file (PEM) of nats_listen, also shown to NATS servers and gateways that ask for a client certificate.")
	k.Text(&f.TLSKey, "tls_key", "", "Private key file (PEM) of tls_cert.")
	k.Bool(&f.TLSClients, "tls_clients", "Restricts nats_listen to peers with a certificate that tls_ca has signed.")
	k.Text(&f.Advertise, "advertise", "", "Address at which workers reach this gateway, such as ws://10.0.0.5:8080. Empty: derived from server.listen.")
	k.Texts(&f.Rewards, "rewards", "Names of the rewards that the workers of this process serve: default for the section reward, else the name below rewards. Empty: all rewards of this file.")
	k.Duration(&f.ClaimTTL, "claim_ttl", 2*time.Minute, "Lifetime of a ticket: the time that a worker of another process has to claim the sample.").Min(time.Second)
	f.Spool.Keys(k)
	k.Check(f.checkAccess)
	k.Check(f.checkSpool)
}

// checkAccess checks how this process and others show who they are.
func (f *Queue) checkAccess(r keys.Report) {
	if (f.TLSCert == "") != (f.TLSKey == "") {
		r.Fault("tls_cert", "%s and %s go together", r.Path("tls_cert"), r.Path("tls_key"))
	}
	if f.TLSClients && (f.TLSCA == "" || f.TLSCert == "" || f.Listen == "") {
		r.Fault("tls_clients", "needs %s with %s, and %s to verify client certificates", r.Path("nats_listen"), r.Path("tls_cert"), r.Path("tls_ca"))
	}
	if f.NKeyFile != "" && f.CredsFile != "" {
		r.Fault("creds_file", "%s is set too: leave one of them out", r.Path("nkey_file"))
	}
	if f.ACLFile != "" && f.Listen != "" && f.NKeyFile == "" {
		r.Fault("acl_file", "this process needs a key from the list too: set %s to the file gateway.nk", r.Path("nkey_file"))
	}
	if f.ACLFile != "" && f.Listen == "" {
		r.Fault("acl_file", "is for a NATS server that this process starts: needs %s", r.Path("nats_listen"))
	}
	if public, _ := keys.Public(f.Listen); public && f.ACLFile == "" {
		r.Fault("nats_listen", "%s can be reached from other machines: write %s, which `rewardloop queue acl` makes", f.Listen, r.Path("acl_file"))
	}
	for _, u := range f.URLs { // a program may leave the scheme out; in a file it says whether there is TLS
		if x, err := url.Parse(u); err != nil || (x.Scheme != "nats" && x.Scheme != "tls") || x.Host == "" {
			r.Fault("nats", "want addresses such as nats://10.0.0.5:4222 or tls://nats.lab:4222, got %q", shorten(u))
		}
	}
	if f.Advertise != "" {
		if x, err := url.Parse(f.Advertise); err != nil || (x.Scheme != "ws" && x.Scheme != "wss") || x.Host == "" || strings.Trim(x.Path, "/") != "" || x.User != nil {
			r.Fault("advertise", "want an address such as ws://10.0.0.5:8080, or wss:// where server.tls_cert is written, got %q", shorten(f.Advertise))
		}
	}
}

// checkSpool checks what a durable gateway keeps, and where.
func (f *Queue) checkSpool(r keys.Report) {
	if f.Durable && f.Spool.Dir == "" {
		r.Fault("durable", "needs %s, the folder for samples that survive the process", r.Path("spool_dir"))
	}
	if f.Spool.Dir != "" && !f.Durable {
		r.Fault("spool_dir", "needs %s: true", r.Path("durable"))
	}
	if f.Spool.Fsync != spool.FsyncNone && !f.Durable {
		r.Fault("spool_fsync", "needs %s: true", r.Path("durable"))
	}
}

// checkQueue checks what the section means beside others.
func (c *Config) checkQueue(r keys.Report) {
	f := c.Queue
	if f.Durable && f.Spool.MaxBytes-f.Spool.MaxBytes/8 < c.Loop.MessageBytes {
		r.Fault("spool_bytes", "seven eighths of spool_bytes are less than the largest sample (loop.message_bytes: %s)", keys.FormatSize(c.Loop.MessageBytes))
	}
	for _, name := range f.Rewards {
		if c.Profiles[name] == nil {
			r.Fault("rewards", "unknown reward %q, want one of %s", shorten(name), strings.Join(slices.Sorted(maps.Keys(c.Profiles)), ", "))
		}
	}
}
