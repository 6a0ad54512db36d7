package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
)

// trialReward is the profile of an entry that is given by its path beside a configuration.
const trialReward = "rewardloop_try"

func isYAML(arg string) bool {
	return strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml")
}

// isOverride says whether an argument is key=value or ~key, and not a path or an address with a
// query.
func isOverride(arg string) bool {
	key, _, has := strings.Cut(arg, "=")
	return strings.HasPrefix(arg, "~") || has && !strings.Contains(key, "/")
}

// isEntryPath says whether ENTRY is what an entry has as its path, and no key of a configuration.
func isEntryPath(entry string) bool {
	return strings.Contains(entry, "://") || strings.HasSuffix(entry, ".py") || strings.Contains(entry, ".py:")
}

// findEntry reads the configuration that try was given, with ENTRY alone in it.
func findEntry(set *settings, f *tryFlags) (*trialEntry, error) {
	if f.entry == "" {
		return nil, errors.New("name an entry: by its key in a configuration, as in `rewardloop try ocr -c cfg.yaml`, or by its path, as in `rewardloop try my_reward.py`")
	}
	var t *trialEntry
	var err error
	if isEntryPath(f.entry) {
		t, err = entryOfPath(set, f)
	} else {
		t, err = entryOfKey(set, f)
	}
	if err != nil {
		return nil, err
	}
	t.isolate(f.timeout)
	return t, nil
}

// entryOfPath makes an entry of a path: of the default reward, or beside a configuration of a
// reward of its own.
func entryOfPath(set *settings, f *tryFlags) (*trialEntry, error) {
	file, function := splitEntry(f.entry)
	key, reward, section := keyOf(file, function), config.DefaultProfile, "reward"
	if set.given() {
		reward, section = trialReward, "rewards."+trialReward
	}
	at := section + ".reward_functions." + key
	set.override(f.entry, at+".path", strconv.Quote(file))
	if function != "" {
		set.override(f.entry, at+".name", function)
	}
	if err := setKeys(set, at, f.set); err != nil {
		return nil, err
	}
	cfg, err := set.read()
	if err != nil {
		return nil, err
	}
	if of := cfg.Profiles[config.DefaultProfile]; of != nil && cfg.Profiles[reward] != nil {
		cfg.Profiles[reward].Engine = of.Engine // as for an entry that stood there
	}
	return pick(cfg, reward, key)
}

// entryOfKey finds the entry of a configuration.
func entryOfKey(set *settings, f *tryFlags) (*trialEntry, error) {
	if !set.given() {
		return nil, fmt.Errorf("%q is not the path of an entry%s; for the key of an entry name the configuration, -c cfg.yaml", f.entry, builtInNamed(f.entry))
	}
	cfg, err := set.read()
	if err != nil {
		return nil, err
	}
	reward, key, named := strings.Cut(f.entry, "/")
	if !named {
		reward, key = "", f.entry
	}
	var found, all []string
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		for _, c := range cfg.Profiles[name].Components {
			all = append(all, name+"/"+c.Key, c.Key)
			if c.Key == key && (!named || name == reward) {
				found = append(found, name)
			}
		}
	}
	switch {
	case len(found) == 0 && len(all) == 0:
		return nil, errors.New("the configuration has no entry: write reward.custom_reward_function or reward.reward_functions")
	case len(found) == 0:
		keys := slices.DeleteFunc(slices.Clone(all), func(k string) bool { return strings.Contains(k, "/") })
		slices.Sort(keys)
		near := cmp.Or(config.DidYouMean(f.entry, all), builtInNamed(f.entry))
		return nil, fmt.Errorf("the configuration has no entry %q%s; it has %s", f.entry, near, strings.Join(slices.Compact(keys), ", "))
	case len(found) > 1:
		return nil, fmt.Errorf("several rewards have an entry %q: name one, such as %s/%s", key, strings.Join(found, "/"+key+" or "), key)
	}
	if len(f.set) > 0 {
		section := "reward"
		if found[0] != config.DefaultProfile {
			section = "rewards." + found[0]
		}
		at := section + ".reward_functions." + key
		if cfg.Profiles[found[0]].Single {
			at = section + ".custom_reward_function"
		}
		if err := setKeys(set, at, f.set); err != nil {
			return nil, err
		}
		if cfg, err = set.read(); err != nil {
			return nil, err
		}
	}
	return pick(cfg, found[0], key)
}

// pick takes the entry out of a configuration.
func pick(cfg *config.Config, reward, key string) (*trialEntry, error) {
	p := cfg.Profiles[reward]
	if p == nil {
		return nil, fmt.Errorf("the configuration has no reward %q", reward)
	}
	i := slices.IndexFunc(p.Components, func(c config.ComponentConfig) bool { return c.Key == key })
	if i < 0 {
		return nil, fmt.Errorf("the reward %q has no entry %q", reward, key)
	}
	return &trialEntry{cfg: cfg, reward: reward, component: p.Components[i]}, nil
}

