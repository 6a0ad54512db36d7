package config

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// onnxScorer is the scorer in the registry that runs any reward model of one graph.
const onnxScorer = "onnx"

const onnxScheme = "onnx://"

// onnxPath reads the model of a path: a name that `rewardloop models list` shows, or a
// folder.
func (r *reader) onnxPath(t *ComponentConfig, pathValue, nameValue value) {
	t.Scorer = onnxScorer
	if strings.TrimPrefix(t.Path, onnxScheme) == "" {
		r.fault(pathValue, "names no model: write onnx:// and a name or a folder, such as onnx:///data/models/hpsv3")
	}
	if !nameValue.null() {
		r.fault(nameValue, "%s holds no function; leave name out", shorten(t.Path))
	}
}

// onnxOptions are the options of a component that runs a model, the model among them.
func (t ComponentConfig) onnxOptions() json.RawMessage {
	return t.withOption("model", strings.TrimPrefix(t.Path, onnxScheme))
}

// withOption are the options and one more. One that is given already stays: the scorer
// names the fault.
func (t ComponentConfig) withOption(name, text string) json.RawMessage {
	all := map[string]json.RawMessage{}
	if t.Options != nil && json.Unmarshal(t.Options, &all) != nil {
		return t.Options // unreachable: encode made it
	}
	if _, given := all[name]; given {
		return t.Options
	}
	all[name] = encode(text)
	return encode(all)
}

// local reads the settings of an engine that is a model in this process's pool.
func (r *reader) local(e *Engine, o *object) {
	e.Device = infer.CPU
	if v, ok := o.take("device"); ok && !v.null() {
		if s, ok := r.text(v); ok {
			if e.Device = s; !infer.ValidDevice(s) {
				r.fault(v, "want %s, got %q", infer.DeviceForm, shorten(s))
			}
			e.deviceAt = r.place(v.node)
		}
	}
	if v, ok := o.take("fraction"); ok && !v.null() {
		e.Fraction = r.fraction(v)
	}
}

// fraction reads a model's share of a card; 0: it has none.
func (r *reader) fraction(v value) float64 {
	f, ok := r.number(v)
	if ok && (f <= 0 || f > 1) {
		r.fault(v, "want a share of a card, more than 0 and at most 1, got %v", f)
		return 0
	}
	return f
}

// share takes the fraction, which the plan of cards reads, out of the options of a scorer
// that ships. The options of others are their own.
func (r *reader) share(t *ComponentConfig, entries []entry) {
	at := slices.IndexFunc(entries, func(e entry) bool { return e.name == "fraction" })
	if at < 0 || t.Scorer == PythonScorer || t.Scorer == HTTPScorer {
		return
	}
	if v := entries[at].value; !v.null() {
		t.Fraction = r.fraction(v)
	}
	t.Options, _ = r.object(slices.Delete(slices.Clone(entries), at, at+1))
}

// localKeys are the keys of an engine that is a model in this process's pool.
func localKeys() []string { return []string{"onnx", "device", "fraction"} }
