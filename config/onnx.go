package config

import (
	"encoding/json"
	"regexp"
	"strings"
)

// ONNXScorer is the scorer in the registry that runs any reward model of one graph.
const ONNXScorer = "onnx"

const onnxScheme = "onnx://"

// onnxPath reads the model of a path: a name that `rewardloop models list` shows, or a
// folder.
func (r *reader) onnxPath(t *TermConfig, pathValue, nameValue value) {
	t.Scorer = ONNXScorer
	if strings.TrimPrefix(t.Path, onnxScheme) == "" {
		r.fault(pathValue, "names no model: write onnx:// and a name or a folder, such as onnx:///data/models/hpsv3")
	}
	if !nameValue.null() {
		r.fault(nameValue, "%s holds no function; leave name out", shorten(t.Path))
	}
}

// onnxOptions are the options of a term that runs a model, the model among them.
func (t TermConfig) onnxOptions() json.RawMessage {
	return t.withOption("model", strings.TrimPrefix(t.Path, onnxScheme))
}

// withOption are the options and one more. One that is given already stays: the scorer
// names the fault.
func (t TermConfig) withOption(name, text string) json.RawMessage {
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

// deviceForm is what runs a model.
var deviceForm = regexp.MustCompile(`^(cpu|cuda:[0-9]{1,3})$`)

// local reads the settings of an engine that is a model in this process's pool.
func (r *reader) local(e *Engine, o *object) {
	e.Device = "cpu"
	if v, ok := o.take("device"); ok && !v.null() {
		if s, ok := r.text(v); ok {
			if e.Device = s; !deviceForm.MatchString(s) {
				r.fault(v, "want cpu or cuda:<n>, got %q", shorten(s))
			}
		}
	}
}

// localKeys are the keys of an engine that is a model in this process's pool.
func localKeys() []string { return []string{"onnx", "device"} }
