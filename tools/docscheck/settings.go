package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// anyReward makes a configuration whole that speaks of other things than rewards.
const (
	wholeReward = "reward.custom_reward_function.path="
	anyReward   = wholeReward + "builtin://jpeg_compressibility"
)

// settings checks configurations, in blocks, on command lines and in sentences, with the
// binary's own config check.
func (c *checker) settings(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "docscheck")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, name := range c.tree.paths() {
		for _, b := range c.tree.pages[name].blocks {
			switch {
			case b.language == "yaml":
				err = errors.Join(err, c.yaml(ctx, dir, name, b.line, b.text))
			case b.language == "hydra":
				c.hydra(ctx, dir, name, b)
			case isShell(b.language):
				found := split(shellText(b), b.line)
				for _, d := range found.documents {
					if path.Ext(d.name) == ".yaml" {
						err = errors.Join(err, c.yaml(ctx, dir, name, d.line, d.text))
					}
				}
				for _, cmd := range found.commands {
					c.overrides(ctx, dir, name, cmd)
				}
			}
		}
		c.keys(ctx, dir, name)
	}
	return err
}

// sections are the parts of a whole configuration.
func sections() []string {
	return []string{"reward", "rewards", "engines", "loop", "pool", "store", "outbound", "telemetry", "server", "queue"}
}

// yaml checks a block of YAML. What is less than a configuration is put where it would
// stand in one: under reward, under reward_functions, or as a tool of reward.verify.
func (c *checker) yaml(ctx context.Context, dir, name string, line int, text string) error {
	var top map[string]any
	if err := yaml.Unmarshal([]byte(text), &top); err != nil {
		c.wrong(name, line, "this is not YAML, or no mapping: %v", err)
		return nil
	}
	known := func(keys ...string) bool {
		for key := range top {
			if slices.Contains(keys, key) {
				return true
			}
		}
		return false
	}
	before, indent := "", ""
	var more []string
	switch {
	case c.excused(name, "yaml: "+first(text)):
		return nil
	case known("reward", "rewards"):
		if reward, is := top["reward"].(map[string]any); is && len(reward) == 1 && reward["verify"] != nil {
			more = []string{anyReward}
		}
	case known(sections()...):
		more = []string{anyReward}
	case known("reward_functions", "custom_reward_function", "reward_model", "verify", "aggregation"):
		before, indent = "reward:\n", "  "
	case known("kind"):
		before, indent, more = "reward:\n  verify:\n    tool:\n", "      ", []string{anyReward}
	case known("path"):
		before, indent = "reward:\n  reward_functions:\n    component:\n", "      "
	default:
		before, indent = "reward:\n  reward_functions:\n", "    "
	}
	lead := len(text) - len(strings.TrimLeft(text, " ")) // A block may show a part as it is indented.
	whole := before + reindent(text, lead, indent)
	file := filepath.Join(dir, "cfg.yaml")
	if err := os.WriteFile(file, []byte(whole), 0o600); err != nil {
		return err
	}
	for _, f := range c.configCheck(ctx, dir, append([]string{"-c", "cfg.yaml"}, more...)) {
		at := max(0, f.line-1-strings.Count(before, "\n"))
		if !c.excused(name, f.text) {
			c.wrong(name, line+at, "rewardloop config check: %s", f.text)
		}
	}
	return nil
}

// first is the first key of a YAML text.
func first(text string) string {
	key, _, _ := strings.Cut(strings.TrimSpace(text), ":")
	return key
}

func reindent(text string, lead int, indent string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			out.WriteString(line)
			continue
		}
		out.WriteString(indent + line[min(lead, len(line)-len(strings.TrimLeft(line, " "))):])
	}
	return out.String()
}

// hydra checks a block of overrides for a trainer, which this server takes, too.
func (c *checker) hydra(ctx context.Context, dir, name string, b block) {
	var words []string
	n := b.line
	for text := range strings.Lines(b.text) {
		word := strings.TrimSpace(text)
		if word != "" && !override.MatchString(word) {
			c.wrong(name, n, "%q is not an override: want [+~]key.key=value", word)
		}
		words = append(words, word)
		n++
	}
	c.count.keys += len(words)
	if c.excused(name, "hydra") {
		return
	}
	for _, f := range c.configCheck(ctx, dir, words) {
		c.wrong(name, b.line, "rewardloop config check: %s", f.text)
	}
}

