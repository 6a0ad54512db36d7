package config

import (
	"encoding/json"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/rewards"
)

// profile reads reward or rewards.<name>. It returns nil where no scorer is
// named. Every profile has its own manager; the workers are everybody's.
func (r *reader) profile(c *Config, name string, v value) *Profile {
	o := r.mapping(v)
	p := &Profile{Name: name, Aggregation: rewards.WeightedSum, Place: r.place(v.node)}
	p.OnSampleFailure.Policy = rewards.PolicyNone
	_, _ = o.take("_target_") // Hydra's class name

	counted := false
	if v, ok := o.take("num_workers"); ok && !v.null() {
		counted = true
		if name != DefaultProfile {
			r.fault(v, "all rewards share the workers: write reward.num_workers")
		} else if n, ok := r.integer(v, 0, 4096); ok {
			c.NumWorkers = n
		}
	}
	if v, ok := o.take("aggregation"); ok && !v.null() {
		var words []string
		for _, a := range rewards.Aggregations() {
			words = append(words, string(a))
		}
		if s, ok := r.choice(v, words); ok {
			p.Aggregation = rewards.Aggregation(s)
		}
	}
	if v, ok := o.take("on_sample_failure"); ok && !v.null() {
		if s, ok := r.scalar(v, "none, zero, group_mean or value:<number>"); ok {
			policy, err := rewards.ParseSamplePolicy(s)
			if err != nil {
				r.fault(v, "%v", err)
			}
			p.OnSampleFailure = policy
		}
	}
	if v, ok := o.take("compute_score_kwargs"); ok && len(r.mapping(v).rest()) > 0 {
		r.fault(v, "verl's choice of a function by data_source is not built in; name the function that makes the choice in custom_reward_function, "+
			"such as path: pkg://verl.utils.reward_score with name: default_compute_score, and write these as its reward_kwargs")
		r.incomplete = true
	}
	p.Concurrency = r.concurrency(o)
	r.models(c, p, o)
	r.byName = len(p.Models) > 0
	single, singlePath := r.customFunction(c, o)
	several, severalPath := r.functions(c, o)
	switch {
	case single != nil && several != nil:
		p.Single = true
		r.faultAt(singlePath, "and %s are both given; keep one (for several rewards write _multi_reward_placeholder as name here, or leave it out)", severalPath)
	case single != nil:
		p.Single, p.Components = len(single) == 1, single
	default:
		p.Components = several
	}
	manager := r.managerSection(o, several != nil, severalPath)
	r.bindModels(p)
	r.rewardModel(c, p, o)
	if name == DefaultProfile && !counted {
		c.NumWorkers = c.workersOf(p)
	}
	r.overlong(p, o, manager)
	r.routeBy(p, o)
	r.verify(p, o, c.Loop.ClaimTimeout)
	r.sandbox(p, o)
	o.refuseRest(sectionNames().visible())
	if single == nil && several == nil {
		return nil
	}
	r.checkPostProcess(p, severalPath)
	r.checkSteps(p)
	r.checkWeights(p, severalPath)
	r.noteDifferences(p, v.path)
	return p
}

// checkWeights holds the sum of weights against the aggregation.
func (r *reader) checkWeights(p *Profile, path string) {
	if p.Single || p.Aggregation != rewards.WeightedSum && p.Aggregation != rewards.WeightedMean {
		return
	}
	var sum float64
	for _, t := range p.Components {
		sum += t.Weight
	}
	if sum <= 0 {
		r.faultAt(path, "the weights sum to %v; %s needs a positive sum", sum, p.Aggregation)
	}
}

