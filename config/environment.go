package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rewardloop/rewardloop/internal/pyenv"
)

// environment reads the environment of a Python function. Whether it is made is no fault of the
// file: a process that scores nothing needs none.
func (r *reader) environment(t *ComponentConfig, v value) {
	o := r.mapping(v)
	s := &pyenv.Spec{}
	before := len(r.faults)
	if v, ok := o.take("python"); ok && !v.null() {
		s.Python, _ = r.scalar(v, `a version such as "3.11", or the path of an interpreter`)
		if strings.Contains(s.Python, "/") {
			s.Python = r.interpreter(v)
		}
	}
	if v, ok := o.take("system_site_packages"); ok && !v.null() {
		s.SystemSitePackages, _ = r.boolean(v)
	}
	requirements, ok := o.take("requirements")
	switch {
	case ok && !requirements.null():
		r.requirements(s, requirements)
	case t.entry != nil:
		s.Requirements = t.entry.Requirements
	}
	o.refuseRest([]string{"python", "requirements", "system_site_packages"})
	if err := s.Validate(); err != nil && len(r.faults) == before {
		r.fault(v, "%s", plain(err))
	}
	t.environmentAt = r.place(v.node)
	if len(r.faults) > before {
		t.Environment = s
		return // nothing runs by it
	}
	r.found(t, v, s)
}

// found looks for the environment of a component, which is written at a value.
func (r *reader) found(t *ComponentConfig, v value, s *pyenv.Spec) {
	t.Environment = s
	made, err := r.envs.Find(*s)
	if err != nil {
		t.environmentLacks = fmt.Sprintf("%v: `%s` makes it", err, r.makeCommand(v))
		return
	}
	t.environmentPython = made.Interpreter
}

// makeCommand is what makes the environment of a value.
func (r *reader) makeCommand(v value) string {
	quoted := func(word string) string {
		if strings.ContainsAny(word, " \t'\"$\\*?{}[]()&;<>|~#") {
			return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		return word
	}
	words := []string{"rewardloop env make"}
	switch {
	case r.file != "" && isFile(r.file):
		words = append(words, "-c", quoted(r.file))
	case r.file != "":
		words = append(words, "-c -") // standard input
	}
	for _, n := range append([]*yaml.Node{v.node}, v.node.Content...) { // an override may add to what the file says
		if at := r.place(n).Override; at != "" && !slices.Contains(words, quoted(at)) {
			words = append(words, quoted(at))
		}
	}
	return strings.Join(words, " ")
}

// requirements reads a requirements file, or a list of its lines.
func (r *reader) requirements(s *pyenv.Spec, v value) {
	if v.node.Kind == yaml.ScalarNode {
		if path, ok := r.text(v); ok {
			if err := s.ReadFile(r.beside(v, path)); err != nil {
				r.fault(v, "%s", plain(err))
			}
		}
		return
	}
	s.Dir = r.beside(v, ".")
	for _, item := range r.list(v) {
		line, ok := r.text(item)
		if ok && strings.ContainsAny(line, "\r\n") {
			r.fault(item, "want one line of a requirements file each")
		}
		s.Requirements += line + "\n"
	}
}

// plain is an error of package pyenv without its class, which the key says.
func plain(err error) string {
	return strings.ReplaceAll(err.Error(), pyenv.ErrSpec.Error()+": ", "")
}

// needsEnvironment says why a component cannot run here, where this process scores samples of its profile.
func (c *Config) needsEnvironment(p *Profile, t *ComponentConfig) string {
	if only := c.Queue.Rewards; c.NumWorkers == 0 || len(only) > 0 && !slices.Contains(only, p.Name) {
		return ""
	}
	return t.environmentLacks
}

// environmentFault says that the environment of a component is not made here.
func (t *ComponentConfig) environmentFault(p *Profile) Fault {
	return Fault{Place: t.environmentAt, Key: p.key(*t) + ".environment", Message: t.environmentLacks}
}

// Environments returns the Python environments of the profiles, by the keys of their entries.
func (c *Config) Environments() map[string]pyenv.Spec {
	all := map[string]pyenv.Spec{}
	for _, p := range c.Profiles {
		for _, t := range p.Components {
			if t.Environment != nil {
				all[p.key(t)] = *t.Environment
			}
		}
	}
	return all
}
