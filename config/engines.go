package config

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/pool/engines"
)

// Engine is an upstream: equivalent servers, such as the replicas of a vLLM server. Judges call it,
// and the reward router forwards requests to it.
type Engine struct {
	// UpstreamConfig contains the name of the engine, the addresses of its servers without the /v1
	// of OpenAI's paths, and the settings for requests.
	outbound.UpstreamConfig

	// Chat configures the cache and the cost of the engine's answers.
	Chat chat.Config
	// Model is the name of the model in requests.
	Model string
	// ONNX is a model in this process's own pool of devices that answers in place of servers: a
	// name in the catalogue or a folder. Device is its device. With ONNX, only Fraction may also be
	// set: the model's share of each of its cards. If ONNX is empty, servers answer.
	ONNX, Device string
	Fraction     float64
	// Parallel is the number of cards of one server of a reward_model.
	Parallel Parallel
	// Managed configures how this process starts the servers of the engine; URLs is then empty. If
	// it is nil, the servers are already running, or there are none.
	Managed *Managed
	Place   Place

	local    bool  // of a reward_model whose model is to run here
	deviceAt Place // of the device, where it is written
}

// newEngine has the defaults of every setting.
func newEngine(name string) *Engine {
	e := &Engine{UpstreamConfig: outbound.UpstreamConfig{Name: name}}
	keys.Fill(e)
	return e
}

// Keys implements keys.Described with the keys of an engine except base_urls and model.
func (e *Engine) Keys(k *keys.Set) {
	e.UpstreamConfig.Keys(k)
	e.Chat.Keys(k)
}

// described are the keys of e.
func (e *Engine) described() *keys.Set {
	var k keys.Set
	e.Keys(&k)
	return &k
}

// engineKeys are the names of Engine.Keys.
func engineKeys() []string { return new(Engine).described().Names() }

// engineSettings reads the keys of an engine.
func (r *reader) engineSettings(o *object, e *Engine) {
	r.decodeKeys(o, e.described())
}

// engines reads the section engines.
func (r *reader) engines(c *Config, v value) {
	for _, entry := range r.mapping(v).rest() {
		if !profileName().MatchString(entry.name) || strings.HasPrefix(entry.name, rewardModelEngine) {
			r.fault(entry.value, "%q cannot name an engine: want letters, digits, dots, dashes and underscores, and not %s, which is reward.reward_model's",
				shorten(entry.name), rewardModelEngine)
			continue
		}
		o := r.mapping(entry.value)
		e := newEngine(entry.name)
		e.Place = r.place(entry.key)
		if v, ok := o.take("onnx"); ok && !v.null() {
			e.ONNX, _ = r.text(v)
			e.Model = e.ONNX
			r.local(e, o)
			o.refuseRest(localKeys())
			c.Engines[e.Name] = e
			continue
		}
		if urls, ok := o.take("base_urls"); ok {
			e.URLs = r.addresses(urls)
		} else {
			r.fault(entry.value, "has no base_urls: write the addresses of its servers, such as [http://127.0.0.1:8000], or onnx and a model that runs in this process")
		}
		if model, ok := o.take("model"); ok && !model.null() {
			e.Model, _ = r.text(model)
		}
		if e.Model == "" {
			r.fault(entry.value, "has no model: write the name under which its servers serve the model")
		}
		r.engineSettings(o, e)
		o.refuseRest(engineSection().Names())
		c.Engines[e.Name] = e
	}
}

// addresses reads base_urls.
func (r *reader) addresses(v value) []string {
	var out []string
	for _, item := range r.list(v) {
		if s, ok := r.text(item); ok {
			if fixed, ok := r.address(item, s); ok {
				out = append(out, fixed)
			}
		}
	}
	if len(out) == 0 && v.node != nil {
		r.fault(v, "want the addresses of servers, such as [http://127.0.0.1:8000]")
	}
	return out
}

// address checks one base URL and takes the /v1 off, which the paths bring.
func (r *reader) address(v value, s string) (string, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		r.fault(v, "want an address such as http://127.0.0.1:8000, got %q", shorten(s))
		return "", false
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	return u.String(), true
}

// rewardModelEngine names the engine of reward.reward_model; that of a further
// profile is rewardModelEngine + "." + the profile.
const rewardModelEngine = "reward_model"

func engineOf(profile string) string {
	if profile == DefaultProfile {
		return rewardModelEngine
	}
	return rewardModelEngine + "." + profile
}