// customFunction reads custom_reward_function: one component, or nil for none and for
// verl-omni's placeholder, or two for a class that works on finished groups as well. The
// path is where it was read.
func (r *reader) customFunction(c *Config, parent *object) (components []ComponentConfig, at string) {
	v, ok := parent.take("custom_reward_function")
	if !ok || v.null() {
		return nil, v.path
	}
	o := r.mapping(v)
	pathValue, hasPath := o.take("path")
	nameValue, hasName := o.take("name")
	ignored := hasName && nameValue.node.Value == placeholder
	t := ComponentConfig{Weight: 1, Required: true, Scale: 1, Timeout: c.Loop.ComponentTimeout, Place: r.place(pathValue.node)}
	r.common(o, &t, c.Loop.ClaimTimeout)
	if v, ok := o.take("steps"); ok && !v.null() {
		t.Steps, _ = r.boolean(v)
	}
	own := takePython(o, true)
	own.form.signature, _ = o.take(signatureKey)
	own.form.reference, _ = o.take("reference")
	threads, _ := o.take("max_concurrency")
	accepted, _ := o.take(acceptKey)
	kwargs, hasKwargs := o.take("reward_kwargs")
	var options []entry
	if hasKwargs {
		options = r.mapping(kwargs).rest()
		r.options(&t, kwargs.path, options)
	}
	o.refuseRest(sectionNames("custom_reward_function").visible())
	if ignored || !hasPath || pathValue.null() {
		if t.Options != nil {
			r.fault(kwargs, "has no effect: custom_reward_function has no path")
			r.incomplete = true
		}
		return nil, v.path
	}
	r.scorer(&t, pathValue, nameValue)
	r.share(&t, options)
	r.licence(&t, pathValue, accepted)
	r.python(&t, own)
	r.noteFetches(&t, pathValue, options)
	r.agent(&t, threads)
	if t.Scorer == PythonScorer && !t.catalogued() {
		t.AgentConcurrency = agentConcurrency
	}
	t.Key = t.Scorer
	if t.Scorer == PythonScorer && t.Signature == "" && hasMethod(t.Path, t.Function, postProcessMethod) {
		r.note(nameValue, t.Function+"."+postProcessMethod+" is called with finished groups and returns the reward")
		return splitAgent(t), v.path
	}
	return []ComponentConfig{t}, v.path
}

// functions reads reward_functions: its components in the order of the file, nil
// where there are none.
func (r *reader) functions(c *Config, parent *object) (components []ComponentConfig, at string) {
	v, ok := parent.take("reward_functions")
	if !ok {
		return nil, v.path
	}
	for _, e := range r.mapping(v).rest() {
		if e.name == "" || strings.ContainsAny(e.name, "/ \t\n") {
			r.fault(e.value, "%q cannot name a reward: want a word without slashes or spaces", shorten(e.name))
		}
		components = append(components, r.function(c, e))
	}
	return components, v.path
}

func (r *reader) function(c *Config, e entry) ComponentConfig {
	o := r.mapping(e.value)
	t := ComponentConfig{Key: e.name, Weight: 1, Scale: 1, Timeout: c.Loop.ComponentTimeout, Place: r.place(e.node)}
	if _, made := r.origin[e.node]; !made {
		t.Place = r.place(e.key)
	}
	if v, ok := o.take("weight"); ok && !v.null() {
		if w, ok := r.number(v); ok {
			t.Weight = w
		}
	}
	var typed keys.Set
	entryKeys(&typed, &t)
	r.decodeKeys(o, &typed)
	if v, ok := o.take("on_failure"); ok && !v.null() {
		if s, ok := r.scalar(v, "group_mean, fail, zero or value:<number>"); ok {
			policy, err := rewards.ParseComponentPolicy(s)
			if err != nil {
				r.fault(v, "%v", err)
			}
			t.OnFailure = policy
		}
		if t.Required {
			r.fault(v, "has no effect with required: true; leave one of them out")
		}
	}
	r.common(o, &t, c.Loop.ClaimTimeout)
	if v, ok := o.takeSwitch("steps"); ok { // a list is the judge's
		t.Steps, _ = r.boolean(v)
	}
	if r.byName {
		if v, ok := o.take("model"); ok && !v.null() {
			t.Model, _ = r.text(v)
		}
	}
	pathValue, ok := o.take("path")
	own := takePython(o, ok && pathValue.node != nil && isPython(pathValue.node.Value))
	nameValue, _ := o.take("name")
	if post, has := o.take("post_process"); has && !post.null() {
		r.postProcess(&t, o, post, ok && !pathValue.null())
		if !nameValue.null() {
			r.fault(nameValue, "has no effect with post_process; leave it out")
		}
		r.python(&t, own)
		return t
	}
	switch {
	case !ok && (r.incomplete || e.node.Kind != yaml.MappingNode && !e.null()):
	case !ok || pathValue.null():
		r.fault(e.value, "has no path: write builtin:// and the name of a scorer, or a Python file")
	default:
		r.scorer(&t, pathValue, nameValue)
		own.form = takeForm(o, &t)
		if t.catalogued() { // else it is an option of the scorer
			accepted, _ := o.take(acceptKey)
			r.licence(&t, pathValue, accepted)
		}
		r.python(&t, own)
	}
	options := o.rest()
	r.noteFetches(&t, pathValue, options)
	r.options(&t, e.path, options)
	r.share(&t, options)
	return t
}

