package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/rewards"
	textrewards "github.com/rewardloop/rewardloop/rewards/text"
	"github.com/rewardloop/rewardloop/rewards/verify"
)

// BuildManagers builds the reward manager of every profile, by the name of the profile. The scorers
// come from reg, one for each component. If anything is wrong, the error is a FaultsError with all
// faults, and everything that was built is closed.
func BuildManagers(c *Config, reg *rewards.Registry) (map[string]*rewards.Manager, error) {
	managers, lacking, err := BuildThere(c, reg)
	var faults FaultsError
	for _, why := range lacking {
		faults = append(faults, why...)
	}
	if lacks := faults.sorted(); err == nil && lacks != nil {
		err = lacks
		for _, m := range managers {
			err = errors.Join(err, m.Close())
		}
	}
	if err != nil {
		return nil, err
	}
	return managers, nil
}

// BuildThere is like BuildManagers, for one of several machines: a profile whose only faults are
// things that this machine lacks is not built, and its faults are returned in lacking, by the name
// of the profile.
func BuildThere(c *Config, reg *rewards.Registry) (managers map[string]*rewards.Manager, lacking map[string]FaultsError, err error) {
	var faults FaultsError
	managers, lacking = map[string]*rewards.Manager{}, map[string]FaultsError{}
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		m, wrong := buildManager(c, c.Profiles[name], reg)
		for i := range wrong { // scorers quote their options
			wrong[i].Message = c.Secrets.Text(wrong[i].Message)
		}
		switch {
		case len(wrong) == 0:
			managers[name] = m
		case slices.ContainsFunc(wrong, func(f Fault) bool { return !f.Lacking }):
			faults = append(faults, wrong...)
		default:
			lacking[name] = wrong
		}
	}
	if len(faults) == 0 {
		return managers, lacking, nil
	}
	for _, why := range lacking { // all faults at once
		faults = append(faults, why...)
	}
	err = faults.sorted()
	for _, m := range managers {
		err = errors.Join(err, m.Close())
	}
	return nil, nil, err
}

func buildManager(c *Config, p *Profile, reg *rewards.Registry) (*rewards.Manager, FaultsError) {
	cfg := rewards.ManagerConfig{
		Single:          p.Single,
		Aggregation:     p.Aggregation,
		OnSampleFailure: p.OnSampleFailure,
		Timeout:         c.Loop.ComponentTimeout,
		RouteBy:         p.RouteBy,
		GroupByPrompt:   p.GroupByPrompt,
		Concurrency:     p.Concurrency,
		Redact:          func(text string) string { return c.Secrets.Text(text) },
	}
	var faults FaultsError
	built := map[string]rewards.Scorer{}
	// What looks at another component's scorer is made after it.
	components := slices.Clone(p.Components)
	slices.SortStableFunc(components, func(a, b ComponentConfig) int { return cmp.Compare(after(a), after(b)) })
	for _, t := range components {
		spec, _ := reg.Spec(t.Scorer)
		concurrency := t.concurrent(takesOption(spec, "concurrency"))
		scorer, group, wrong := buildOrFaults(c, p, t, reg, built)
		built[t.Key] = scorer
		faults = append(faults, wrong...)
		if scorer == nil && group == nil {
			continue
		}
		cfg.Components = append(cfg.Components, rewards.Component{
			Key: t.Key, Weight: t.Weight, Required: t.Required, Scorer: scorer, Group: group, OnFailure: t.OnFailure,
			Timeout: t.Timeout, Retries: t.Retries, Concurrency: concurrency, InvalidValues: t.InvalidValues,
			When: t.When, Clip: t.Clip, Scale: t.Scale, MinMembers: t.MinMembers, Steps: t.givesSteps(),
		})
	}
	order := func(t rewards.Component) int {
		return slices.IndexFunc(p.Components, func(o ComponentConfig) bool { return o.Key == t.Key })
	}
	slices.SortStableFunc(cfg.Components, func(a, b rewards.Component) int { return cmp.Compare(order(a), order(b)) })
	var wrong FaultsError
	cfg.Prepare, wrong = buildVerifiers(p, reg)
	faults = append(faults, wrong...)
	if len(faults) == 0 {
		m, err := rewards.NewManager(cfg)
		if err == nil {
			return m, nil
		}
		faults = append(faults, Fault{Place: p.Place, Key: p.section(), Message: err.Error()})
	}
	for _, t := range cfg.Components {
		var made any = t.Scorer
		if t.Group != nil {
			made = t.Group
		}
		if c, ok := made.(rewards.Closer); ok {
			if err := c.Close(); err != nil {
				faults = append(faults, Fault{Place: p.Place, Key: p.section(), Message: fmt.Sprintf("closing %s: %v", t.Key, err)})
			}
		}
	}
	return nil, faults
}

