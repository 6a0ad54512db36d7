package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/pool/engines"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/judge"
	"github.com/rewardloop/rewardloop/rewards/remote"
	"github.com/rewardloop/rewardloop/rewards/vlm"
)

// Engines are all model servers and services that scorers call: the engines of the configuration,
// which judges and the reward router share and some of which are models in this process, and the
// servers in the options of scorers. New Engines connect to nothing and load nothing.
type Engines struct {
	seeded    bool // questions about a sample have a seed of its id
	transport *outbound.Transport
	judges    *vlm.Judges // for engines that are a model here
	engines   []engine    // in the order of their names, reward_model's first

	log         *slog.Logger
	sides       []*outbound.Transport // by which servers that are started here are tried
	stopTending []context.CancelFunc
	tending     sync.WaitGroup

	mu     sync.Mutex
	chats  map[chat.Endpoint]*chat.Client // guarded by mu; by engine and model
	trials []*trial                       // guarded by mu
}

// engine is one of the configuration.
type engine struct {
	cfg      *config.Engine
	upstream *outbound.Switch // nil: a model that runs here
	run      *engines.Engine  // nil: its servers are not started here
}

var (
	_ chat.Clients     = (*Engines)(nil)
	_ judge.Engines    = (*Engines)(nil)
	_ remote.Upstreams = (*Engines)(nil)
)

// newEngines makes the upstreams of the configuration's engines, or says everything that
// is wrong with them. Judges have the models that run here.
func newEngines(c *config.Config, judges *vlm.Judges, log *slog.Logger) (*Engines, error) {
	transport, err := outbound.NewTransport(c.Outbound)
	if err != nil {
		return nil, fmt.Errorf("the section outbound: %w", err)
	}
	e := &Engines{seeded: c.Loop.Deterministic, transport: transport, judges: judges, chats: map[chat.Endpoint]*chat.Client{}, log: log}
	if log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	var faults []error
	for _, name := range c.EngineNames() {
		cfg := c.Engines[name]
		if cfg.ONNX != "" {
			e.engines = append(e.engines, engine{cfg: cfg})
			continue
		}
		x, err := e.server(c, cfg)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: engine %s: %w", cfg.Place, name, err))
			continue
		}
		e.engines = append(e.engines, x)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	slices.SortStableFunc(e.engines, func(a, b engine) int { return cmp.Compare(rank(a), rank(b)) })
	return e, nil
}

// server makes the upstream of an engine of servers, those that are started here among them.
func (e *Engines) server(c *config.Config, cfg *config.Engine) (engine, error) {
	x, urls := engine{cfg: cfg}, cfg.URLs
	if cfg.Managed != nil {
		run, err := e.run(c, cfg)
		if err != nil {
			return x, err
		}
		x.run, urls = run, run.URLs()
	}
	upstream, err := e.transport.Upstream(upstreamOf(cfg, urls))
	if err != nil {
		return x, err
	}
	x.upstream = outbound.NewSwitch(upstream)
	if x.run != nil {
		x.hold("engine " + cfg.Name + " is started only by processes with workers, and this process has none yet")
	}
	return x, nil
}

// upstreamOf is how an engine is asked whose servers have these addresses.
func upstreamOf(cfg *config.Engine, urls []string) outbound.UpstreamConfig {
	g := cfg.UpstreamConfig
	g.URLs = urls
	g.HealthPath = "/v1/models"
	return g
}

// replace has an engine be asked by another configuration from the next question on.
func (e *Engines) replace(cfg *config.Engine) error {
	x, err := e.find(cfg.Name)
	urls := cfg.URLs
	if err == nil && x.run != nil {
		urls = x.run.URLs()
	}
	if err == nil {
		err = e.transport.Replace(x.upstream, upstreamOf(cfg, urls))
	}
	if err != nil {
		return fmt.Errorf("%s: engine %s: %w", cfg.Place, cfg.Name, err)
	}
	if x.run != nil {
		for _, s := range x.run.Status() {
			e.tell(x, s)
		}
	}
	return nil
}

// rank puts the engines of reward models before the others.
func rank(e engine) int {
	if strings.HasPrefix(e.cfg.Name, "reward_model") {
		return 0
	}
	return 1
}

// find looks up an engine by its name; "" is reward_model's.
func (e *Engines) find(name string) (engine, error) {
	name = cmp.Or(name, "reward_model")
	for _, x := range e.engines {
		if x.cfg.Name == name {
			return x, nil
		}
	}
	known := make([]string, 0, len(e.engines))
	for _, x := range e.engines {
		known = append(known, x.cfg.Name)
	}
	if len(known) == 0 {
		return engine{}, fmt.Errorf("no engine %q: write reward_model with enable: true, model_path and rollout: {name: external, base_urls: […]}, "+
			"or a section engines with engines.%s.base_urls and .model", name, name)
	}
	return engine{}, fmt.Errorf("no engine %q, want one of %s", name, strings.Join(known, ", "))
}

