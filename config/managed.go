package config

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/engines"
	"github.com/rewardloop/rewardloop/rewards"
)

// This file reads how an engine is started here, in verl's words.

// Managed configures how the processes whose workers use an engine start the engine's servers.
type Managed struct {
	Kind engines.Kind
	// Servers is the number of equal servers in each process. On cards, each server has
	// Engine.Parallel.Cards cards.
	Servers int
	// Device is cpu, or cuda for cards.
	Device string
	// Interpreter is a Python interpreter with the engine installed. If it is empty, the engine's
	// own command must be on PATH.
	Interpreter string
	// StartTimeout is the maximum duration of a start, from the command to the answer to the first
	// request.
	StartTimeout time.Duration
	// Frees makes the engine release its memory between the reward phases of a trainer (verl's
	// free_cache_engine) if pool.colocated is true.
	Frees bool
	// rollout are the keys of verl's rollout that say how it is started, with verl-omni's defaults.
	rollout engines.Rollout
	// Args are the command-line arguments for the keys of the rollout.
	Args []string

	// Profiler selects the servers and steps that are profiled. If nil, there is no profiling.
	Profiler *Profiler

	deviceAt Place
}

// Profiler is verl's section profiler of an engine. It also applies to the processes of Python
// rewards.
type Profiler struct {
	Tool engines.Profiler
	// All selects every server. Otherwise Ranks contains the numbers of the selected servers.
	All   bool
	Ranks []int
	// Steps are the training steps that are profiled.
	Steps []int
	// SavePath is the folder for the profiles.
	SavePath string
}

// Of returns the numbers of the profiled servers if there are the given number of servers.
func (p *Profiler) Of(servers int) (out []int) {
	for i := range servers {
		if p.All || slices.Contains(p.Ranks, i) {
			out = append(out, i)
		}
	}
	return out
}

const profilesFolder = "outputs/profile/reward_model"

