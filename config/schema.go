package config

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rewardloop/rewardloop/config/keys"
)

// tree is the tree of the keys that a file may hold: name → what is below it,
// nil for a value or for names the user chooses. A name that ends in "?" may be
// written but is not there by default, so that an override must add it.
type tree map[string]tree

// schema is the tree of a whole file.
func schema() tree {
	root := tree{"rewards": nil, "engines": nil}
	for _, s := range append(Default().sections(), rewardSection()) {
		root[s.Name] = treeOf(&s.Set)
	}
	rollout := maps.Clone(root["reward"]["reward_model"]["rollout"])
	rollout["model_name"] = nil
	root[rlFactory] = tree{"if_use_reward_rollout": nil, "rollout": rollout}
	return root
}

func treeOf(s *keys.Set) tree {
	t := tree{}
	for _, k := range s.Keys {
		t[mark(k.Name, k.Unset)] = nil
	}
	for _, below := range s.Sections {
		t[mark(below.Name, below.Unset)] = treeOf(&below.Set)
	}
	return t
}

func mark(name string, unset bool) string {
	if unset {
		return name + "?"
	}
	return name
}

// names lists the keys of one level in order, for messages and checks.
func (k tree) names() []string {
	out := make([]string, 0, len(k))
	for _, name := range slices.Sorted(maps.Keys(k)) {
		out = append(out, strings.TrimSuffix(name, "?"))
	}
	return out
}

// visible are the names a mistyped key may have meant.
func (k tree) visible() []string {
	return slices.DeleteFunc(k.names(), func(s string) bool { return strings.HasPrefix(s, "_") })
}

// level is the tree that a path leads into, with the tree of a named profile in
// place of the name. open is true where the user chooses the names.
func level(root *yaml.Node, path []string) (below tree, open bool) {
	if len(path) >= 2 && path[0] == "rewards" && find(root, path[:2]) != nil {
		path = append([]string{"reward"}, path[2:]...)
	}
	below = schema()
	for _, name := range path {
		next, ok := below[name]
		if !ok {
			next, ok = below[name+"?"]
		}
		switch {
		case !ok:
			return nil, false
		case next == nil:
			return nil, true
		}
		below = next
	}
	return below, false
}

// isDefault reports whether a key has a value without being written.
func isDefault(root *yaml.Node, path []string) bool {
	below, _ := level(root, path[:len(path)-1])
	_, ok := below[path[len(path)-1]]
	return ok
}

// missingKey is the fault of key=value for a key that is not there.
func missingKey(root *yaml.Node, path []string) string {
	key := strings.Join(path, ".")
	if advice := legacyAdvice(key); advice != "" {
		return advice
	}
	for i, name := range path {
		below, open := level(root, path[:i])
		if open || slices.Contains(below.names(), name) && i == len(path)-1 {
			break
		}
		if below != nil && !slices.Contains(below.names(), name) {
			return "no such key " + strings.Join(path[:i+1], ".") + nearest(name, below.visible())
		}
	}
	return "is not in the file: write +" + key + "= to add it"
}
