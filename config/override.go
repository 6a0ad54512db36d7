package config

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rewardloop/rewardloop/internal/redact"
)

// override is one parsed Hydra override.
type override struct {
	prefix string // "", "+", "++" or "~"
	path   []string
	node   *yaml.Node // nil for ~
	place  Place
}

// override applies one override to the tree. The key of a fault is the
// override's.
func (r *reader) override(root *yaml.Node, text string, order int) {
	o, problem := parseOverride(text, order)
	key := strings.Join(o.path, ".")
	fail := func(message string) { r.faults = append(r.faults, Fault{Place: o.place, Key: key, Message: message}) }
	if problem != "" {
		fail(problem)
		return
	}
	there := find(root, o.path) != nil
	exists := there || isDefault(root, o.path)
	switch {
	case o.prefix == "~" && !there:
		fail("is not in the file: there is nothing to delete")
		return
	case o.prefix == "~":
		remove(root, o.path)
		return
	case o.prefix == "+" && exists:
		fail("exists already: write " + key + "= without the plus, or ++" + key + "=")
		return
	case o.prefix == "" && !exists:
		fail(missingKey(root, o.path))
		return
	}
	r.claim(o.node, o.place)
	r.learn(o.path[max(0, slices.IndexFunc(o.path, redact.Named))], o.node) // it may be refused, and never be in the tree
	if at := r.put(root, o.path, o.node, o.place); at != "" {
		fail("is below " + at + ", which is not a mapping")
	}
}

// parseOverride reads the text of an override. The second result says what is
// wrong with it.
func parseOverride(text string, order int) (override, string) {
	o := override{place: Place{Override: text, order: order}}
	rest := text
	for _, p := range []string{"++", "+", "~"} {
		if after, ok := strings.CutPrefix(rest, p); ok {
			o.prefix, rest = p, after
			break
		}
	}
	key, val, hasValue := strings.Cut(rest, "=")
	key = strings.TrimSpace(key)
	o.path = strings.Split(key, ".")
	if at := slices.IndexFunc(o.path, redact.Named); hasValue && at >= 0 {
		name := o.path[at]
		if val = strings.TrimSpace(val); strings.HasPrefix(val, "${") {
			o.place.Override = o.prefix + key + "=" + shownWritten(name, val, false)
		} else {
			o.place.Override = o.prefix + key + "=…"
		}
	}
	if ext := path.Ext(key); !hasValue && (ext == ".yaml" || ext == ".yml") {
		return o, "is a file, not an override: write -c " + text
	}
	for _, part := range o.path {
		if part == "" || strings.ContainsAny(part, " \t\n@:") {
			return o, "want key=value with a key such as loop.max_attempts"
		}
	}
	switch {
	case o.prefix == "~" && hasValue:
		return o, "deletes a key: write ~" + key + " without a value"
	case o.prefix == "~":
		return o, ""
	case !hasValue:
		return o, "has no value: write " + o.prefix + key + "=value"
	}
	o.node = overrideValue(val)
	return o, ""
}

// overrideValue reads the right side of an override: a list or mapping in
// brackets, a quoted text, or a plain word, which is taken whole.
func overrideValue(s string) *yaml.Node {
	plain := &yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimSpace(s)}
	if plain.Value == "" {
		plain.Tag = "!!str" // Hydra: key= is the empty text
		return plain
	}
	var doc yaml.Node
	if yaml.Unmarshal([]byte(s), &doc) != nil || len(doc.Content) != 1 {
		return plain
	}
	n := doc.Content[0]
	switch {
	case n.Kind == yaml.ScalarNode && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return n
	case (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && n.Style&yaml.FlowStyle != 0:
		splitTight(n)
		return n
	}
	return plain
}

// splitTight turns {a:1}, which YAML reads as one key "a:1" without a value,
// into what Hydra means by it.
func splitTight(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			if name, text, ok := strings.Cut(k.Value, ":"); ok && k.Style == 0 && v.ShortTag() == "!!null" {
				k.Value = name
				n.Content[i+1] = overrideValue(text)
			}
		}
	}
	for _, c := range n.Content {
		splitTight(c)
	}
}

// claim records the override as the origin of a node and of all below it.
func (r *reader) claim(n *yaml.Node, p Place) {
	r.origin[n] = p
	for _, c := range n.Content {
		r.claim(c, p)
	}
}

// find returns the node at a path, or nil.
func find(n *yaml.Node, path []string) *yaml.Node {
	for _, name := range path {
		if n = child(n, name); n == nil {
			return nil
		}
	}
	return n
}

func child(n *yaml.Node, name string) *yaml.Node {
	if i := indexOf(n, name); i >= 0 {
		return n.Content[i+1]
	}
	return nil
}

// indexOf returns where the key stands in a mapping's content, or −1.
func indexOf(n *yaml.Node, name string) int {
	if n == nil || n.Kind != yaml.MappingNode {
		return -1
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return i
		}
	}
	return -1
}

func remove(n *yaml.Node, path []string) {
	parent := find(n, path[:len(path)-1])
	i := indexOf(parent, path[len(path)-1])
	parent.Content = append(parent.Content[:i:i], parent.Content[i+2:]...)
}

// put sets the node at a path and makes the mappings on the way. A mapping is
// merged into one that is there, as OmegaConf does. It returns the path of a
// parent that is no mapping, or "".
func (r *reader) put(n *yaml.Node, path []string, leaf *yaml.Node, p Place) string {
	for depth, name := range path {
		if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
			*n = yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column}
		}
		if n.Kind != yaml.MappingNode {
			return strings.Join(path[:depth], ".")
		}
		last := depth == len(path)-1
		i := indexOf(n, name)
		if i < 0 {
			next := &yaml.Node{Kind: yaml.MappingNode}
			if last {
				next = leaf
			}
			key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}
			r.origin[key], r.origin[next] = p, p
			n.Content = append(n.Content, key, next)
			n = next
			continue
		}
		old := n.Content[i+1]
		switch {
		case !last:
			n = old
		case old.Kind == yaml.MappingNode && leaf.Kind == yaml.MappingNode:
			for j := 0; j+1 < len(leaf.Content); j += 2 {
				r.put(old, []string{leaf.Content[j].Value}, leaf.Content[j+1], p)
			}
		default:
			n.Content[i+1] = leaf
			r.origin[n.Content[i]] = p
		}
	}
	return ""
}
