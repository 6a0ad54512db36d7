package config

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rewardloop/rewardloop/internal/redact"
)

// environment looks up a variable.
type environment func(name string) (string, bool)

// interpolate resolves ${oc.env:NAME} and ${oc.env:NAME,default} in every value
// of the tree, and takes out those it cannot resolve, with a fault for each. What
// it replaces is remembered in written, because a variable may hold a secret.
func (r *reader) interpolate(v value, env environment) bool {
	n := v.node
	if n.Kind != yaml.ScalarNode {
		r.filter(v, func(_ *yaml.Node, item value, _ map[string]*yaml.Node) bool { return r.interpolate(item, env) })
		return true
	}
	if !strings.Contains(n.Value, "${") {
		return true
	}
	if key := v.path[strings.LastIndexByte(v.path, '.')+1:]; redact.Named(key) || strings.Contains(n.Value, "://") && strings.Contains(n.Value, "@") {
		env = r.noting(env)
	}
	out, err := expand(n.Value, env, 0)
	if err != nil {
		r.fault(v, "%v", err)
		return false
	}
	r.written[n] = n.Value
	n.Value = out
	if n.Style == 0 { // an unquoted value takes the type of its new text
		n.Tag = ""
	}
	return true
}

// noting remembers the variables that are read: they hold a secret.
func (r *reader) noting(env environment) environment {
	return func(name string) (string, bool) {
		r.hidden[name] = true
		return env(name)
	}
}

// expand replaces every ${…} of s; \${ stands for itself.
func expand(s string, env environment, depth int) (string, error) {
	if depth > 8 {
		return "", errors.New("interpolations nested more than 8 deep")
	}
	var out strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			out.WriteString(s)
			return out.String(), nil
		}
		if i > 0 && s[i-1] == '\\' {
			out.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		out.WriteString(s[:i])
		end := closing(s[i:])
		if end < 0 {
			return "", fmt.Errorf("%q has no closing brace", shorten(s[i:]))
		}
		text, err := resolve(s[i+2:i+end], env, depth)
		if err != nil {
			return "", err
		}
		out.WriteString(text)
		s = s[i+end+1:]
	}
}

// closing returns the index of the brace that closes the one s begins with.
func closing(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// resolve is the value of one interpolation, what stands between its braces.
func resolve(inner string, env environment, depth int) (string, error) {
	args, ok := strings.CutPrefix(inner, "oc.env:")
	if !ok {
		return "", fmt.Errorf("${%s}: only ${oc.env:NAME} and ${oc.env:NAME,default} are resolved", shorten(inner))
	}
	name, fallback, hasFallback := strings.Cut(args, ",")
	name = strings.TrimSpace(name)
	if name == "" {
		return "", fmt.Errorf("${%s}: names no variable", shorten(inner))
	}
	if text, found := env(name); found {
		return text, nil
	}
	if !hasFallback {
		return "", fmt.Errorf("the environment variable %s is not set; write ${oc.env:%s,default} for one that need not be", name, name)
	}
	fallback = strings.TrimSpace(fallback)
	if len(fallback) >= 2 && (fallback[0] == '"' || fallback[0] == '\'') && fallback[len(fallback)-1] == fallback[0] {
		return fallback[1 : len(fallback)-1], nil
	}
	return expand(fallback, env, depth+1)
}
