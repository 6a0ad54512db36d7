package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/internal/redact"
)

// reader walks a tree of YAML nodes and collects what is wrong with it.
type reader struct {
	file string
	// origin knows the nodes that overrides made.
	origin map[*yaml.Node]Place
	// written holds the text of scalars that came from the environment, as it
	// stood in the file.
	written map[*yaml.Node]string
	// places remembers where each key that was read stands, for faults found
	// later.
	places map[string]Place
	// hidden are the environment's variables that hold secrets.
	hidden map[string]bool
	// secrets are cut out of everything that is said.
	secrets *redact.Words
	// envs are the Python environments of this machine.
	envs   pyenv.Store
	faults FaultsError
	notes  []Note
	// incomplete says that a fault took something out of the tree, so that what
	// is missing now may only be missing because of it.
	incomplete bool
	// colocated is pool.colocated.
	colocated bool
	// byName says that the profile that is being read has engines by name.
	byName bool
}

func newReader(file string) *reader {
	return &reader{
		file:    file,
		origin:  map[*yaml.Node]Place{},
		written: map[*yaml.Node]string{},
		places:  map[string]Place{},
		hidden:  map[string]bool{},
		secrets: new(redact.Words),
	}
}

// value is a node and the key it is the value of.
type value struct {
	node *yaml.Node
	path string
}

// null reports a value that was written as null, ~ or nothing, or not at all.
func (v value) null() bool {
	return v.node == nil || v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == "!!null"
}

func (r *reader) place(n *yaml.Node) Place {
	if n == nil {
		return Place{File: r.file}
	}
	if p, ok := r.origin[n]; ok {
		return p
	}
	return Place{File: r.file, Line: n.Line, Column: n.Column}
}

func (r *reader) fault(v value, format string, args ...any) {
	r.faults = append(r.faults, Fault{Place: r.place(v.node), Key: v.path, Message: fmt.Sprintf(format, args...)})
}

// faultAt is a fault of a key that was read before, or of the whole file.
func (r *reader) faultAt(path, format string, args ...any) {
	p, ok := r.places[path]
	if !ok {
		p = Place{File: r.file}
	}
	r.faults = append(r.faults, Fault{Place: p, Key: path, Message: fmt.Sprintf(format, args...)})
}

// object is a mapping whose keys are taken one by one, so that what nobody took
// is known.
type object struct {
	r       *reader
	path    string
	entries []entry
	taken   map[string]bool
}

type entry struct {
	name string
	key  *yaml.Node
	value
}

// mapping opens a mapping. Null is an empty one; anything else is a fault, and
// an empty one.
func (r *reader) mapping(v value) *object {
	o := &object{r: r, path: v.path, taken: map[string]bool{}}
	switch {
	case v.null():
	case v.node.Kind != yaml.MappingNode:
		r.fault(v, "want a mapping with keys, got %s", describe(v.node))
	default:
		for i := 0; i+1 < len(v.node.Content); i += 2 {
			key, node := v.node.Content[i], v.node.Content[i+1]
			o.entries = append(o.entries, entry{key.Value, key, value{node, join(v.path, key.Value)}})
		}
	}
	return o
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// take returns the value of a key and marks it as read.
func (o *object) take(name string) (value, bool) {
	o.taken[name] = true
	for _, e := range o.entries {
		if e.name == name {
			o.r.places[e.path] = o.r.place(e.node)
			return e.value, true
		}
	}
	return value{path: join(o.path, name)}, false
}

// split takes what there is of some keys, and then of those beside, into an object of its own;
// nil: there is none of the former.
func (o *object) split(names []string, beside ...string) *object {
	part := &object{r: o.r, path: o.path, taken: map[string]bool{}}
	take := func(names []string) {
		for _, e := range o.entries {
			if slices.Contains(names, e.name) && !o.taken[e.name] {
				o.taken[e.name] = true
				part.entries = append(part.entries, e)
			}
		}
	}
	if take(names); len(part.entries) == 0 {
		return nil
	}
	take(beside)
	return part
}

// takeSwitch takes a key that is true or false. With any other value it is the scorer's own.
func (o *object) takeSwitch(name string) (value, bool) {
	for _, e := range o.entries {
		if e.name == name && e.node.Kind == yaml.ScalarNode && slices.Contains([]string{"true", "false"}, strings.ToLower(e.node.Value)) {
			return o.take(name)
		}
	}
	return value{path: join(o.path, name)}, false
}

// rest returns the keys nobody took, in order, and marks them as read.
func (o *object) rest() []entry {
	var out []entry
	for _, e := range o.entries {
		if !o.taken[e.name] {
			o.taken[e.name] = true
			o.r.places[e.path] = o.r.place(e.node)
			out = append(out, e)
		}
	}
	return out
}

// refuseRest makes every key that nobody took a fault.
func (o *object) refuseRest(known []string) {
	for _, e := range o.rest() {
		o.r.refuse(e, known)
	}
}

// refuse is the fault of an unknown key. It points at the key, not its value.
func (r *reader) refuse(e entry, known []string) {
	r.faults = append(r.faults, Fault{Place: r.keyPlace(e), Key: e.path, Message: unknownKey(e.path, e.name, known)})
}

// keyPlace is where a key stands, not its value.
func (r *reader) keyPlace(e entry) Place {
	if made, ok := r.origin[e.node]; ok {
		return made
	}
	return r.place(e.key)
}

// unknownKey says what to write instead of a key that does not exist.
func unknownKey(path, name string, known []string) string {
	if advice := legacyAdvice(path); advice != "" {
		return advice
	}
	return "no such key" + nearest(name, known)
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.ShortTag() == "!!null" {
		return "nothing"
	}
	return strconv.Quote(shorten(n.Value))
}

func shorten(s string) string {
	const longest = 60
	s = redact.Text(s)
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "…"
}

// scalar returns the text of a value that is neither mapping, list nor null.
func (r *reader) scalar(v value, want string) (string, bool) {
	if v.null() || v.node.Kind != yaml.ScalarNode {
		got := "nothing"
		if v.node != nil {
			got = describe(v.node)
		}
		r.fault(v, "want %s, got %s", want, got)
		return "", false
	}
	return v.node.Value, true
}

func (r *reader) text(v value) (string, bool) { return r.scalar(v, "text") }

func (r *reader) choice(v value, words []string) (string, bool) {
	want := "one of " + strings.Join(words, ", ")
	s, ok := r.scalar(v, want)
	if ok && !slices.Contains(words, s) {
		r.fault(v, "want %s, got %q", want, shorten(s))
		return "", false
	}
	return s, ok
}

func (r *reader) boolean(v value) (result, ok bool) {
	s, ok := r.scalar(v, "true or false")
	if !ok {
		return false, false
	}
	switch strings.ToLower(s) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	r.fault(v, "want true or false, got %q", shorten(s))
	return false, false
}

func (r *reader) integer(v value, low, high int) (int, bool) {
	s, ok := r.scalar(v, "a whole number")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	switch {
	case err != nil:
		r.fault(v, "want a whole number, got %q", shorten(s))
	case n < low || n > high:
		r.fault(v, "want %d…%d, got %d", low, high, n)
	default:
		return n, true
	}
	return 0, false
}

func (r *reader) number(v value) (float64, bool) {
	s, ok := r.scalar(v, "a number")
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		r.fault(v, "want a finite number, got %q", shorten(s))
		return 0, false
	}
	return f, true
}

