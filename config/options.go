package config

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"
)

// list returns the items of a sequence; a single value is a list of one.
func (r *reader) list(v value) []value {
	switch {
	case v.null():
		return nil
	case v.node.Kind == yaml.ScalarNode:
		return []value{v}
	case v.node.Kind != yaml.SequenceNode:
		r.fault(v, "want a list, got %s", describe(v.node))
		return nil
	}
	items := make([]value, len(v.node.Content))
	for i, n := range v.node.Content {
		items[i] = value{n, fmt.Sprintf("%s[%d]", v.path, i)}
	}
	return items
}

// json turns a node into what encoding/json writes.
func (r *reader) json(v value) (any, bool) {
	switch v.node.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for _, e := range r.mapping(v).rest() {
			item, ok := r.json(e.value)
			if !ok {
				return nil, false
			}
			out[e.name] = item
		}
		return out, true
	case yaml.SequenceNode:
		out := []any{}
		for _, item := range r.list(v) {
			x, ok := r.json(item)
			if !ok {
				return nil, false
			}
			out = append(out, x)
		}
		return out, true
	}
	return r.jsonScalar(v)
}

func (r *reader) jsonScalar(v value) (any, bool) {
	switch v.node.ShortTag() {
	case "!!null":
		return nil, true
	case "!!bool", "!!int", "!!float":
		var x any
		if err := v.node.Decode(&x); err != nil {
			r.fault(v, "%q cannot be read: %v", shorten(v.node.Value), err)
			return nil, false
		}
		if f, ok := x.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			r.fault(v, "want a finite number, got %q", v.node.Value)
			return nil, false
		}
		return x, true
	case "!!binary":
		r.fault(v, "binary values are not read: write text")
		return nil, false
	}
	return v.node.Value, true // text, and dates, which scorers read as text
}

// encode cannot fail: the values are what json made.
func encode(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		panic("config: options that JSON cannot hold: " + err.Error())
	}
	return out
}

// HTTPScorer is the name, in the registry, of the scorer that calls another server.
const HTTPScorer = "http"

// isHTTP reports whether a path is the address of another server.
func isHTTP(p string) bool {
	scheme, _, ok := strings.Cut(p, "://")
	return ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}

// httpPath reads the address of another server. How it is asked, its options say.
func (r *reader) httpPath(t *ComponentConfig, pathValue, nameValue value) {
	t.Scorer = HTTPScorer
	u, err := url.Parse(t.Path)
	switch {
	case err != nil || u.Host == "":
		r.fault(pathValue, "want an address such as http://127.0.0.1:18082, got %q", shorten(t.Path))
		return
	case u.Fragment != "":
		r.fault(pathValue, "want an address without a part after #")
	}
	t.shownPath = shownOptions{r: r}.text("path", pathValue.node, t.Path)
	if !nameValue.null() {
		r.fault(nameValue, "%s holds no function; leave name out", t.shownPath)
	}
}

// httpOptions are the options of a component that asks another server, its address among them.
func (t ComponentConfig) httpOptions() json.RawMessage {
	return t.withOption("url", t.Path)
}