// buildOrFaults makes the scorer of a component, or says everything that is wrong with it. What
// was made in spite of faults must be closed.
func buildOrFaults(c *Config, p *Profile, t ComponentConfig, reg *rewards.Registry, built map[string]rewards.Scorer) (scorer rewards.Scorer, group rewards.GroupScorer, faults FaultsError) {
	if why := c.needsEnvironment(p, &t); why != "" {
		return nil, nil, FaultsError{t.environmentFault(p)}
	}
	for {
		var err error
		if scorer, group, err = buildComponent(c, p, t, reg, built); err == nil {
			return scorer, group, faults
		}
		if f, without, ok := optionFault(t, reg, err); ok {
			faults, t.Options = append(faults, f), without
			continue
		}
		// What is wrong without an option may only be so because that is misspelt.
		if len(faults) == 0 {
			message := err.Error()
			if errors.Is(err, rewards.ErrUnknownScorer) {
				message += nearest(t.Scorer, reg.Names())
			}
			lacking := errors.Is(err, models.ErrMissing) || errors.Is(err, infer.ErrMissing) || errors.Is(err, fs.ErrNotExist)
			faults = FaultsError{{Place: t.Place, Key: p.key(t), Message: message, Lacking: lacking}}
		}
		return nil, nil, faults
	}
}

// optionFault is the fault of the one option that err blames, and the options without it.
func optionFault(t ComponentConfig, reg *rewards.Registry, err error) (f Fault, without json.RawMessage, ok bool) {
	wrong, ok := errors.AsType[*rewards.OptionError](err)
	if !ok {
		return f, nil, false
	}
	name, _, _ := strings.Cut(wrong.Name, ".")
	at, given := t.optionsAt[name]
	var all map[string]json.RawMessage
	if !given || !has(t.Options, name) || json.Unmarshal(t.Options, &all) != nil {
		return f, nil, false // it lies deeper, or was not written there
	}
	delete(all, name)
	f = Fault{Place: at, Key: t.optionsKey + "." + wrong.Name, Message: wrong.Message}
	if now := renamedOptions()[t.Scorer+"."+name]; wrong.Unknown && now != "" {
		f.Message = "is called " + now
	} else if wrong.Unknown {
		f.Message = fmt.Sprintf("the scorer %q has no such option", t.Scorer) + nearest(name, append(t.besideOptions(), optionNames(t, reg)...))
	}
	return f, encode(all), true
}

// besideOptions are the keys that stand beside an option and are not the scorer's.
func (t *ComponentConfig) besideOptions() []string {
	if strings.HasSuffix(t.optionsKey, ".reward_kwargs") {
		return nil
	}
	return besideNames()
}

// optionNames are the options of a component's scorer.
func optionNames(t ComponentConfig, reg *rewards.Registry) (names []string) {
	spec, _ := reg.Spec(t.Scorer)
	for _, o := range spec.Options {
		names = append(names, o.Name)
	}
	return names
}

// after sorts components that are made from others behind them.
func after(t ComponentConfig) int {
	if t.PostProcess != "" {
		return 1
	}
	return 0
}