// overrides checks those on a command line of the binary, beside what its flags set, and
// with the configuration that the command names where the repository has it.
func (c *checker) overrides(ctx context.Context, dir, name string, cmd command) {
	if path.Base(cmd.words[0]) != "rewardloop" || len(cmd.words) < 2 ||
		!slices.Contains([]string{"serve", "worker", "score", "config"}, cmd.words[1]) {
		return
	}
	var file, flags, given []string
	for i, word := range cmd.words[2:] {
		flag, before := strings.TrimLeft(cmd.words[i+1], "-"), cmd.words[i+1]
		key := settingOf()[cmd.words[1]+" "+flag]
		switch {
		case before == "-c" && c.tree.files[word]:
			file = []string{"-c", filepath.Join(c.tree.root, word)}
		case strings.HasPrefix(before, "-") && key != "":
			flags = append(flags, "++"+key+"="+word)
		case override.MatchString(word) && strings.Contains(word, "="):
			given = append(given, word)
		}
	}
	if len(given) == 0 {
		return
	}
	c.count.keys += len(given)
	if file == nil && !slices.ContainsFunc(given, func(word string) bool { return strings.HasPrefix(word, wholeReward) }) {
		file = []string{anyReward}
	}
	for _, f := range c.configCheck(ctx, dir, slices.Concat(file, flags, given)) {
		if !c.excused(name, f.text) {
			c.wrong(name, cmd.line, "rewardloop config check: %s", f.text)
		}
	}
}

// settingOf are the settings that flags stand for.
func settingOf() map[string]string {
	return map[string]string{
		"serve listen": "server.listen", "serve token-file": "server.token_file", "serve advertise": "queue.advertise",
		"serve nats": "queue.nats", "serve nats-listen": "queue.nats_listen", "worker join": "queue.nats",
	}
}

// keys checks the names of configuration keys in a page's sentences, all at once: they
// must be known, whatever their value.
func (c *checker) keys(ctx context.Context, dir, name string) {
	where := map[string]int{}
	for _, s := range c.tree.pages[name].spans {
		m := override.FindStringSubmatch(s.text)
		if m == nil || suffix.MatchString(m[1]) || placeholder.MatchString(m[1]) {
			continue
		}
		section, rest, _ := strings.Cut(m[1], ".")
		if !slices.Contains(sections(), section) || c.ofPython(rest) {
			continue
		}
		where[m[1]] = s.line
	}
	if len(where) == 0 {
		return
	}
	args := []string{anyReward}
	for key := range where {
		args = append(args, "++"+key+"=null")
	}
	c.count.keys += len(where)
	for _, f := range c.configCheck(ctx, dir, args) {
		for key, line := range where {
			if strings.Contains(f.text, "++"+key+"=null") && strings.Contains(f.text, "no such key") && !c.excused(name, key) {
				c.wrong(name, line, "the configuration has no key %s: rewardloop config print shows them", key)
			}
		}
	}
}

// ofPython says whether the Python client has a method of this name: in its examples an
// object is called loop.
func (c *checker) ofPython(method string) bool {
	for file, text := range c.tree.sources {
		if strings.HasPrefix(file, "python/rewardloop/") && strings.Contains(text, "def "+method+"(") {
			return true
		}
	}
	return false
}

// fault is what config check says of one place; line is 0 where it names none.
type fault struct {
	line int
	text string
}

var (
	faultAt = regexp.MustCompile(`^cfg\.yaml:(\d+):\d+: (.*)`)
	lacking = regexp.MustCompile(`there is no file (\S+);`)
)

// anyFunction is a Python file with a function of every name that takes any option.
const anyFunction = "def __getattr__(name):\n    return lambda **options: 0\n"

// configCheck runs config check in dir and leaves out what is only absent here. A file
// that a configuration names beside itself is made, so that the check goes on.
func (c *checker) configCheck(ctx context.Context, dir string, args []string) []fault {
	var faults []fault
	for range 3 { // Once, and again with what was lacking.
		faults = c.configFaults(ctx, dir, args)
		made := false
		for _, f := range faults {
			m := lacking.FindStringSubmatch(f.text)
			if m != nil && strings.HasPrefix(m[1], dir+string(filepath.Separator)) && !exists(m[1]) {
				made = os.MkdirAll(filepath.Dir(m[1]), 0o700) == nil && os.WriteFile(m[1], []byte(anyFunction), 0o600) == nil
			}
		}
		if !made {
			break
		}
	}
	return slices.DeleteFunc(faults, func(f fault) bool {
		return slices.ContainsFunc(absences(), func(a absence) bool { return strings.Contains(f.text, a.says) })
	})
}

func (c *checker) configFaults(ctx context.Context, dir string, args []string) []fault {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.tree.bin, append([]string{"config", "check"}, args...)...) //nolint:gosec // the program under test
	cmd.Dir = dir
	said, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	var faults []fault
	for line := range strings.Lines(string(said)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "rewardloop config check: ")
		m := faultAt.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "note:") || line == "":
		case m != nil:
			n, _ := strconv.Atoi(m[1])
			faults = append(faults, fault{n, m[2]})
		case strings.HasPrefix(line, "override ") || strings.HasPrefix(line, "cfg.yaml: ") || len(faults) == 0:
			faults = append(faults, fault{0, line})
		default: // It goes on.
			faults[len(faults)-1].text += "; " + line
		}
	}
	if len(faults) == 0 {
		faults = append(faults, fault{0, fmt.Sprint(err)})
	}
	return faults
}