// common reads what every component may say. Longest is how
// long a worker may keep a sample.
func (r *reader) common(o *object, t *ComponentConfig, longest time.Duration) {
	var typed keys.Set
	functionKeys(&typed, t)
	r.decodeKeys(o, &typed)
	if at := o.path + ".timeout"; t.Timeout > longest && r.places[at] != (Place{}) {
		r.faultAt(at, "want at most %s, which is loop.claim_timeout", keys.FormatDuration(longest))
	}
	t.Concurrency = r.concurrency(o)
	r.transform(o, t)
	if v, ok := o.take("invalid_values"); ok {
		for _, item := range r.list(v) {
			if x, ok := r.number(item); ok {
				t.InvalidValues = append(t.InvalidValues, x)
			}
		}
	}
}

// scorer reads path and name. With builtin:// the path says all, and a name can
// only be what a recipe of verl-omni left behind; in Python it is the function.
func (r *reader) scorer(t *ComponentConfig, pathValue, nameValue value) {
	p, ok := r.text(pathValue)
	if !ok {
		return
	}
	t.Path, t.pathAt = p, r.place(pathValue.node)
	if isPython(p) {
		t.Scorer = PythonScorer
		r.pythonPath(t, pathValue, nameValue)
		return
	}
	if isHTTP(p) {
		r.httpPath(t, pathValue, nameValue)
		return
	}
	if strings.HasPrefix(p, onnxScheme) {
		r.onnxPath(t, pathValue, nameValue)
		return
	}
	if problem := wrongPath(p); problem != "" {
		r.fault(pathValue, "%s", problem)
		return
	}
	t.Scorer = strings.TrimPrefix(p, "builtin://")
	switch t.Scorer {
	case PythonScorer:
		r.fault(pathValue, "write the Python file itself, such as my_reward.py, or pkg:// and the name of a module")
		return
	case HTTPScorer:
		r.fault(pathValue, "write the address itself, such as http://127.0.0.1:18082")
		return
	case onnxScorer:
		r.fault(pathValue, "write the model itself, such as onnx:///data/models/hpsv3")
		return
	}
	if t.Scorer == "" || strings.ContainsAny(t.Scorer, "/?# \t\n") {
		r.fault(pathValue, "want builtin:// and the name of a scorer, got %q", shorten(p))
	}
	if nameValue.null() {
		return
	}
	name, ok := r.text(nameValue)
	switch {
	case !ok:
	case strings.HasPrefix(name, "compute_score"):
		r.note(nameValue, "has no effect with "+p)
	default:
		r.fault(nameValue, "%s holds no function %q; leave name out", p, shorten(name))
	}
}

// options are the keys of a component that its scorer reads itself, which stand below key.
func (r *reader) options(t *ComponentConfig, key string, entries []entry) {
	t.optionsKey, t.optionsAt = key, make(map[string]Place, len(entries))
	for _, e := range entries {
		t.optionsAt[e.name] = r.keyPlace(e)
	}
	t.Options, t.shown = r.object(entries)
}

// object turns keys into a JSON object; shown is the same without secrets.
func (r *reader) object(entries []entry) (options, shown json.RawMessage) {
	if len(entries) == 0 {
		return nil, nil
	}
	raw, masked := map[string]any{}, map[string]any{}
	for _, e := range entries {
		v, ok := r.json(e.value)
		if !ok {
			return nil, nil
		}
		raw[e.name] = v
		masked[e.name] = shownOptions{r: r}.of(e.name).value(e.name, e.value, v)
	}
	return encode(raw), encode(masked)
}

// managerSection reads reward_manager. Which manager works follows from the
// functions; the section may say the same, or is a fault. It returns the name.
func (r *reader) managerSection(parent *object, several bool, functions string) (name string) {
	v, ok := parent.take("reward_manager")
	if !ok || v.null() {
		return ""
	}
	o := r.mapping(v)
	_, _ = o.take("_target_")
	if v, ok := o.take("source"); ok && !v.null() {
		r.choice(v, []string{"register", "importlib"})
	}
	if v, ok := o.take("name"); ok && !v.null() {
		if s, ok := r.text(v); ok {
			name = s
			r.managerName(v, s, several, functions)
		}
	}
	if v, ok := o.take("module"); ok && !v.null() {
		m := r.mapping(v)
		_, _ = m.take("_target_")
		const ours = "pkg://verl_omni.reward_loop.reward_manager"
		if v, ok := m.take("path"); ok && !v.null() {
			if s, ok := r.text(v); ok && s != ours && !strings.HasPrefix(s, ours+".") {
				r.fault(v, "custom reward managers are not supported; leave the key out and combine functions with reward_functions")
			}
		}
		if v, ok := m.take("name"); ok && !v.null() {
			if s, ok := r.text(v); ok && !slices.Contains([]string{"custom_reward_manager", "VisualRewardManager", "MultiVisualRewardManager"}, s) {
				r.fault(v, "unknown reward manager %q; leave the key out", shorten(s))
			}
		}
		m.refuseRest(sectionNames("reward_manager", "module").visible())
	}
	o.refuseRest(sectionNames("reward_manager").visible())
	return name
}

