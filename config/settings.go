package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A section is a mapping of the file with settings and further sections in it.
type section struct {
	name, doc string
	settings  []setting
	sections  []section
}

// A setting binds a key to a field of a Config: how the file's value gets in and
// how it is shown.
type setting struct {
	key, doc string
	decode   func(r *reader, v value)
	show     func() string
}

// sections is the table of all settings of c outside of rewards. It reads, it
// prints, and it says which keys an override may name.
func (c *Config) sections() []section {
	l, p, s, f := &c.Loop, &c.Pool, &c.Server, &c.Fabric
	return []section{{
		name: "loop", doc: "How samples are accepted, queued and answered.",
		settings: []setting{
			size("max_bytes", &l.MaxBytes, 1<<20, "Bytes of samples in flight and of credit not yet used, all clients together."),
			size("message_bytes", &l.MessageBytes, 1<<10, "The largest sample. At most max_bytes."),
			integer("credit_samples", &l.CreditSamples, 1, 1_000_000, "Samples one connection may send ahead of those whose buffers are free again."),
			size("credit_bytes", &l.CreditBytes, 1<<10, "Bytes one connection may send ahead. At most max_bytes."),
			integer("max_attempts", &l.MaxAttempts, 1, 100, "How often a sample is handed to a worker before it counts as lost."),
			period("sample_timeout", &l.SampleTimeout, time.Second, "From arrival to result, for samples of the websocket that name no deadline."),
			period("http_sample_timeout", &l.HTTPSampleTimeout, time.Second, "The same for HTTP requests; flow_grpo's clients give up at 120 s."),
			period("compute_timeout", &l.ComputeTimeout, time.Second, "The same for POST /compute; Flow-Factory's client gives up at 60 s."),
			period("max_sample_timeout", &l.MaxSampleTimeout, time.Second, "The longest deadline a client may ask for."),
			period("step_timeout", &l.StepTimeout, time.Second, "How long a step may take; the one that closes first goes first."),
			choice("on_step_deadline", &l.OnStepDeadline, []string{DeadlineMask, DeadlineFail, DeadlineShortfall},
				"What a declared step's rewards are when its time is over with samples missing: those rows masked, an error, or the step without them."),
			size("step_bytes", &l.StepBytes, 1<<10, "Bytes of the rows of steps that trainers read as a whole, all runs together."),
			period("step_age", &l.StepAge, time.Second, "Age of such rows."),
			toggle("deterministic", &l.Deterministic, "Results do not depend on which worker scores a sample, or beside which others: onnx runs batches of one, "+
				"nothing is asked for twice, and questions to a judge without a seed have one of the sample's id. Slower."),
			integer("num_examine", &l.NumExamine, 0, 10_000, "Samples of each step that are printed with their rewards."),
			period("term_timeout", &l.TermTimeout, time.Millisecond, "One scorer on one sample, retries included, where its entry has no timeout."),
			period("claim_timeout", &l.ClaimTimeout, time.Second, "How long a worker may keep a sample before another gets it. At least the longest term."),
			weights("run_weights", &l.RunWeights, "Shares of training runs by name, such as {ocr: 2}; a run not named has 1."),
			integer("results_kept", &l.ResultsKept, 1, 10_000_000, "Results of a run kept for a client that comes back."),
			size("results_bytes", &l.ResultsBytes, 1<<10, "Bytes of such results of a run."),
			period("results_age", &l.ResultsAge, time.Second, "Age of such results."),
			period("drain_timeout", &l.DrainTimeout, 0, "How long a process that was told to stop finishes what it has."),
		},
		sections: []section{{
			name: "dispatch", doc: "Which worker gets a sample, and when a second one does.",
			settings: []setting{
				choice("policy", &l.Dispatch.Policy, []string{DispatchRandom, DispatchRandomBlind, DispatchSpeedWeighted}, "random: one of the free slots. random_blind: one of all workers, busy or not, for comparison. "+
					"speed_weighted: as random, but clearly slower workers do not get the last samples of a step."),
				factor("backup_after", &l.Dispatch.BackupAfter, 0, 1e6, "How many times the usual service time a sample may run, once its step is all here, before "+
					"an idle worker is asked, too. 0: never. 2.5 is a good start where asking twice does no harm."),
				factor("backup_share", &l.Dispatch.BackupShare, 1e-6, 1, "The most samples of a step that are asked for twice, as a part of all."),
			},
		}, {
			name: "workers", doc: "The reward-loop workers of this process; reward.num_workers is their number.",
			settings: []setting{
				integer("slots", &l.Workers.Slots, 0, 65536, "Samples one worker scores at a time. 0: its share of four for each CPU."),
				integer("max_abandoned", &l.Workers.MaxAbandoned, 0, 65536, "Scorer calls past their deadline a worker bears before it takes no more. 0: half its slots."),
				integer("breaker_failures", &l.Workers.BreakerFailures, 1, 65536, "Failures in a row that take a worker out."),
				period("breaker_pause", &l.Workers.BreakerPause, time.Millisecond, "How long it stays out before one sample tries it; doubles with each that fails."),
				period("breaker_max_pause", &l.Workers.BreakerMaxPause, time.Millisecond, "The longest such pause. At least breaker_pause."),
			},
		}},
	}, {
		name: "pool", doc: "What scores samples.",
		settings: []setting{
			choice("isolation", &p.Isolation, []string{IsolationProcess, IsolationInline},
				"process: engines that can crash run in child processes. inline: in this one, for debugging."),
			text("models_dir", &p.ModelsDir, "Folder of model files. Empty: REWARDLOOP_MODELS, else the clone's .cache/models, else rewardloop/models in the user's cache folder."),
		},
		sections: []section{{
			name: "onnx", doc: "ONNX Runtime, which runs models such as PP-OCR.",
			settings: []setting{
				text("library", &p.ONNX.Library, "libonnxruntime 1.29 or newer. Empty: looked for; rewardloop doctor says where."),
				integer("slots", &p.ONNX.Slots, 0, 1024, "Runs at the same time on the CPU, each in a process. 0: one for each CPU. A card has one."),
				integer("max_batch", &p.ONNX.MaxBatch, 1, 4096, "Items in one run, where measuring shows that it pays."),
				period("timeout", &p.ONNX.Timeout, time.Millisecond, "One run; a process that takes longer is killed and replaced."),
			},
		}, {
			name: "tesseract", doc: "The text reader of builtin://ocr.",
			settings: []setting{
				integer("slots", &p.Tesseract.Slots, 0, 1024, "Tesseract processes. 0: one for each CPU."),
				integer("psm", &p.Tesseract.PSM, 0, 13, "Page segmentation mode: 11 sparse text, 6 one block, 7 one line."),
				text("language", &p.Tesseract.Language, "Language data, such as eng or eng+chi_sim."),
				period("timeout", &p.Tesseract.Timeout, time.Millisecond, "One picture; a process that takes longer is killed and replaced."),
			},
		}, {
			name: "python", doc: "Processes that run Python reward functions (Linux only).",
			settings: []setting{
				text("interpreter", &p.Python.Interpreter, "Python 3.10 or newer, such as .venv/bin/python. Empty: REWARDLOOP_PYTHON, else python3 on PATH."),
				integer("hosts", &p.Python.Hosts, 0, 1024, "Processes for each function. 0: one for each CPU; one for an async function."),
				integer("concurrency", &p.Python.Concurrency, 1, 65536, "Calls of an async function that one process runs at a time."),
				size("memory_bytes", &p.Python.MemoryBytes, 0, "Address space of a process. 0: no limit; CUDA reserves far more than it uses."),
				size("file_bytes", &p.Python.FileBytes, 1<<10, "The largest file that a function may write."),
				integer("files", &p.Python.Files, 16, 1<<20, "Files and sockets that a process may have open."),
				period("start_timeout", &p.Python.StartTimeout, time.Millisecond, "One start, with what the module imports and what its class loads."),
				period("call_timeout", &p.Python.CallTimeout, 0, "One call; a process that takes longer is killed and replaced. 0: the timeout of its reward."),
				period("stall_timeout", &p.Python.StallTimeout, time.Millisecond, "How long a call of an async function may keep the others waiting before its process is killed."),
			},
		}, {
			name: "decode", doc: "Pictures and videos on their way to pixels.",
			settings: []setting{
				integer("max_pixels", &p.Decode.MaxPixels, 1, 1<<30, "Width × height of the largest picture or frame."),
				integer("max_frames", &p.Decode.MaxFrames, 1, 1<<20, "Frames of the longest video."),
				size("budget_bytes", &p.Decode.BudgetBytes, 1<<20, "What all decodings that run at the same time may allocate."),
			},
		}},
	}, {
		name: "outbound", doc: "What leaves this process by HTTP: engines, scorers on other servers, sandboxes.",
		settings: []setting{
			texts("allow", &c.Outbound.Allow, "Hosts, addresses or networks, such as [10.0.0.7, judge.local], that may be asked although they "+
				"lead to this machine. What an address in this file names itself may be; link-local addresses never."),
			text("proxy", &c.Outbound.Proxy, "Proxy for all of it, such as http://proxy:3128. The environment's is not used."),
			text("ca_file", &c.Outbound.CAFile, "Certificates (PEM) that are trusted besides the system's."),
		},
	}, {
		name: "server", doc: "The HTTP edge and the websocket.",
		settings: []setting{
			text("listen", &s.Listen, "Address and port. One that others can reach needs token_file."),
			text("token_file", &s.TokenFile, "File with the token that clients send as Authorization: Bearer."),
			text("tls_cert", &s.TLSCert, "Certificate file (PEM); with tls_key."),
			text("tls_key", &s.TLSKey, "Private key file (PEM); with tls_cert."),
			text("client_ca", &s.ClientCA, "Only clients with a certificate signed by this CA file (PEM); with tls_cert."),
			size("body_bytes", &s.BodyBytes, 1<<10, "The largest HTTP request body."),
		},
	}, {
		name: "fabric", doc: "Gateways and workers on several machines. Without it one process does it all.",
		settings: []setting{
			texts("nats", &f.NATS, "Servers of the NATS that all share, such as [nats://a:4222, nats://b:4222]; tls:// for TLS."),
			text("nats_listen", &f.NATSListen, "Address and port at which this gateway's own NATS takes workers and other gateways, instead of nats. "+
				"One that others can reach needs acl_file."),
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
			text("pool", &f.Pool, "Name of the workers that serve the same rewards. Empty: it follows from the rewards."),
			period("lease", &f.Lease, time.Second, "How long a worker may be silent before its samples go to others."),
			period("claim_ttl", &f.ClaimTTL, time.Second, "How long a ticket entitles to the sample that it is for."),
			integer("replicas", &f.Replicas, 1, 5, "Servers of a NATS cluster that each keep the tickets."),
			toggle("durable", &f.Durable, "A sample that this gateway has acknowledged is scored although its process dies; tickets are kept on disk, too. "+
				"Off: it lives in memory, and its client sends it again."),
			text("spool_dir", &f.SpoolDir, "Folder for such samples and their results; with durable. Another one for each gateway."),
			size("spool_bytes", &f.SpoolBytes, 1<<20, "Bytes of its files; a sample beyond it is refused as unavailable. At least loop.message_bytes."),
			toggle("shared_memory", &f.SharedMemory, "Workers on the gateway's own machine get samples through /dev/shm. On both sides."),
		},
	}}
}