// rewardModel reads reward_model. Switched off, which is its default, it has no effect but on
// reward.models; switched on, it is an engine that is started here, that runs already, or a model.
func (r *reader) rewardModel(c *Config, p *Profile, parent *object) {
	v, ok := parent.take("reward_model")
	if !ok || v.null() {
		return
	}
	o := r.mapping(v)
	enabled := false
	if v, ok := o.take("enable"); ok && !v.null() {
		enabled, _ = r.boolean(v)
	}
	e := newEngine(engineOf(p.Name))
	e.Place = r.place(v.node)
	model, hasModel := o.take("model_path")
	if hasModel && !model.null() && (len(p.Models) == 0 || enabled) {
		e.Model, _ = r.text(model)
		r.unless(enabled, model)
	}
	rollout, hasRollout := o.take("rollout")
	if hasRollout && (len(p.Models) == 0 || enabled) {
		r.rollout(p, e, r.mapping(rollout), enabled)
	}
	r.resourcePool(p, o, enabled)
	if e.Managed != nil {
		pool, _ := o.peek("enable_resource_pool")
		r.servers(e, p.Cards, pool)
	}
	for _, entry := range o.rest() {
		r.withoutEffect(entry, entry.name, sectionNames("reward_model"), enabled)
	}
	if !enabled {
		return
	}
	r.foresee(p, e, v.path)
	switch {
	case r.incomplete:
	case e.local:
		e.ONNX = e.Model
		if e.Model == "" {
			r.fault(v, "is enabled and has no model_path: write the name or the folder of the model that runs in this process")
		}
	case e.Managed != nil:
		if e.Model == "" {
			r.fault(v, "is enabled and has no model_path: write the name or the folder of the model that the engine serves")
		}
	case len(e.URLs) == 0:
		if !r.faulty(v.path + ".rollout") {
			r.fault(v, "is enabled and names no engine: write rollout.name=vllm (or sglang, transformers) to have an engine started, or rollout.name=external and rollout.base_urls=[http://127.0.0.1:8000] for servers that run already")
		}
	case e.Model == "":
		r.fault(v, "is enabled and has no model_path: write the name under which the engine serves its model")
	}
	c.Engines[e.Name] = e
	p.Engine = e.Name
}

// faulty reports whether a key or one below it has a fault already.
func (r *reader) faulty(path string) bool {
	return slices.ContainsFunc(r.faults, func(f Fault) bool { return f.Key == path || strings.HasPrefix(f.Key, path+".") })
}

// rollout reads reward_model.rollout.
func (r *reader) rollout(p *Profile, e *Engine, o *object, enabled bool) {
	if v, ok := o.take("name"); ok && !v.null() && v.node.Value != "???" {
		if name, ok := r.choice(v, append([]string{"external", "onnx"}, kindWords()...)); ok && enabled && name == "onnx" {
			e.local = true
		} else if ok && enabled && name != "external" {
			r.managed(e, o, engines.Kind(name))
			return
		} else if ok {
			r.unless(enabled, v)
		}
	}
	if v, ok := o.take("base_urls"); ok && !v.null() {
		e.URLs = r.addresses(v)
		r.unless(enabled, v)
	}
	switch {
	case e.local:
		if len(e.URLs) > 0 {
			r.faultAt(o.path+".base_urls", "cannot be combined with name: onnx, which runs the model in this process; leave it out")
		}
		r.local(e, o)
		for _, key := range engineKeys() {
			if v, ok := o.take(key); ok && !v.null() {
				r.note(v, "has no effect: the model runs in this process")
			}
		}
	case enabled:
		r.engineSettings(o, e)
	}
	if v, ok := o.take("profiler"); ok && !v.null() {
		p.Profiler = r.profiler(v, "")
	}
	r.parallel(e, o, enabled)
	for _, entry := range o.rest() {
		r.withoutEffect(entry, entry.name, sectionNames("reward_model", "rollout"), enabled)
	}
}

// unless notes a value that has no effect because the reward model is off.
func (r *reader) unless(enabled bool, v value) {
	if !enabled {
		r.note(v, "has no effect: reward_model is off")
	}
}

// withoutEffect reads a key of verl's that says how an engine is started.
func (r *reader) withoutEffect(e entry, name string, known tree, enabled bool) {
	switch {
	case !slices.Contains(known.names(), name):
		r.refuse(e, known.visible())
		return
	case name == "_target_":
		return
	}
	switch {
	case e.null():
	case enabled:
		r.note(e.value, "has no effect: the engine runs already, with the settings of its own start")
	default:
		r.note(e.value, "has no effect: reward_model is off")
	}
}

// EngineNames returns the names of the engines, in order.
func (c *Config) EngineNames() []string { return slices.Sorted(maps.Keys(c.Engines)) }