// buildComponent makes the scorer of a component, of either kind. What the profile says for all
// its components is among its options, unless the component says otherwise: the engine of the
// reward_model and its model, and the sandbox.
func buildComponent(c *Config, p *Profile, t ComponentConfig, reg *rewards.Registry, built map[string]rewards.Scorer) (rewards.Scorer, rewards.GroupScorer, error) {
	if t.PostProcess != "" {
		post, ok := built[t.PostProcess].(interface {
			PostProcess(of string) (rewards.GroupScorer, error)
		})
		if !ok {
			return nil, nil, fmt.Errorf("post_process: the component %q is not a Python class", t.PostProcess)
		}
		group, err := post.PostProcess(t.PostProcess)
		return nil, group, err
	}
	shared := map[string]json.RawMessage{}
	if e := c.Engines[p.EngineOf(t)]; e != nil {
		shared["engine"], shared["model"] = encode(e.Name), encode(e.Model)
	}
	if p.Sandbox != nil && t.Scorer == sandboxScorer {
		if err := json.Unmarshal(p.Sandbox, &shared); err != nil {
			return nil, nil, err // unreachable: encode made it
		}
	}
	if t.Scorer == PythonScorer {
		t.Options = withDefaults(t.Options, pythonKeywords(c, p, t))
	} else if spec, ok := reg.Spec(t.Scorer); ok {
		if t.Steps && takesOption(spec, "steps") {
			return nil, nil, errors.New(`steps: true does not define where a step ends; write the texts of the stop tokens, such as steps: ["<|im_end|>"]`)
		}
		if !spec.AsksEngine { // what else is called engine or model is something else
			delete(shared, "engine")
			delete(shared, "model")
		}
		maps.DeleteFunc(shared, func(name string, _ json.RawMessage) bool { return !takesOption(spec, name) })
		if has(t.Options, "engine") {
			delete(shared, "model") // it is another engine's
		}
		t.Options = withDefaults(t.Options, shared)
	}
	if spec, _ := reg.Spec(t.Scorer); t.Fraction > 0 && !takesOption(spec, "device") {
		return nil, nil, fmt.Errorf("fraction: the scorer %q runs no model in this process that could share a card; leave fraction out", t.Scorer)
	}
	if spec, ok := reg.Spec(t.Scorer); ok && spec.BuildGroup != nil && (spec.Build == nil || t.grouped()) {
		if p.Overlong != nil {
			return nil, nil, fmt.Errorf("scorer %q scores whole groups; the penalty of reward_kwargs is for scorers of single samples", t.Scorer)
		}
		group, err := reg.BuildGroup(t.Scorer, t.scorerOptions())
		return nil, group, err
	}
	scorer, err := reg.Build(t.Scorer, t.scorerOptions())
	if err != nil || p.Overlong == nil {
		return scorer, nil, err
	}
	o := p.Overlong
	return textrewards.WithOverlong(scorer, textrewards.Overlong{
		MaxRespLen: int64(o.MaxRespLen), BufferLen: int64(o.Len), PenaltyFactor: o.PenaltyFactor, Columns: o.Log,
	}), nil, nil
}

// buildVerifiers makes what a profile finds out about a sample before it is scored; nil
// where that is nothing.
func buildVerifiers(p *Profile, reg *rewards.Registry) (rewards.Preparer, FaultsError) {
	var faults FaultsError
	var named []verify.Named
	for _, v := range p.Verify {
		var made rewards.Verifier
		err := errors.New("this program has no verify tools")
		if reg.Verifier != nil {
			made, err = reg.Verifier(v.Kind, v.Options)
		}
		if err != nil {
			faults = append(faults, Fault{Place: v.Place, Key: p.section() + ".verify." + v.Key, Message: err.Error()})
			continue
		}
		named = append(named, verify.Named{Key: v.Key, Required: v.Required, Timeout: v.Timeout, Verifier: made})
	}
	if err := verify.Check(named); err != nil {
		faults = append(faults, Fault{Place: p.Place, Key: p.section() + ".verify", Message: err.Error()})
	}
	if len(named) == 0 || len(faults) > 0 {
		return nil, faults
	}
	return verify.Tools(named), nil
}

// sandboxScorer is the scorer in the registry that runs code in a sandbox.
const sandboxScorer = "sandbox_fusion"

// pythonKeywords are what verl hands to a reward function besides its own keys: the
// router and its model where there is a reward model on a server, and the sandbox.
func pythonKeywords(c *Config, p *Profile, t ComponentConfig) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if e := c.Engines[p.EngineOf(t)]; e != nil && e.ONNX == "" && c.RouterAddress != "" {
		out["reward_router_address"], out["model_name"] = encode(c.RouterAddress), encode(e.Model)
		out["reward_router_api_key"] = encode(c.RouterKey)
	}
	var sandbox map[string]json.RawMessage
	if p.Sandbox != nil && json.Unmarshal(p.Sandbox, &sandbox) == nil {
		out["sandbox_fusion_url"] = sandbox["url"]
		if limit, ok := sandbox["memory_limit_mb"]; ok {
			out["memory_limit_mb"] = limit
		}
	}
	return out
}

// withDefaults is a JSON object with what it does not hold itself.
func withDefaults(options json.RawMessage, defaults map[string]json.RawMessage) json.RawMessage {
	if len(defaults) == 0 {
		return options
	}
	all := maps.Clone(defaults)
	if options != nil && json.Unmarshal(options, &all) != nil {
		return options // unreachable: encode made it
	}
	return encode(all)
}

// has reports whether a JSON object has a key.
func has(options json.RawMessage, key string) bool {
	var all map[string]json.RawMessage
	return options != nil && json.Unmarshal(options, &all) == nil && all[key] != nil
}

// section is where the profile stands in a file.
func (p *Profile) section() string {
	if p.Name == DefaultProfile {
		return "reward"
	}
	return "rewards." + p.Name
}

// key is where a component of the profile stands.
func (p *Profile) key(t ComponentConfig) string {
	if p.Single {
		return p.section() + ".custom_reward_function"
	}
	return p.section() + ".reward_functions." + t.Key
}