// Client implements chat.Clients. There is one client, with one cache, for each engine and model.
func (e *Engines) Client(at chat.Endpoint, sample chat.Request) (chat.Chatter, error) {
	x, err := e.find(at.Engine)
	if err != nil {
		return nil, err
	}
	if x.upstream == nil {
		return e.judges.Judge(vlm.Options{Model: cmp.Or(at.Model, x.cfg.ONNX), Device: x.cfg.Device})
	}
	at = chat.Endpoint{Engine: x.cfg.Name, Model: cmp.Or(at.Model, x.cfg.Model)}
	c, err := e.client(x, at)
	if err != nil {
		return nil, err
	}
	if len(sample.Messages) == 0 {
		return e.chatter(c), nil
	}
	t := e.addTrial(&trial{at: at, what: asksFor(sample), try: func(ctx context.Context, doer outbound.Doer) (lacks, err error) {
		return chat.Try(ctx, doer, at.Model, sample)
	}})
	return able{c, e.chatter(c), t}, nil
}

// asksFor says what a scorer's questions ask for, for people.
func asksFor(sample chat.Request) string {
	what := "an answer"
	pictures := 0
	for _, m := range sample.Messages {
		for _, p := range m.Parts {
			if p.Image != nil {
				pictures++
			}
		}
	}
	if pictures > 1 {
		what += fmt.Sprintf(" about %d pictures", pictures)
	}
	if sample.Logprobs {
		what += " with log probabilities"
	}
	if sample.ResponseFormat != nil {
		what += " by a JSON schema"
	}
	return what
}

// client is that of an engine and a model.
func (e *Engines) client(x engine, at chat.Endpoint) (*chat.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.chats[at]; c != nil {
		return c, nil
	}
	cfg := x.cfg.Chat
	cfg.Model = at.Model
	if cfg.CacheBytes == 0 {
		cfg.CacheEntries = -1
	}
	c, err := chat.New(cfg, x.upstream)
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", x.cfg.Name, err)
	}
	e.chats[at] = c
	return c, nil
}

func (e *Engines) chatter(c *chat.Client) chat.Chatter {
	if e.seeded {
		return chat.Seeded{Client: c}
	}
	return c
}

// Engine implements judge.Engines.
func (e *Engines) Engine(at chat.Endpoint, sample func(model string) outbound.Call) (outbound.Doer, string, error) {
	x, err := e.find(at.Engine)
	if err != nil {
		return nil, "", err
	}
	if x.upstream == nil {
		return nil, "", fmt.Errorf("engine %s is a model that runs in this process and only chats, but the scorer needs a server: write its base_urls", x.cfg.Name)
	}
	at = chat.Endpoint{Engine: x.cfg.Name, Model: cmp.Or(at.Model, x.cfg.Model)}
	call := sample(at.Model)
	t := e.addTrial(&trial{at: at, what: call.Path, try: func(ctx context.Context, doer outbound.Doer) (lacks, err error) {
		return chat.TryCall(ctx, doer, call)
	}})
	return ableDoer{x.upstream, t}, at.Model, nil
}

// Upstream implements remote.Upstreams.
func (e *Engines) Upstream(urls []string, o remote.UpstreamOptions) (outbound.Doer, error) {
	return e.transport.Upstream(outbound.UpstreamConfig{
		URLs: urls, KeyFile: o.KeyFile, Concurrency: o.Concurrency, RPM: o.RPM, Timeout: o.Timeout, Attempts: o.Attempts,
		IdleTimeout: o.IdleTimeout,
	})
}

// Router returns the reward router's connection to the engines, or nil if there are none.
func (e *Engines) Router() outbound.Doer {
	servers := slices.DeleteFunc(slices.Clone(e.engines), func(x engine) bool { return x.upstream == nil })
	if len(servers) == 0 {
		return nil
	}
	return router{servers}
}

// asks reports whether anything is asked by HTTP.
func (e *Engines) asks() bool { return len(e.transport.Upstreams()) > 0 }

// chatStats are the counters of the judges' clients.
func (e *Engines) chatStats() map[chat.Endpoint]chat.Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make(map[chat.Endpoint]chat.Stats, len(e.chats))
	for at, c := range e.chats {
		out[at] = c.Stats()
	}
	return out
}

// Close ends the requests in flight and closes the connections.
func (e *Engines) Close() error {
	errs := []error{e.stop()}
	e.mu.Lock()
	chats := e.chats
	e.chats = map[chat.Endpoint]*chat.Client{}
	e.mu.Unlock()
	for _, c := range chats {
		errs = append(errs, c.Close())
	}
	e.transport.Close()
	return errors.Join(errs...)
}

// router hands a call to the engine whose model it names.
type router struct{ engines []engine }

// Do implements outbound.Doer. A call that names no model goes to the first engine, one
// that names an unknown one to the only engine, which knows best what it serves.
func (r router) Do(ctx context.Context, c *outbound.Call) (*outbound.Answer, error) {
	var asked struct {
		Model string `json:"model"`
	}
	if len(c.Body) > 0 {
		// Whatever else is in it is the engine's to judge.
		_ = json.Unmarshal(c.Body, &asked)
	}
	if asked.Model == "" || len(r.engines) == 1 {
		return r.engines[0].upstream.Do(ctx, c)
	}
	known := make([]string, len(r.engines))
	for i, e := range r.engines {
		if e.cfg.Model == asked.Model {
			return e.upstream.Do(ctx, c)
		}
		known[i] = e.cfg.Model
	}
	return nil, fmt.Errorf("%w: no engine serves the model %.200q, want one of %s", rewards.BadInput, asked.Model, strings.Join(slices.Compact(known), ", "))
}
