package config

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/engines"
	"github.com/rewardloop/rewardloop/rewards"
)

// This file reads which cards a reward_model has, in verl-omni's words.

// ResourcePool is the pool of cards of a reward_model with enable_resource_pool.
type ResourcePool struct {
	// PerNode is the number of cards on each machine that runs processes of this configuration.
	// Nodes is the number of machines. If both are 0, there is no pool.
	PerNode, Nodes int
}

// All returns the number of cards in the pool on all machines together.
func (p ResourcePool) All() int { return p.PerNode * p.Nodes }

// Parallel is the number of cards of one server of a reward_model, by the kind of parallelism. The
// zero value is that of a model in this process: one card for each copy.
type Parallel struct{ Tensor, Pipeline, Data int }

// Cards returns the number of cards of one server.
func (p Parallel) Cards() int { return max(p.Tensor, 1) * max(p.Pipeline, 1) * max(p.Data, 1) }

// Replicas returns how many servers verl starts on the given number of cards.
func (p Parallel) Replicas(cards int) int { return cards / p.Cards() }

// PoolCards returns the number of cards in the reward pool of this process, which is the largest
// number that a reward of the configuration sets. 0 means every card that the process sees.
func (c *Config) PoolCards() int {
	most := 0
	for _, p := range c.Profiles {
		most = max(most, p.Cards.PerNode)
	}
	return most
}

// verl-omni's defaults (trainer/config/reward/reward.yaml).
const (
	defaultPerNode = 8
	defaultTensor  = 2
)

// resourcePool reads the cards of a reward_model. A pool is there whether or not the model is
// enabled, as in verl-omni: functions may run on it.
func (r *reader) resourcePool(p *Profile, o *object, enabled bool) {
	on := false
	asked, _ := o.take("enable_resource_pool")
	if !asked.null() {
		on, _ = r.boolean(asked)
	}
	count := func(key string, otherwise int) (value, int) {
		v, _ := o.take(key)
		if !v.null() {
			if n, ok := r.integer(v, 0, math.MaxInt32); ok {
				return v, n
			}
			return v, 1 // the fault is told
		}
		return v, otherwise
	}
	perNode, cards := count("n_gpus_per_node", defaultPerNode)
	nodes, machines := count("nnodes", 0)
	if !on {
		r.withoutPool(enabled, asked, perNode, nodes)
		return
	}
	if cards == 0 {
		r.fault(perNode, "want 1 or more: the number of cards of each machine in the pool of enable_resource_pool")
	}
	switch {
	case machines > 0:
	case nodes.null():
		r.fault(asked, "needs nnodes, the number of machines: write nnodes: 1 for this machine only. verl-omni's default is 0, which verl-omni refuses")
	default:
		r.fault(nodes, "want 1 or more machines; write nnodes: 1 for this machine only")
	}
	if cards == 0 || machines == 0 {
		return
	}
	p.Cards = ResourcePool{cards, machines}
	if machines > 1 {
		r.note(nodes, fmt.Sprintf("start a process on each of the %d machines (rewardloop worker), with %s each; nnodes has no other effect", machines, rewards.Count(cards, "card")))
	}
}

// withoutPool notes what the keys of a pool mean without one.
func (r *reader) withoutPool(enabled bool, asked, perNode, nodes value) {
	for _, v := range []value{asked, perNode, nodes} {
		switch {
		case v.null():
		case !enabled:
			r.unless(enabled, v)
		case v == asked:
			r.note(v, "verl-omni gives the reward model the trainer's cards, which rewardloop does not manage: "+
				"models with device: cuda run on every card that the process sees, and engines on the cards of their own start")
		default:
			r.note(v, "has no effect without enable_resource_pool: true")
		}
	}
}

// parallelKeys are verl's, in the order of Parallel.
func parallelKeys() []string {
	return []string{"tensor_model_parallel_size", "pipeline_model_parallel_size", "data_parallel_size"}
}

// parallel reads over how many cards a server is spread.
func (r *reader) parallel(e *Engine, o *object, enabled bool) {
	if enabled && !e.local {
		e.Parallel = Parallel{Tensor: defaultTensor, Pipeline: 1, Data: 1}
		if m := e.Managed; m != nil && (m.Device == infer.CPU || m.Kind == engines.Transformers) {
			e.Parallel.Tensor = 1
		}
	}
	for i, to := range []*int{&e.Parallel.Tensor, &e.Parallel.Pipeline, &e.Parallel.Data} {
		v, ok := o.take(parallelKeys()[i])
		if !ok || v.null() {
			continue
		}
		n, ok := r.integer(v, 1, math.MaxInt16)
		switch {
		case !enabled:
			r.unless(enabled, v)
		case e.local && n > 1:
			r.note(v, "has no effect: a model that runs in this process has a copy on each card")
		case ok && !e.local:
			*to = n
		}
	}
}

// foresee notes which servers verl would start, none of which is started here.
func (r *reader) foresee(p *Profile, e *Engine, section string) {
	if e.local || e.Managed != nil {
		return
	}
	var keys []string // the size of an engine, where it is written
	for _, key := range parallelKeys() {
		keys = append(keys, "rollout."+key)
	}
	keys = append(keys, "enable_resource_pool")
	at := slices.IndexFunc(keys, func(k string) bool { _, ok := r.places[section+"."+k]; return ok })
	if at < 0 || at == len(keys)-1 && p.Cards.PerNode == 0 {
		return
	}
	key := section + "." + keys[at]
	size := fmt.Sprintf("%s (tensor %d × pipeline %d × data %d)", rewards.Count(e.Parallel.Cards(), "card"), e.Parallel.Tensor, e.Parallel.Pipeline, e.Parallel.Data)
	of := p.Cards.All()
	text := fmt.Sprintf("verl-omni starts %s of %s on the pool of %s", rewards.Count(e.Parallel.Replicas(of), "engine"), size, rewards.Count(of, "card"))
	switch {
	case of == 0:
		text = fmt.Sprintf("verl-omni starts engines of %s on the trainer's cards", size)
	case e.Parallel.Replicas(of) == 0:
		text = fmt.Sprintf("verl-omni starts no engine: one engine needs %s, and the pool has %d", size, of)
	}
	r.noteAt(r.places[key], key, text+". rewardloop starts no engine here: the engine runs already, with the settings of its own start")
}

// workersOf is how many workers a process has whose file does not say it: where the reward
// model has a pool of cards one for each engine that fits on those of a machine, as
// verl-omni's recipes write it, else verl-omni's default.
func (c *Config) workersOf(p *Profile) int {
	if p.Engine == "" || p.Cards.PerNode == 0 {
		return c.NumWorkers
	}
	return max(1, p.Cards.PerNode/max(c.Engines[p.Engine].Parallel.Tensor, 1))
}

// onePool notes the pools of rewards that are smaller than the process's.
func (r *reader) onePool(c *Config) {
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		p := c.Profiles[name]
		if n := p.Cards.PerNode; n > 0 && n < c.PoolCards() {
			key := p.section() + ".reward_model.n_gpus_per_node"
			r.noteAt(r.places[key], key, fmt.Sprintf("the cards of a process are one pool, and another reward sets its size to %d", c.PoolCards()))
		}
	}
}