// isolate leaves the entry alone in the configuration, with the weight 1 and one try: its score is
// the sample's, and its failure too.
func (t *trialEntry) isolate(timeout time.Duration) {
	p := *t.cfg.Profiles[t.reward]
	kept := p.Components[:0:0]
	for _, c := range p.Components {
		switch {
		case c.Key == t.component.Key:
			c.Weight, c.Required, c.OnFailure, c.When, c.Retries = 1, true, rewards.ComponentPolicy{}, nil, 0
			if timeout > 0 {
				c.Timeout = timeout
			}
			t.component = c
		case c.PostProcess == t.component.Key || c.Key == t.component.PostProcess || c.Key == t.of(): // neither runs without the other
			c.Weight, c.Required, c.OnFailure, c.When = 0, false, rewards.ComponentPolicy{Policy: rewards.PolicyZero}, nil
		default:
			continue
		}
		kept = append(kept, c)
	}
	p.Components, p.RouteBy, p.Aggregation, p.OnSampleFailure = kept, "", rewards.WeightedSum, rewards.SamplePolicy{Policy: rewards.PolicyNone}
	t.cfg.Profiles = map[string]*config.Profile{t.reward: &p}
	t.cfg.NumWorkers = 1
	t.cfg.Queue.Rewards, t.cfg.Queue.Listen, t.cfg.Queue.URLs = nil, "", nil // nobody joins, and nothing is joined
	t.cfg.Loop.NumExamine = 0
	longest := t.component.Timeout + time.Minute
	t.cfg.Loop.ClaimTimeout = max(t.cfg.Loop.ClaimTimeout, longest)
	t.cfg.Loop.SampleTimeout = max(t.cfg.Loop.SampleTimeout, longest)
	t.cfg.Loop.MaxSampleTimeout = max(t.cfg.Loop.MaxSampleTimeout, t.cfg.Loop.SampleTimeout)
}

// of is the key of the component whose values the entry's scorer looks at; "": there is none.
func (t *trialEntry) of() string {
	var o struct {
		Of string `json:"of"`
	}
	if json.Unmarshal(t.component.Options, &o) != nil {
		return "" // it has no options, or another one has that name
	}
	return o.Of
}

// splitEntry tells the function from the file or module: my_reward.py:NAME, pkg://module:NAME.
func splitEntry(entry string) (path, function string) {
	i := strings.LastIndexByte(entry, ':')
	python := strings.HasPrefix(entry, "pkg://") && i > len("pkg") || i > 0 && strings.HasSuffix(entry[:i], ".py")
	if i < 0 || !python {
		return entry, ""
	}
	return entry[:i], entry[i+1:]
}

// keyOf is the key that an entry gets by its path: what its columns are called.
func keyOf(file, function string) string {
	_, rest, has := strings.Cut(file, "://")
	if !has {
		rest = file
	}
	base := strings.TrimSuffix(path.Base(filepath.ToSlash(rest)), ".py")
	key := regexp.MustCompile(`[^\pL\pN_-]+`).ReplaceAllString(cmp.Or(function, base), "_")
	return cmp.Or(strings.Trim(key, "_"), "entry")
}

// setKeys adds the keys of --set to the overrides.
func setKeys(set *settings, at string, pairs []string) error {
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || strings.TrimSpace(key) == "" {
			return fmt.Errorf("--set %s: want key=value, such as --set devices=cpu", pair)
		}
		set.override("--set "+pair, at+"."+strings.TrimSpace(key), value)
	}
	return nil
}

// override adds an override that stands for a word of the command line.
func (s *settings) override(word, key, value string) {
	text := "++" + key + "=" + value
	s.overrides, s.flags[text] = append(s.overrides, text), word
}

// builtInNamed suggests the path of a built-in reward; "" where none has the name.
func builtInNamed(name string) string {
	s, err := node.NewScorers(config.Default(), nil)
	if err != nil {
		return ""
	}
	defer s.Close() // nothing was started
	if _, ok := s.Registry.Spec(name); ok {
		return "; did you mean builtin://" + name + "?"
	}
	var longer []string
	for _, known := range s.Registry.Names() {
		if strings.HasPrefix(known, name) {
			longer = append(longer, "builtin://"+known)
		}
	}
	if len(longer) > 0 {
		return "; did you mean " + strings.Join(longer, " or ") + "?"
	}
	return strings.Replace(config.DidYouMean(name, s.Registry.Names()), "did you mean ", "did you mean builtin://", 1)
}