// decodeSections reads one level of the table from the mapping that holds it.
func (r *reader) decodeSections(o *object, sections []section) {
	for _, s := range sections {
		v, ok := o.take(s.name)
		if !ok || v.null() {
			continue
		}
		inner := r.mapping(v)
		for _, set := range s.settings {
			if v, ok := inner.take(set.key); ok {
				set.decode(r, v)
			}
		}
		r.decodeSections(inner, s.sections)
		inner.refuseRest(s.names())
	}
}

// names are the keys that may stand in a section.
func (s section) names() []string {
	var out []string
	for _, set := range s.settings {
		out = append(out, set.key)
	}
	for _, sub := range s.sections {
		out = append(out, sub.name)
	}
	return out
}

func integer(key string, p *int, low, high int, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if n, ok := r.integer(v, low, high); ok {
				*p = n
			}
		},
		func() string { return strconv.Itoa(*p) },
	}
}

func factor(key string, p *float64, low, high float64, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if f, ok := r.number(v); ok {
				if !(f >= low && f <= high) {
					r.fault(v, "must be between %v and %v, got %v", low, high, f)
					return
				}
				*p = f
			}
		},
		func() string { return strconv.FormatFloat(*p, 'g', -1, 64) },
	}
}

func toggle(key string, p *bool, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if b, ok := r.boolean(v); ok {
				*p = b
			}
		},
		func() string { return strconv.FormatBool(*p) },
	}
}

