package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/pyenv"
)

// maxFile is the largest configuration file.
const maxFile = 1 << 20

// Load reads the file at path and applies the overrides in order. An empty path means an empty
// file, so that only the overrides apply. env looks up the variables of ${oc.env:…}; nil means an
// empty environment. All faults of the content are returned in one FaultsError. The returned Config
// then contains the parts that could be read. It is only an input for Check, which finds further
// faults; it must not be used to run a process.
func Load(path string, overrides []string, env func(string) (string, bool)) (*Config, error) {
	if path == "" {
		return Parse("", nil, overrides, env)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return Parse(path, data, overrides, env)
}

// Parse is like Load for the content of a file. name is the name of the file in messages.
func Parse(name string, data []byte, overrides []string, env func(string) (string, bool)) (*Config, error) {
	r := newReader(name)
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	r.envs, _ = pyenv.FromEnvironment(env) // without a folder no environment is made, which is said where one is named
	root := r.parse(data)
	if root == nil {
		r.clean()
		return nil, r.faults.sorted()
	}
	for i, text := range overrides {
		r.override(root, text, i+1)
	}
	top := value{node: root}
	r.prune(top, 0)
	r.interpolate(top, env)
	r.learn("", root)

	c := Default()
	r.top(c, top)
	r.clean()
	sortNotes(r.notes)
	c.notes, c.Secrets = r.notes, r.secrets
	c.HiddenEnv = slices.Sorted(maps.Keys(r.hidden))
	return c, r.faults.sorted()
}

// top reads the sections of the file. The settings come first, because components
// take defaults from them.
func (r *reader) top(c *Config, v value) {
	o := r.mapping(v)
	sections := c.sections()
	r.decodeSections(o, sections)
	r.colocated = c.Pool.Colocated

	if v, ok := o.take("engines"); ok {
		r.engines(c, v)
	}
	var described []string
	reward, ok := o.take("reward")
	if v, written := o.take(rlFactory); written && !v.null() {
		before := reward.node
		reward = r.rewardRollout(v, reward)
		ok = ok || reward.node != before
	}
	if v := reward; ok {
		described = append(described, "reward")
		if p := r.profile(c, DefaultProfile, v); p != nil {
			c.Profiles[DefaultProfile] = p
		}
	}
	if v, ok := o.take("rewards"); ok {
		for _, e := range r.mapping(v).rest() {
			described = append(described, e.path)
			r.named(c, e)
		}
	}
	o.refuseRest(schema().visible())
	if len(c.Profiles) == 0 && !r.incomplete {
		at := "reward"
		if len(described) > 0 {
			at = described[0]
		}
		r.faultAt(at, "no reward is named: write reward.reward_functions.<key>.path (or reward.custom_reward_function.path), such as builtin://ocr")
	}
	r.onePool(c)
	if c.NumWorkers == 0 && !c.Queue.Networked() {
		r.faultAt("reward.num_workers", "a process without workers needs queue.nats or queue.nats_listen, so that workers of other processes can join")
	}
	if c.NumWorkers == 0 && c.Pool.Colocated {
		r.faultAt("pool.colocated", "applies only to a process with workers: write a reward.num_workers of 1 or more, and start the process on the machine of the trainer's cards")
	}
	r.checkSections(sections)
}

// named reads one profile of the section rewards. A profile with a fault is
// there all the same, so that nobody misses it on top.
func (r *reader) named(c *Config, e entry) {
	c.Profiles[e.name] = &Profile{Name: e.name}
	switch {
	case e.name == DefaultProfile:
		r.fault(e.value, "the reward named default is the section reward: write it there")
		return
	case !profileName().MatchString(e.name):
		r.fault(e.value, "%q cannot name a reward: want letters, digits, dots, dashes and underscores", shorten(e.name))
		return
	}
	if p := r.profile(c, e.name, e.value); p != nil {
		c.Profiles[e.name] = p
	} else if !r.incomplete {
		r.fault(e.value, "names no scorer: write reward_functions.<key>.path or custom_reward_function.path")
	}
}

// profileName is what a name may be: it stands in the path /scorers/{name}.
func profileName() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`) }

// parse turns the file into one mapping node, or records why it cannot.
func (r *reader) parse(data []byte) *yaml.Node {
	if len(data) > maxFile {
		r.faultAt("", "the file is larger than %s", keys.FormatSize(maxFile))
		return nil
	}
	var doc, second yaml.Node
	d := yaml.NewDecoder(strings.NewReader(string(data)))
	err := d.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		return &yaml.Node{Kind: yaml.MappingNode}
	case err == nil:
		if err = d.Decode(&second); errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			r.faults = append(r.faults, Fault{Place: r.place(&second), Key: "", Message: "a second document begins here: write one file each"})
			return nil
		}
	}
	if err != nil {
		r.faults = append(r.faults, r.syntax(err))
		return nil
	}
	root := doc.Content[0]
	switch {
	case root.Kind == yaml.MappingNode:
		return root
	case value{node: root}.null():
		return &yaml.Node{Kind: yaml.MappingNode}
	}
	r.fault(value{node: root}, "want sections such as reward and server, got %s", describe(root))
	return nil
}

// syntax takes the line out of an error of the YAML library.
func (r *reader) syntax(err error) Fault {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	f := Fault{Place: Place{File: r.file}}
	if m := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(text); m != nil {
		f.Place.Line, _ = strconv.Atoi(m[1])
		f.Place.Column = 1
		text = text[len(m[0]):]
	}
	f.Message = "this is not YAML: " + text
	return f
}
