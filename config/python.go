package config

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/python/rewardloop/scorers"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// PythonScorer is the name, in the registry, of the scorer that runs reward functions in Python.
const PythonScorer = "python"

// A function of a Python file or module is called compute_score where nobody says
// otherwise, as in verl.
const defaultFunction = "compute_score"

// isPython reports whether a path names a Python file or module, or a model of the catalogue, which is one.
func isPython(p string) bool {
	return strings.HasPrefix(p, scorers.Scheme) || strings.HasPrefix(p, "pkg://") || strings.HasPrefix(p, "file://") ||
		strings.HasSuffix(p, ".py") && !strings.Contains(p, "://")
}

// pythonPath reads the path and name of a Python function. A file that is not there
// is a fault; whether a module is, and what either holds, its process finds out.
func (r *reader) pythonPath(t *ComponentConfig, pathValue, nameValue value) {
	if t.catalogued() {
		r.catalogued(t, pathValue, nameValue)
		return
	}
	t.Function = defaultFunction
	if !nameValue.null() {
		if name, ok := r.text(nameValue); ok && !identifier().MatchString(name) {
			r.fault(nameValue, "%q cannot name a Python function", shorten(name))
		} else if ok {
			t.Function = name
		}
	}
	if module, ok := strings.CutPrefix(t.Path, "pkg://"); ok {
		r.pythonModule(pathValue, strings.ReplaceAll(module, "/", "."))
		return
	}
	t.Path = r.pythonFile(pathValue, strings.TrimPrefix(t.Path, "file://"))
}

func (r *reader) pythonModule(v value, module string) {
	switch {
	case !moduleName().MatchString(module):
		r.fault(v, "want pkg:// and the name of a module, such as pkg://my_package.rewards, got %q", shorten(module))
	case module == "rewardloop" || strings.HasPrefix(module, "rewardloop."):
		r.fault(v, "is the module by which a trainer sends samples to this server, so the server would call itself: write a scorer, such as builtin://ocr")
	default:
		r.noteReplacement(v, module)
	}
}

// pythonFile returns the absolute path of a file. A relative one in the file of the
// configuration starts at that file's folder, one in an override at the working
// directory, because that is where whoever wrote it was looking from.
func (r *reader) pythonFile(v value, path string) string {
	start := "a relative path starts at the folder of this file"
	if r.overridden(v) {
		start = "a relative path in an override starts at the working directory"
	}
	full := r.beside(v, path)
	switch info, err := os.Stat(full); {
	case !strings.HasSuffix(path, ".py"):
		r.fault(v, "want a Python file, whose name ends in .py, got %q", shorten(path))
	case err != nil || info.IsDir():
		advice := ""
		if !filepath.IsAbs(path) {
			advice = "; " + start
			if there, err := filepath.Abs(path); err == nil && there != full && isFile(there) {
				advice += "; there is " + there
			}
		}
		r.fault(v, "there is no file %s%s%s", full, advice, replacementAdvice(path))
	default:
		r.noteReplacement(v, path)
	}
	return full
}

// overridden says that a value is of no file.
func (r *reader) overridden(v value) bool { return r.file == "" || r.place(v.node).order > 0 }

