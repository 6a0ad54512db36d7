package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
)

// Carried lists what must be copied to a machine without a network, in addition to the
// configuration and the files in it.
type Carried struct {
	// Models are the names of the models that run in this process's pool, without duplicates.
	Models []string
	// Without contains one line for each thing that is needed and is neither a model in Models nor
	// a Python environment.
	Without []string
	// Agreed contains the licences that the file accepts with accept_license.
	Agreed []string
}

// Carry returns what must be copied to a machine without a network.
func (c *Config) Carry(reg *rewards.Registry) (out Carried) {
	for _, w := range c.wants(reg) {
		if w.Kind == onnxModel && w.What != "" && !slices.Contains(out.Models, w.What) {
			out.Models = append(out.Models, w.What)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		p := c.Profiles[name]
		for _, t := range p.Components {
			if t.Scorer != PythonScorer {
				continue
			}
			key := p.key(t)
			switch {
			case t.Environment != nil && t.Environment.SystemSitePackages:
				out.Without = append(out.Without, key+": its environment shows the packages of its Python (system_site_packages), which that machine has to have")
			case t.Environment == nil:
				out.Without = append(out.Without, fmt.Sprintf("%s has no environment: it runs in %s, with the packages of that machine",
					key, cmp.Or(t.Interpreter, c.Pool.Python.Interpreter, "the Python of the machine")))
			}
			if t.entry == nil {
				continue
			}
			for _, w := range t.entry.Weights {
				out.Without = append(out.Without, fmt.Sprintf("%s: its model in Python downloads %s itself, about %s: bring Hugging Face's cache (HF_HOME) with it",
					key, w.Name, sizeOf(w.Bytes)))
			}
			if t.accepted != "" {
				out.Agreed = append(out.Agreed, fmt.Sprintf("%s: %s under %s (%s)", key, t.entry.Path(), t.accepted, t.entry.Code.URL)+weightsOf(t.entry))
			}
		}
	}
	for _, name := range c.EngineNames() {
		if e := c.Engines[name]; e.Managed != nil {
			out.Without = append(out.Without, fmt.Sprintf("engine %s: its server and the checkpoint %s, which it downloads itself: bring Hugging Face's cache (HF_HOME) with it", name, e.Model))
		}
	}
	return out
}