// Profilers returns the profilers of the file, for engines that this process starts and for other
// engines. Each of them also applies to Python rewards.
func (c *Config) Profilers() (all []*Profiler) {
	for _, name := range c.EngineNames() {
		if m := c.Engines[name].Managed; m != nil && m.Profiler != nil {
			all = append(all, m.Profiler)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		if p := c.Profiles[name].Profiler; p != nil {
			all = append(all, p)
		}
	}
	return all
}

// profiler reads rollout.profiler; nil: it is off. A kind of "" is no engine that is started here.
func (r *reader) profiler(v value, kind engines.Kind) *Profiler {
	o := r.mapping(v)
	p := &Profiler{SavePath: profilesFolder, Steps: []int{1}}
	on := false
	if v, ok := o.take("enable"); ok && !v.null() {
		on, _ = r.boolean(v)
	}
	tool, _ := o.take("tool")
	if !tool.null() && on {
		if s, ok := r.choice(tool, []string{string(engines.Torch), string(engines.Nsys)}); ok {
			if p.Tool = engines.Profiler(s); kind != "" && !slices.Contains(kind.Profiles(), p.Tool) {
				r.fault(tool, "%s cannot be profiled with %s (supported: %v)", kind, s, kind.Profiles())
			}
		}
	}
	if v, ok := o.take("all_ranks"); ok && !v.null() {
		p.All, _ = r.boolean(v)
	}
	numbers := func(name string, low int, into *[]int) {
		if v, ok := o.take(name); ok && !v.null() {
			*into = nil
			for _, item := range r.list(v) {
				if n, ok := r.integer(item, low, math.MaxInt32); ok {
					*into = append(*into, n)
				}
			}
		}
	}
	numbers("ranks", 0, &p.Ranks)
	numbers("steps", 0, &p.Steps)
	if v, ok := o.take("save_path"); ok && !v.null() {
		p.SavePath, _ = r.text(v)
	}
	_, _ = o.take("_target_")
	if v, ok := o.take("tool_config"); ok && !v.null() && on {
		_ = r.mapping(v).rest()
		r.note(v, "has no effect: profiles are whole, of CPU and cards")
	}
	o.refuseRest([]string{"enable", "tool", "ranks", "all_ranks", "steps", "save_path", "tool_config"})
	switch {
	case !on:
		return nil
	case p.Tool == "":
		if tool.null() {
			r.fault(v, "is enabled and has no tool: write torch or nsys")
		}
	case !p.All && len(p.Ranks) == 0:
		r.note(v, "profiles nothing: write the numbers of servers, and of processes of Python rewards, as ranks, such as [0], or all_ranks: true")
	}
	return p
}

const (
	onCards   = "cuda"
	startTime = 15 * time.Minute
)

// Keys implements keys.Described.
func (m *Managed) Keys(k *keys.Set) {
	k.Int(&m.Servers, "replicas", 0, "Number of engine servers that each process with workers starts. 0: as many as fit on the reward pool; 1 without a reward pool or with device: cpu.").Max(256)
	k.Text(&m.Interpreter, "interpreter", "", "Python interpreter in which the engine is installed, such as envs/vllm/bin/python. Left out: the engine's command on PATH.")
	k.Duration(&m.StartTimeout, "start_timeout", startTime, "Time limit for starting one engine server, from the start of the command to the answer to the first test request.").Min(time.Second)
}

// managed reads how an engine is started. parallelWritten says that its size is in the file.
func (r *reader) managed(e *Engine, o *object, kind engines.Kind) {
	m := &Managed{Kind: kind, Device: onCards, Frees: true, rollout: engines.VerlDefaults()}
	keys.Fill(m)
	e.Managed = m
	var own keys.Set
	m.Keys(&own)
	r.decodeKeys(o, &own)
	if v, ok := o.take("device"); ok && !v.null() {
		m.Device, _ = r.choice(v, []string{infer.CPU, onCards})
		m.deviceAt = r.place(v.node)
	}
	if v, ok := o.take("base_urls"); ok && !v.null() {
		r.fault(v, "cannot be combined with name: %s, which starts the engine in this process; write name: external for servers that run already", kind)
	}
	if v, ok := o.take("free_cache_engine"); ok && !v.null() {
		if m.Frees, _ = r.boolean(v); m.Frees {
			r.freesNothing(v)
		}
	}
	if v, ok := o.take("profiler"); ok && !v.null() {
		m.Profiler = r.profiler(v, kind)
	}
	r.engineSettings(o, e)
	r.parallel(e, o, true)
	known := sectionNames("reward_model", "rollout")
	for _, entry := range o.rest() {
		switch {
		case !slices.Contains(known.names(), entry.name):
			r.refuse(entry, known.visible())
		case entry.name == "_target_", entry.null():
		default:
			r.startArgument(m, entry)
		}
	}
	m.Args, _, _ = m.rollout.Arguments(kind) // each key was checked
}

// freesNothing notes that an engine keeps its memory which shares its cards with nobody.
func (r *reader) freesNothing(v value) {
	if !r.colocated {
		r.note(v, "has no effect without pool.colocated: true: an engine that does not share its cards with a trainer keeps its memory")
	}
}

// startArgument reads one key of verl's rollout that says how an engine is started.
func (r *reader) startArgument(m *Managed, e entry) {
	var v any
	if err := e.node.Decode(&v); err != nil {
		r.fault(e.value, "%v", err)
		return
	}
	args, notes, err := engines.Rollout{e.name: v}.Arguments(m.Kind)
	if err == nil {
		err = engines.CheckArguments(args)
	}
	if err != nil {
		r.fault(e.value, "%s", strings.TrimPrefix(err.Error(), e.name+": "))
		return
	}
	if note := notes[e.name]; note != "" {
		r.note(e.value, note)
	}
	m.rollout[e.name] = v
}

// servers says how many servers an engine has whose pool of cards is known: as many as fit.
func (r *reader) servers(e *Engine, pool ResourcePool, at value) {
	m := e.Managed
	switch fit := e.Parallel.Replicas(pool.PerNode); {
	case m.Servers > 0:
	case m.Device == infer.CPU || pool.PerNode == 0:
		m.Servers = 1
	case fit == 0:
		r.fault(at, "the resource pool has too few cards for an engine: one engine needs %s (tensor %d × pipeline %d × data %d), but the pool has %d; "+
			"write a larger n_gpus_per_node, or a smaller tensor_model_parallel_size",
			rewards.Count(e.Parallel.Cards(), "card"), e.Parallel.Tensor, e.Parallel.Pipeline, e.Parallel.Data, pool.PerNode)
		m.Servers = 1
	default:
		m.Servers = fit
	}
}

// cards is how many cards the servers of the engine have together.
func (e *Engine) cards() int {
	if e.Managed == nil || e.Managed.Device == infer.CPU {
		return 0
	}
	return e.Managed.Servers * e.Parallel.Cards()
}

// models reads reward.models, verl-omni's engines by name. A function asks the one that its key
// model names, or that has its own name.
func (r *reader) models(c *Config, p *Profile, parent *object) {
	v, ok := parent.take("models")
	if !ok || v.null() {
		return
	}
	defaults, _ := parent.peek("reward_model")
	common := r.mapping(defaults)
	if on, _ := common.peek("enable"); on.node != nil && strings.EqualFold(on.node.Value, "true") {
		r.fault(v, "cannot be combined with reward_model.enable: true, as in verl-omni; write enable: false, and add the model of reward_model to reward.models")
	}
	known := modelSection().Names()
	for _, entry := range r.mapping(v).rest() {
		o := r.mapping(entry.value)
		backend, _ := o.take("backend")
		switch {
		case backend.null():
			r.fault(entry.value, "has no backend: write backend: engine")
			continue
		case backend.node.Value == "native":
			r.fault(backend, "rewardloop does not run verl-omni's executors: write the reward function as a Python class that loads its model, with device: and batch: true in its entry (docs/adopt.md)")
			_ = o.rest()
			continue
		}
		if _, ok := r.choice(backend, []string{"engine"}); !ok {
			continue
		}
		e := newEngine(modelEngine(p.Name, entry.name))
		e.Place = r.place(entry.key)
		if _, twice := c.Engines[e.Name]; twice {
			r.fault(entry.value, "the engine name %s is already used; write another name", e.Name)
		}
		r.namedModel(e, o, common)
		o.refuseRest(known)
		c.Engines[e.Name] = e
		if p.Models == nil {
			p.Models = map[string]string{}
		}
		p.Models[entry.name] = e.Name
	}
}

// namedModel reads one of reward.models, whose common settings are those of reward_model.
func (r *reader) namedModel(e *Engine, o, common *object) {
	for _, from := range []*object{common, o} {
		if model, ok := from.peek("model_path"); ok && !model.null() {
			e.Model, _ = r.text(model)
		}
	}
	_, _ = o.take("model_path")
	if e.Model == "" {
		r.faultAt(o.path, "has no model_path: write the name or the folder of the model that the engine serves")
	}
	offload := true
	if v, ok := o.take("offload"); ok && !v.null() {
		if on, ok := r.boolean(v); ok && on {
			r.freesNothing(v)
		} else if ok {
			offload = false
		}
	}
	own, _ := o.take("rollout")
	if own.node != nil && own.node.Kind == yaml.MappingNode {
		for _, x := range r.mapping(own).entries {
			if x.name == "free_cache_engine" || x.name == "enable_sleep_mode" {
				r.fault(x.value, "is not allowed below reward.models, as in verl-omni: write offload")
			}
		}
	}
	base, _ := common.peek("rollout")
	rollout := r.merged(own, base)
	kind, _ := rollout.take("name")
	if s, ok := r.choice(kind, kindWords()); ok {
		r.managed(e, rollout, engines.Kind(s))
	} else {
		_ = rollout.rest()
		r.incomplete = true
	}
	if e.Managed == nil {
		return
	}
	e.Managed.Frees = offload
	replicas, hasReplicas := o.take("replicas")
	if hasReplicas && !replicas.null() {
		e.Managed.Servers, _ = r.integer(replicas, 1, 256)
	}
	count := func(name string) int {
		v, _ := o.take(name)
		if v.null() {
			return 0
		}
		n, _ := r.integer(v, 1, math.MaxInt32)
		return n
	}
	perNode, nodes := count("n_gpus_per_node"), count("nnodes")
	if perNode > 0 && nodes > 0 {
		e.Managed.Servers = 0 // as many as fit, as in verl-omni
		r.servers(e, ResourcePool{PerNode: perNode, Nodes: nodes}, value{path: o.path})
	}
	e.Managed.Servers = max(e.Managed.Servers, 1)
}

// merged are the keys of own, and those of base that it does not have.
func (r *reader) merged(own, base value) *object {
	o := r.mapping(own)
	for _, e := range r.mapping(base).entries {
		if !slices.ContainsFunc(o.entries, func(x entry) bool { return x.name == e.name }) && (e.node.Kind != yaml.ScalarNode || e.node.Value != "???") {
			o.entries = append(o.entries, e)
		}
	}
	return o
}

// peek is a key that stays to be read.
func (o *object) peek(name string) (value, bool) {
	for _, e := range o.entries {
		if e.name == name {
			return e.value, true
		}
	}
	return value{path: join(o.path, name)}, false
}

// modelEngine names the engine of a model of a profile.
func modelEngine(profile, model string) string {
	if profile == DefaultProfile {
		return rewardModelsEngine + "." + model
	}
	return rewardModelsEngine + "." + profile + "." + model
}

// rewardModelsEngine begins the names of the engines of reward.models.
const rewardModelsEngine = "reward_models"

func kindWords() (words []string) {
	for _, k := range engines.Kinds() {
		words = append(words, string(k))
	}
	return words
}

// EngineOf returns the name of the engine that a component uses, or "".
func (p *Profile) EngineOf(t ComponentConfig) string {
	if len(p.Models) == 0 {
		return p.Engine
	}
	if t.Model != "" {
		return p.Models[t.Model]
	}
	return p.Models[t.Key]
}

// bindModels finds out which of reward.models each function asks.
func (r *reader) bindModels(p *Profile) {
	for i := range p.Components {
		t := &p.Components[i]
		at := p.key(*t) + ".model"
		if t.Model != "" && p.Models[t.Model] == "" {
			r.faultAt(at, "names the model %q, and reward.models has %s", t.Model, strings.Join(slices.Sorted(maps.Keys(p.Models)), ", "))
		}
	}
}

// managed prints how an engine is started, below its rollout.
func (p *printer) managed(depth int, e *Engine, named bool) {
	m := e.Managed
	p.line(depth, "name: %s", m.Kind)
	p.line(depth, "device: %s", m.Device)
	if !named {
		p.line(depth, "free_cache_engine: %v", m.Frees)
	}
	for i, n := range []int{e.Parallel.Tensor, e.Parallel.Pipeline, e.Parallel.Data} {
		p.line(depth, "%s: %d", parallelKeys()[i], n)
	}
	p.profiler(depth, m.Profiler)
	var own keys.Set
	m.Keys(&own)
	p.keys(depth, own.Keys)
	for _, key := range slices.Sorted(maps.Keys(m.rollout)) {
		p.line(depth, "%s: %s", key, printable(encode(m.rollout[key])))
	}
	p.keys(depth, e.described().Keys)
}

// models prints reward.models.
func (p *printer) models(depth int, c *Config, r *Profile) {
	if len(r.Models) == 0 {
		return
	}
	p.line(depth, "models:")
	for _, name := range slices.Sorted(maps.Keys(r.Models)) {
		e := c.Engines[r.Models[name]]
		p.line(depth+1, "%s:", quote(name))
		p.line(depth+2, "backend: engine")
		p.line(depth+2, "model_path: %s", quote(e.Model))
		p.line(depth+2, "offload: %v", e.Managed.Frees)
		p.line(depth+2, "rollout:")
		p.managed(depth+3, e, true)
	}
}

// modelSection is what stands below reward.models.<name>.
func modelSection() *keys.Section {
	s := &keys.Section{Name: "reward.models.<name>", Doc: "An engine that rewardloop starts for the components of a reward, with the keys of verl-omni's named reward models."}
	s.Other("backend", "", "engine", "Kind of the model. engine: servers that rewardloop starts. verl-omni's other kind, native, is refused with advice on what to write instead.")
	s.Other("model_path", "", "a name or a folder", "Name or folder of the model that the engine serves. Left out: reward_model.model_path.")
	s.Other("replicas", "1", "1 or more", "Number of engine servers that each process with workers starts.")
	s.Other("n_gpus_per_node", "", "1 or more", "Number of GPUs on each machine for the engine. Together with nnodes it replaces replicas: each process starts as many servers as fit on these GPUs.")
	s.Other("nnodes", "", "1 or more", "Number of machines that run servers of the engine. No effect without n_gpus_per_node.")
	s.Other("offload", "true", "true or false", "Releases the GPU memory of the engine between the reward phases of a trainer that shares the GPUs (pool.colocated).")
	s.Other("rollout", "", "keys of reward_model.rollout", "Engine and arguments of its start. Keys that are left out have the values of reward_model.rollout.")
	return s
}