// beside returns the absolute path of what a value names, see pythonFile.
func (r *reader) beside(v value, path string) string {
	base := filepath.Dir(r.file)
	if r.overridden(v) {
		base = "."
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(base, path)
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return path
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// noteReplacement says which built-in scorer does what a function of verl-omni does,
// and which function asks another server.
func (r *reader) noteReplacement(v value, path string) {
	switch module, ok := verlOmniModule(path); {
	case ok && module == "http_scorer_client":
		r.note(v, "runs in Python and sends samples to another server: server_url must not be the address of this server. Without Python: write server_url as path and "+
			"protocol: deepgen; builtin://ocr does what an OCR server does")
	case ok && module == "latent_http_scorer_client":
		r.note(v, "runs in Python and sends samples to another server. Without Python: write the address of that server as path and protocol: latent")
	case ok && replacements()[module] != "":
		r.note(v, "builtin://"+replacements()[module]+" does what "+module+" does, without Python")
	}
}

func replacementAdvice(path string) string {
	module, ok := verlOmniModule(path)
	if scorer := replacements()[module]; ok && scorer != "" {
		return "; builtin://" + scorer + " does what " + module + " does, without Python"
	}
	return ""
}

// verlOmniModule is the last part of the path of a module that verl-omni brings.
func verlOmniModule(path string) (string, bool) {
	module := strings.NewReplacer("/", ".", `\`, ".").Replace(strings.TrimSuffix(path, ".py"))
	i := strings.LastIndexByte(module, '.')
	parent := module[:max(i, 0)]
	const theirs = "verl_omni.utils.reward_score"
	return module[i+1:], parent == theirs || strings.HasSuffix(parent, "."+theirs)
}

func identifier() *regexp.Regexp { return regexp.MustCompile(`^[\pL_][\pL\pN_]*$`) }

func moduleName() *regexp.Regexp {
	return regexp.MustCompile(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*$`)
}

// pythonKeys are the keys of an entry that only a Python function may have.
type pythonKeys struct {
	extra, pixels, probe, frames             value
	hasExtra, hasPixels, hasProbe, hasFrames bool
	process                                  map[string]value // what there is of processKeys
	placement                                *object          // with what there is of placementKeys; nil: none
	form                                     formKeys
}

// processKeys are those of pythonKeys that may be options of other scorers.
func processKeys() []string { return []string{"memory", "env", "interpreter", "environment"} }

// placementKeys are those that say how a model in Python runs. Each makes a model of an entry.
func placementKeys() []string {
	var s keys.Set
	new(python.Placement).Keys(&s)
	return s.Names()
}

// fractionKey says of a model how much of a card it needs; of a function it is an option of its own.
const fractionKey = "fraction"

// takePython takes them before they are taken for options of the scorer. Other scorers
// may have options with the names of processKeys.
func takePython(o *object, process bool) (k pythonKeys) {
	k.extra, k.hasExtra = o.take("extra_keys")
	k.pixels, k.hasPixels = o.take("pixels")
	k.probe, k.hasProbe = o.take("probe")
	if process { // other scorers have an option of that name
		k.frames, k.hasFrames = o.take("frames")
		k.process = map[string]value{}
		for _, name := range processKeys() {
			if v, ok := o.take(name); ok && !v.null() {
				k.process[name] = v
			}
		}
		k.placement = o.split(placementKeys(), fractionKey)
	}
	return k
}

// agentConcurrency is how many calls the recipe async_reward_agent (haolinyan/verl) has in
// flight, in threads: max_concurrency, whose default is 256.
const agentConcurrency = 256

// agent reads the key that the recipe async_reward_agent has beside a function or class.
func (r *reader) agent(t *ComponentConfig, v value) {
	if v.null() {
		return
	}
	if t.Scorer != PythonScorer {
		r.fault(v, "is for Python functions; leave it out")
	} else if t.Concurrency > 0 {
		r.fault(v, "has no effect with concurrency; leave one of them out")
	} else if n, ok := r.integer(v, 1, mostConcurrency); ok {
		t.Concurrency = n
	}
}

// scoresMethod is the method or function that scores samples in batches.
const scoresMethod = "compute_scores"

// postProcessMethod is what the recipe's class may have for finished groups.
const postProcessMethod = "post_process_scores"

// splitAgent makes two of the component of a class that works on finished groups: what it
// gives each sample, which does not count, and what it makes of a group's, which does.
func splitAgent(t ComponentConfig) []ComponentConfig {
	group := ComponentConfig{
		Key: postProcessMethod, PostProcess: "compute_score", Weight: 1, Required: true, Timeout: t.Timeout, Retries: t.Retries,
		When: t.When, Scale: 1, MinMembers: 1, Place: t.Place,
	}
	t.Key, t.Weight, t.Required, t.OnFailure = group.PostProcess, 0, false, rewards.ComponentPolicy{Policy: rewards.PolicyZero}
	if t.Concurrency == 0 {
		t.Concurrency, t.AgentConcurrency = t.AgentConcurrency, 0
	}
	return []ComponentConfig{t, group}
}

// hasMethod reports whether a class of a Python file has a method, by its text: where the
// class or the method is made in another way, its process finds out.
func hasMethod(path, class, method string) bool {
	text, err := os.ReadFile(path)
	if err != nil {
		return false // a module
	}
	head := regexp.MustCompile(`^class\s+` + regexp.QuoteMeta(class) + `\b`)
	wanted := regexp.MustCompile(`^\s+(async\s+)?def\s+` + regexp.QuoteMeta(method) + `\s*\(`)
	// A line of a docstring may begin anywhere; a statement after the class begins so.
	after := regexp.MustCompile(`^(class|def|async|import|from|if|for|while|with|try)\b|^@|^[\pL_][\pL\pN_.]*\s*[:=(\[]`)
	inside := false
	for line := range strings.Lines(string(text)) {
		switch {
		case head.MatchString(line):
			inside = true
		case after.MatchString(line):
			inside = false
		case inside && wanted.MatchString(line):
			return true
		}
	}
	return false
}

// process reads how the processes of a Python function are.
func (r *reader) process(t *ComponentConfig, given map[string]value) {
	if v, ok := given["memory"]; ok {
		t.MemoryBytes, _ = r.size(v, 16<<20, keys.Largest)
	}
	if v, ok := given["interpreter"]; ok {
		t.Interpreter = r.interpreter(v)
	}
	if v, ok := given["environment"]; ok {
		r.environment(t, v)
		if other, both := given["interpreter"]; both {
			r.fault(other, "has no effect with environment, which has its own interpreter; leave one of them out")
		}
	}
	if t.entry != nil && given["environment"].null() && given["interpreter"].null() {
		r.ownEnvironment(t, t.entryAt)
	}
	if v, ok := given["env"]; ok {
		t.Env = []string{}
		for _, item := range r.list(v) {
			if name, ok := r.text(item); ok {
				if !identifier().MatchString(name) {
					r.fault(item, "%q cannot name a variable", shorten(name))
				}
				t.Env = append(t.Env, name)
			}
		}
	}
}

// interpreter returns the path of a Python: a name is looked for on PATH when it is started, and a
// relative path starts at the folder of the configuration.
func (r *reader) interpreter(v value) string {
	path, ok := r.text(v)
	if !ok || path == "" || !strings.Contains(path, "/") {
		return path
	}
	full := r.beside(v, path)
	if info, err := os.Stat(full); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		r.fault(v, "no program %s: want a Python interpreter, such as envs/hpsv3/bin/python", full)
	}
	return full
}

// placed reads how a model in Python runs.
func (r *reader) placed(t *ComponentConfig, o *object) {
	t.Placement = &python.Placement{}
	if v, ok := o.take("devices"); ok && !v.null() {
		t.Placement.Devices = r.devices(v)
	}
	if v, ok := o.take(fractionKey); ok && !v.null() {
		t.Fraction = r.fraction(v)
		t.Placement.Fraction = t.Fraction
	}
	if v, ok := o.take("batch_wait_timeout_s"); ok && !v.null() && v.node.Value != auto {
		if seconds, ok := r.number(v); ok && seconds >= 0 && seconds <= 1 {
			t.Placement.BatchWait = &seconds
		} else if ok {
			r.fault(v, "want auto, or 0 to 1 seconds, got %v", seconds)
		}
	}
	var typed keys.Set
	t.Placement.Keys(&typed)
	r.decodeKeys(o, &typed)
	*t.Placement = t.Placement.WithDefaults()
}

// devices reads one device or a list.
func (r *reader) devices(v value) (out []string) {
	items := []value{v}
	if v.node.Kind == yaml.SequenceNode {
		items = r.list(v)
	}
	for _, item := range items {
		s, ok := r.text(item)
		switch {
		case !ok:
		case !infer.ValidDevice(s):
			r.fault(item, "want %s, got %q", infer.DeviceForm, shorten(s))
		case slices.Contains(out, s):
			r.fault(item, "duplicate device %s: num_replicas sets the number of processes on each device", s)
		default:
			out = append(out, s)
		}
	}
	if slices.Contains(out, infer.Pool) && len(out) > 1 {
		r.fault(v, "%s means every card of the reward pool and must be the only device", infer.Pool)
	}
	return out
}

// probe reads with which known samples a function is called at start: true is nil, false none.
func (r *reader) probe(v value) []string {
	if v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == "!!bool" {
		if yes, _ := r.boolean(v); yes {
			return nil
		}
		return []string{}
	}
	kinds := []string{}
	for _, item := range r.list(v) {
		if s, ok := r.scalar(item, "true, false or a list of "+strings.Join(python.Kinds(), ", ")); ok {
			if !slices.Contains(python.Kinds(), s) {
				r.fault(item, "want true, false or a list of %s, got %q", strings.Join(python.Kinds(), ", "), shorten(s))
			}
			kinds = append(kinds, s)
		}
	}
	return kinds
}

// python reads the keys that only a Python function may have.
func (r *reader) python(t *ComponentConfig, k pythonKeys) {
	if t.Scorer != PythonScorer {
		if k.hasExtra && t.Scorer == HTTPScorer {
			r.fault(k.extra, "is for Python functions; a scorer on another server has extras: [{name: …, kind: number}]")
		} else if k.hasExtra {
			r.fault(k.extra, "is for Python functions; leave it out: a built-in scorer declares its own")
		}
		if k.hasPixels {
			r.fault(k.pixels, "is for Python functions; leave it out")
		}
		if k.hasProbe {
			r.fault(k.probe, "is for Python functions; leave it out")
		}
		for _, name := range processKeys() {
			if v, ok := k.process[name]; ok {
				r.fault(v, "is for Python functions; leave it out")
			}
		}
		if k.placement != nil {
			for _, e := range k.placement.rest() {
				r.fault(e.value, "is for Python functions; leave it out")
			}
		}
		r.form(t, k.form)
		return
	}
	if t.catalogued() {
		r.ownKeys(t, &k)
	}
	r.form(t, k.form)
	r.process(t, k.process)
	if k.placement == nil && t.Signature == "" && (t.Function == scoresMethod || hasMethod(t.Path, t.Function, scoresMethod)) {
		k.placement = r.mapping(value{})
	}
	if k.placement != nil {
		r.placed(t, k.placement)
	}
	r.checkForm(t, k)
	if k.hasProbe && !k.probe.null() {
		t.Probe = r.probe(k.probe)
	}
	t.Pixels = "auto"
	if k.hasPixels && !k.pixels.null() {
		if s, ok := r.choice(k.pixels, python.PixelForms()); ok {
			t.Pixels = s
		}
	}
	if t.entry != nil {
		t.Pixels = t.entry.Pixels
	}
	if k.hasFrames && !k.frames.null() {
		if s, ok := r.text(k.frames); ok {
			if _, err := rewards.ParseFrames(s); err != nil {
				r.fault(k.frames, "%v", err)
			}
			t.Frames = s
		}
	}
	if !k.hasExtra || k.extra.null() {
		return
	}
	t.ExtraKeys = map[string]rewards.FieldKind{}
	for _, e := range r.mapping(k.extra).rest() {
		kinds := []string{string(rewards.Number), string(rewards.Bool), string(rewards.String)}
		if kind, ok := r.choice(e.value, kinds); ok {
			t.ExtraKeys[e.name] = rewards.FieldKind(kind)
		}
	}
}

// scorerOptions are what the registry builds the component's scorer from.
func (t ComponentConfig) scorerOptions() json.RawMessage {
	if t.Scorer == HTTPScorer {
		return t.httpOptions()
	}
	if t.Scorer == onnxScorer && strings.HasPrefix(t.Path, onnxScheme) {
		return t.onnxOptions()
	}
	if t.Scorer != PythonScorer {
		return t.Options
	}
	all := map[string]any{"path": t.Path, "name": t.Function, "pixels": t.Pixels}
	if t.Options != nil {
		all["kwargs"] = t.Options
	}
	if t.Frames != "" {
		all["frames"] = t.Frames
	}
	if t.ExtraKeys != nil {
		all["extra_keys"] = t.ExtraKeys
	}
	if t.Concurrency > 0 {
		all["concurrency"] = t.Concurrency
	}
	if t.AgentConcurrency > 0 {
		all["agent_concurrency"] = t.AgentConcurrency
	}
	if t.MemoryBytes > 0 {
		all["memory"] = t.MemoryBytes
	}
	if t.Env != nil {
		all["env"] = t.Env
	}
	// An environment that is not made has no Python: what starts all the same, because nobody asked
	// Check, says so in place of running in another.
	if interpreter := cmp.Or(t.environmentPython, t.environmentLacks, t.Interpreter); interpreter != "" {
		all["interpreter"] = interpreter
	}
	if t.Signature != "" {
		all["signature"] = t.Signature
	}
	if t.Reference != "" {
		all["reference"] = t.Reference
	}
	if t.Placement != nil {
		all["placement"], all["timeout"] = t.Placement, t.Timeout
	}
	if t.Probe != nil {
		all["probe"] = t.Probe
	}
	t.withEntry(all)
	return encode(all)
}