func size(key string, p *int64, low int64, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if n, ok := r.size(v, low); ok {
				*p = n
			}
		},
		func() string { return formatSize(*p) },
	}
}

func period(key string, p *time.Duration, low time.Duration, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if d, ok := r.duration(v, low); ok {
				*p = d
			}
		},
		func() string { return formatDuration(*p) },
	}
}

func text(key string, p *string, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if v.null() {
				*p = ""
			} else if s, ok := r.text(v); ok {
				*p = s
			}
		},
		func() string {
			if *p == "" {
				return "null"
			}
			return quote(*p)
		},
	}
}

func texts(key string, p *[]string, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			var out []string
			for _, item := range r.list(v) {
				if s, ok := r.text(item); ok {
					out = append(out, s)
				}
			}
			*p = out
		},
		func() string {
			if len(*p) == 0 {
				return "[]"
			}
			return printable(encode(*p))
		},
	}
}

func choice(key string, p *string, words []string, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			if s, ok := r.choice(v, words); ok {
				*p = s
			}
		},
		func() string { return *p },
	}
}

func weights(key string, p *map[string]float64, doc string) setting {
	return setting{
		key, doc, func(r *reader, v value) {
			m := map[string]float64{}
			for _, e := range r.mapping(v).rest() {
				if w, ok := r.number(e.value); ok {
					if w <= 0 || w > math.MaxInt32 {
						r.fault(e.value, "a weight must be positive, got %v", w)
						continue
					}
					m[e.name] = w
				}
			}
			*p = m
		},
		func() string {
			parts := make([]string, 0, len(*p))
			for _, k := range slices.Sorted(maps.Keys(*p)) {
				parts = append(parts, fmt.Sprintf("%s: %v", quote(k), (*p)[k]))
			}
			return "{" + strings.Join(parts, ", ") + "}"
		},
	}
}
