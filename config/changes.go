package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/outbound"
)

// Changes are the differences between the configuration of a running process and a new
// configuration.
type Changes struct {
	// Rewards and Engines are the names of the changed rewards and engines for which a running
	// process can apply all changes.
	Rewards, Engines []string
	// Applied are the changed keys of these rewards and engines. Restart are all other changed
	// keys, which need a restart. Both are in order.
	Applied, Restart []string
}

// Compare returns the changes from c to next.
func (c *Config) Compare(next *Config) Changes {
	var ch Changes
	for _, name := range union(c.Profiles, next.Profiles) {
		was, is := c.Profiles[name], next.Profiles[name]
		if was == nil || is == nil {
			ch.Restart = append(ch.Restart, cmp.Or(is, was).section())
			continue
		}
		applied, restart := was.compare(is)
		if len(restart) > 0 { // half of what is written would be another reward still
			ch.Restart = append(ch.Restart, restart...)
			continue
		}
		if len(applied) > 0 {
			ch.Rewards = append(ch.Rewards, name)
			ch.Applied = append(ch.Applied, applied...)
		}
	}
	for _, name := range union(c.Engines, next.Engines) {
		was, is := c.Engines[name], next.Engines[name]
		if was == nil || is == nil {
			ch.Restart = append(ch.Restart, engineKey(name))
			continue
		}
		if applied, fixed := was.compare(is); !fixed {
			ch.Restart = append(ch.Restart, engineKey(name))
		} else if len(applied) > 0 {
			ch.Engines = append(ch.Engines, name)
			ch.Applied = append(ch.Applied, applied...)
		}
	}
	if c.NumWorkers != next.NumWorkers {
		ch.Restart = append(ch.Restart, "reward.num_workers")
	}
	if !slices.Equal(c.HiddenEnv, next.HiddenEnv) {
		ch.Restart = append(ch.Restart, "the names of variables that hold secrets")
	}
	ch.Restart = append(ch.Restart, differing("", c.sections(), next.sections())...)
	return ch
}

// union are the names in either map, in order.
func union[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// compare are the keys of p whose values are others in next: those that can be applied while
// samples of the profile are scored, and the others.
func (p *Profile) compare(next *Profile) (applied, restart []string) {
	was, is := p.fixed(), next.fixed()
	if !reflect.DeepEqual(was, is) {
		for i := range max(len(was.Components), len(is.Components)) {
			switch {
			case i >= len(was.Components):
				restart = append(restart, next.key(is.Components[i]))
			case i >= len(is.Components) || !reflect.DeepEqual(was.Components[i], is.Components[i]):
				restart = append(restart, p.key(was.Components[i]))
			}
		}
		if len(restart) == 0 {
			restart = []string{p.section()}
		}
		return nil, restart
	}
	if p.Concurrency != next.Concurrency {
		applied = append(applied, p.section()+".concurrency")
	}
	for i, t := range p.Components {
		n := next.Components[i]
		for _, x := range []struct {
			key   string
			other bool
		}{{"weight", t.Weight != n.Weight}, {"timeout", t.Timeout != n.Timeout}, {"retries", t.Retries != n.Retries}} {
			if x.other {
				applied = append(applied, p.key(t)+"."+x.key)
			}
		}
	}
	return applied, nil
}

// fixed is a copy without what a process that runs can change, and without where things stand.
func (p *Profile) fixed() *Profile {
	f := *p
	f.Concurrency, f.Place = 0, Place{}
	f.Components, f.Verify = slices.Clone(p.Components), slices.Clone(p.Verify)
	for i := range f.Components {
		t := &f.Components[i]
		t.Weight, t.Timeout, t.Retries, t.Probe = 0, 0, 0, nil
		t.Place, t.pathAt, t.optionsKey, t.optionsAt, t.environmentAt = Place{}, Place{}, "", nil, Place{}
	}
	for i := range f.Verify {
		f.Verify[i].Place = Place{}
	}
	return &f
}

// compare are the keys of e whose values are others in next; fixed says that the rest is as
// it was.
func (e *Engine) compare(next *Engine) (applied []string, fixed bool) {
	a, b := *e, *next
	if !slices.Equal(a.URLs, b.URLs) {
		applied = append(applied, engineKey(e.Name)+".base_urls")
	}
	var was, is keys.Set
	a.UpstreamConfig.Keys(&was)
	b.UpstreamConfig.Keys(&is)
	for i, k := range was.Keys {
		if k.Value() != is.Keys[i].Value() {
			applied = append(applied, engineKey(e.Name)+"."+k.Name)
		}
	}
	for _, x := range []*Engine{&a, &b} {
		x.UpstreamConfig, x.Place, x.deviceAt = outbound.UpstreamConfig{}, Place{}, Place{}
	}
	return applied, reflect.DeepEqual(a, b)
}

// engineKey is where an engine stands in a file.
func engineKey(name string) string {
	if of, ok := strings.CutPrefix(name, rewardModelEngine); ok {
		if of = strings.TrimPrefix(of, "."); of != "" {
			return "rewards." + of + ".reward_model.rollout"
		}
		return "reward.reward_model.rollout"
	}
	return "engines." + name
}

// differing are the keys that two lists of the same sections show otherwise.
func differing(in string, was, is []*keys.Section) (names []string) {
	for i, s := range was {
		name := in + s.Name + "."
		for n, k := range s.Keys {
			if show(k.Value()) != show(is[i].Keys[n].Value()) {
				names = append(names, name+k.Name)
			}
		}
		names = append(names, differing(name, s.Sections, is[i].Sections)...)
	}
	return names
}