func (r *reader) size(v value, low, high int64) (int64, bool) {
	s, ok := r.scalar(v, "a size such as 64MiB")
	if !ok {
		return 0, false
	}
	n, err := keys.ParseSize(s)
	switch {
	case err != nil:
		r.fault(v, "%v", err)
	case n < low:
		r.fault(v, "want at least %s, got %s", keys.FormatSize(low), keys.FormatSize(n))
	case n > high:
		r.fault(v, "want at most %s, got %s", keys.FormatSize(high), keys.FormatSize(n))
	default:
		return n, true
	}
	return 0, false
}

func (r *reader) duration(v value, low, high time.Duration) (time.Duration, bool) {
	s, ok := r.scalar(v, "a duration such as 120s")
	if !ok {
		return 0, false
	}
	d, err := keys.ParseDuration(s)
	switch {
	case err != nil:
		r.fault(v, "%v", err)
	case d < low || d > high:
		r.fault(v, "want %s…%s, got %s", keys.FormatDuration(low), keys.FormatDuration(high), keys.FormatDuration(d))
	default:
		return d, true
	}
	return 0, false
}

// prune goes over the whole tree before it is read and takes out, with a fault
// for each, what YAML allows and this file does not: aliases, keys that are no
// words, double keys, great depth. It reports whether the value may stay.
func (r *reader) prune(v value, depth int) bool {
	const deepest = 64
	if depth > deepest {
		r.fault(v, "more than %d levels deep", deepest)
		return false
	}
	if v.node.Kind == yaml.AliasNode {
		r.fault(v, "aliases (*%s) are not supported: write the value out", shorten(v.node.Value))
		return false
	}
	r.filter(v, func(key *yaml.Node, item value, first map[string]*yaml.Node) bool {
		if key != nil {
			if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
				r.fault(value{key, v.path}, "a key must be a word, got %s", describe(key))
				return false
			}
			if before, ok := first[key.Value]; ok {
				r.fault(value{key, item.path}, "duplicate key, first %s", r.where(before))
				return false
			}
			first[key.Value] = key
		}
		return r.prune(item, depth+1)
	})
	return true
}

// filter keeps those items of a mapping or list for which keep is true. The key
// is nil for items of a list; first is a scratch map of the mapping.
func (r *reader) filter(v value, keep func(key *yaml.Node, item value, first map[string]*yaml.Node) bool) {
	n := v.node
	var kept []*yaml.Node
	switch n.Kind {
	case yaml.SequenceNode:
		for i, c := range n.Content {
			if keep(nil, value{c, fmt.Sprintf("%s[%d]", v.path, i)}, nil) {
				kept = append(kept, c)
			}
		}
	case yaml.MappingNode:
		first := map[string]*yaml.Node{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, c := n.Content[i], n.Content[i+1]
			if keep(key, value{c, join(v.path, shorten(key.Value))}, first) {
				kept = append(kept, key, c)
			}
		}
	default:
		return
	}
	r.incomplete = r.incomplete || len(kept) < len(n.Content)
	n.Content = kept
}

func (r *reader) where(n *yaml.Node) string {
	if p, ok := r.origin[n]; ok {
		return "by " + p.String()
	}
	return fmt.Sprintf("on line %d", n.Line)
}