func (r *reader) managerName(v value, name string, several bool, functions string) {
	switch name {
	case "MultiVisualRewardManager":
		if !several && !r.incomplete {
			r.fault(v, "MultiVisualRewardManager needs %s", functions)
		}
	case "VisualRewardManager", "naive", dapo:
		if several {
			r.fault(v, "%s scores one function, and %s names several; write MultiVisualRewardManager, or leave reward_manager out", name, functions)
		}
	default:
		r.fault(v, "the reward manager %q is not built in; leave reward_manager out: rewardloop handles one function or several without a manager", shorten(name))
	}
}

// dapo is verl's manager that adds a penalty for responses near their limit.
const dapo = "dapo"

// overlong reads reward_kwargs, where verl's dapo manager has its penalty.
func (r *reader) overlong(p *Profile, parent *object, manager string) {
	v, ok := parent.take("reward_kwargs")
	if !ok || v.null() {
		return
	}
	o := r.mapping(v)
	c := &Overlong{PenaltyFactor: 1}
	maxLen, _ := o.take("max_resp_len")
	if !maxLen.null() {
		c.MaxRespLen, _ = r.integer(maxLen, 1, math.MaxInt32)
	}
	buffer, _ := o.take("overlong_buffer_cfg")
	var enabled bool
	var inner keys.Set
	c.bufferKeys(&inner, &enabled)
	below := r.mapping(buffer)
	r.decodeKeys(below, &inner)
	below.refuseRest(inner.Names())
	o.refuseRest(sectionNames("reward_kwargs?").visible())
	switch {
	case !enabled:
	case manager != dapo:
		r.fault(buffer, "only the dapo manager adds the penalty: write reward_manager.name=dapo")
	case c.MaxRespLen == 0:
		r.fault(v, "has no max_resp_len, the longest response in tokens")
	case c.Len < 1 || c.Len > c.MaxRespLen:
		r.fault(buffer, "want a length (len) from 1 to max_resp_len (%d) tokens, got %d", c.MaxRespLen, c.Len)
	default:
		p.Overlong = c
	}
}

// bufferKeys are verl's overlong_buffer_cfg.
func (o *Overlong) bufferKeys(k *keys.Set, enable *bool) {
	k.Bool(enable, "enable", "Turns the penalty for overlong responses on.")
	k.Int(&o.Len, "len", 0, "Number of tokens below max_resp_len over which the penalty grows linearly from 0 to penalty_factor.")
	k.Float(&o.PenaltyFactor, "penalty_factor", 1, "Penalty that is subtracted from the score of a response of max_resp_len tokens. A longer response gets a larger penalty.")
	k.Bool(&o.Log, "log", "Adds the columns overlong_reward and overlong to the reward_extra_info of each sample.")
}

// sandbox reads sandbox_fusion, which without an address has no effect.
func (r *reader) sandbox(p *Profile, parent *object) {
	v, ok := parent.take("sandbox_fusion")
	if !ok || v.null() {
		return
	}
	o := r.mapping(v)
	_, _ = o.take("_target_")
	at, _ := o.take("url")
	on := !at.null()
	options := map[string]any{}
	if on {
		s, _ := r.text(at)
		if u, err := url.Parse(s); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			r.fault(at, "want an address such as http://127.0.0.1:8080/run_code, got %q", shorten(s))
		}
		options["url"] = s
	}
	for _, name := range []string{"max_concurrent", "memory_limit_mb"} {
		if v, ok := o.take(name); ok && !v.null() {
			n, ok := r.integer(v, 1, math.MaxInt32)
			options[name] = n
			if ok && !on {
				r.note(v, "has no effect: sandbox_fusion has no url")
			}
		}
	}
	o.refuseRest(sectionNames("sandbox_fusion").visible())
	if on {
		p.Sandbox = encode(options)
		options["url"] = shownOptions{r: r}.text("url", at.node, at.node.Value)
		p.shownSandbox = encode(options)
	}
}
