package config

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/internal/redact"
	"github.com/rewardloop/rewardloop/rewards"
)

// Print writes the configuration as an equivalent file, with every default and a comment for every
// setting. The output contains no secrets: an address is reduced to scheme, host and path; an
// option from the environment is written as its ${oc.env:…}; and a text that may be a secret is
// written as ***. These are options with the name of a secret, and the options of scorers that are
// not part of rewardloop.
func (c *Config) Print(w io.Writer) error {
	p := &printer{w: bufio.NewWriter(w)}
	p.line(0, "# The reward of samples that do not choose a reward by name; rewards below has the others.")
	p.line(0, "reward:")
	p.comment(1, "Reward-loop workers of this process.")
	p.line(1, "num_workers: %d", c.NumWorkers)
	if d, ok := c.Profiles[DefaultProfile]; ok {
		p.profile(1, d)
		p.shared(1, c, d)
	}
	named := slices.DeleteFunc(slices.Sorted(maps.Keys(c.Profiles)), func(n string) bool { return n == DefaultProfile })
	if len(named) > 0 {
		p.line(0, "")
		p.line(0, "# Rewards chosen by name.")
		p.line(0, "rewards:")
		for _, n := range named {
			p.line(1, "%s:", quote(n))
			p.profile(2, c.Profiles[n])
			p.shared(2, c, c.Profiles[n])
		}
	}
	p.engines(c)
	for _, s := range c.sections() {
		p.line(0, "")
		p.section(0, s)
	}
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("printing the configuration: %w", err)
	}
	return nil
}

// printer writes lines; its writer remembers the first error.
type printer struct{ w *bufio.Writer }

func (p *printer) line(depth int, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if text != "" {
		text = strings.Repeat("  ", depth) + text
	}
	_, _ = p.w.WriteString(text + "\n") // Flush reports it
}

func (p *printer) comment(depth int, text string) { p.line(depth, "# %s", text) }

func (p *printer) section(depth int, s *keys.Section) {
	p.comment(depth, s.Doc)
	p.line(depth, "%s:", s.Name)
	p.keys(depth+1, s.Keys)
	for _, below := range s.Sections {
		p.section(depth+1, below)
	}
}

func (p *printer) keys(depth int, list []*keys.Key) {
	for _, k := range list {
		p.comment(depth, k.Doc)
		p.line(depth, "%s: %s", k.Name, show(k.Value()))
	}
}

func (p *printer) profile(depth int, r *Profile) {
	p.comment(depth, concurrencyDoc)
	p.line(depth, "concurrency: %s", showConcurrency(r.Concurrency))
	if r.Single {
		for _, t := range r.Components {
			p.line(depth, "custom_reward_function:")
			p.line(depth+1, "path: %s", quote(t.ShownPath()))
			p.python(depth+1, t)
			p.component(depth+1, t)
			if t.shown != nil {
				p.line(depth+1, "reward_kwargs: %s", printable(t.shown))
			}
		}
	} else {
		p.line(depth, "reward_functions:")
		for _, t := range r.Components {
			p.line(depth+1, "%s:", quote(t.Key))
			if t.PostProcess != "" {
				p.line(depth+2, "post_process: %s", quote(t.PostProcess))
			} else {
				p.line(depth+2, "path: %s", quote(t.ShownPath()))
			}
			if t.Model != "" {
				p.line(depth+2, "model: %s", quote(t.Model))
			}
			p.python(depth+2, t)
			p.line(depth+2, "weight: %v", t.Weight)
			p.line(depth+2, "required: %v", t.Required)
			if !t.Required {
				p.onFailure(depth+2, t.OnFailure)
			}
			p.component(depth+2, t)
			p.options(depth+2, t.shown)
		}
		p.comment(depth, "weighted_sum, weighted_mean, min, max or product.")
		p.line(depth, "aggregation: %s", r.Aggregation)
	}
	p.comment(depth, "Fallback for a failed sample, in addition to the null score: none, zero, group_mean or value:<number>.")
	p.line(depth, "on_sample_failure: %s", policy(r.OnSampleFailure.Policy, r.OnSampleFailure.Value))
}

// shared is what a profile says for all its components.
func (p *printer) shared(depth int, c *Config, r *Profile) {
	p.models(depth, c, r)
	p.rewardModel(depth, c.Engines[r.Engine], r)
	if o := r.Overlong; o != nil {
		p.comment(depth, "verl's dapo manager adds a penalty for overlong responses.")
		p.line(depth, "reward_manager: {name: dapo}")
		p.line(depth, "reward_kwargs:")
		p.line(depth+1, "max_resp_len: %d", o.MaxRespLen)
		p.line(depth+1, "overlong_buffer_cfg: {enable: true, len: %d, penalty_factor: %v, log: %v}", o.Len, o.PenaltyFactor, o.Log)
	}
	if r.RouteBy != "" && r.RouteBy != "data_source" {
		p.line(depth, "reward_fn_key: %s", quote(r.RouteBy))
	}
	if r.GroupByPrompt {
		p.line(depth, "group_by: prompt")
	}
	if len(r.Verify) > 0 {
		p.comment(depth, "Tools that check a sample before scoring; scorers get the results as extra_info.verified_results.")
		p.line(depth, "verify:")
		for _, v := range r.Verify {
			p.line(depth+1, "%s:", quote(v.Key))
			p.line(depth+2, "kind: %s", v.Kind)
			p.line(depth+2, "required: %v", v.Required)
			p.line(depth+2, "timeout: %s", keys.FormatDuration(v.Timeout))
			p.options(depth+2, v.shown)
		}
	}
	if r.Sandbox != nil {
		p.line(depth, "sandbox_fusion: %s", printable(r.shownSandbox))
	}
}

// rewardModel is a profile's engine, which may be nil, with its cards and its profiler.
func (p *printer) rewardModel(depth int, e *Engine, r *Profile) {
	cards := r.Cards
	if e == nil && cards.PerNode == 0 && r.Profiler == nil {
		return
	}
	p.line(depth, "reward_model:")
	p.line(depth+1, "enable: %v", e != nil)
	if cards.PerNode > 0 {
		p.comment(depth+1, "GPUs of each machine for models with device: cuda, and the number of machines.")
		p.line(depth+1, "enable_resource_pool: true")
		p.line(depth+1, "n_gpus_per_node: %d", cards.PerNode)
		p.line(depth+1, "nnodes: %d", cards.Nodes)
	}
	if e == nil {
		if r.Profiler != nil {
			p.line(depth+1, "rollout:")
			p.profiler(depth+2, r.Profiler)
		}
		return
	}
	p.line(depth+1, "model_path: %s", quote(e.Model))
	p.line(depth+1, "rollout:")
	p.profiler(depth+2, r.Profiler)
	if e.ONNX != "" {
		p.line(depth+2, "name: onnx")
		p.device(depth+2, e)
		return
	}
	if e.Managed != nil {
		p.managed(depth+2, e, false)
		return
	}
	p.line(depth+2, "name: external")
	if e.Parallel != (Parallel{Tensor: defaultTensor, Pipeline: 1, Data: 1}) {
		p.comment(depth+2, "GPUs of one server. rewardloop starts no server.")
		for i, n := range []int{e.Parallel.Tensor, e.Parallel.Pipeline, e.Parallel.Data} {
			p.line(depth+2, "%s: %d", parallelKeys()[i], n)
		}
	}
	p.engine(depth+2, e)
}

// profiler is how an engine or Python rewards are profiled; nil: they are not.
func (p *printer) profiler(depth int, f *Profiler) {
	if f != nil {
		p.line(depth, "profiler: {enable: true, tool: %s, all_ranks: %v, ranks: %s, steps: %s, save_path: %s}", f.Tool, f.All, encode(f.Ranks), encode(f.Steps), quote(f.SavePath))
	}
}

// device is where a model runs.
func (p *printer) device(depth int, e *Engine) {
	p.line(depth, "device: %s", quote(e.Device))
	if e.Fraction > 0 {
		p.line(depth, "fraction: %v", e.Fraction)
	}
}

// engines prints the section engines; those of reward models stand beside their rewards.
func (p *printer) engines(c *Config) {
	header := false
	for _, name := range c.EngineNames() {
		e := c.Engines[name]
		if strings.HasPrefix(name, rewardModelEngine) { // reward_model and reward_models
			continue
		}
		if !header {
			p.line(0, "")
			p.line(0, "# Servers that judges call.")
			p.line(0, "engines:")
			header = true
		}
		p.line(1, "%s:", quote(name))
		if e.ONNX != "" {
			p.line(2, "onnx: %s", quote(e.ONNX))
			p.device(2, e)
			continue
		}
		p.line(2, "model: %s", quote(e.Model))
		p.engine(2, e)
	}
}

func (p *printer) engine(depth int, e *Engine) {
	urls := make([]string, len(e.URLs))
	for i, u := range e.URLs {
		urls[i] = redact.URL(u)
	}
	p.line(depth, "base_urls: %s", printable(encode(urls)))
	p.keys(depth, e.described().Keys)
}

func (p *printer) onFailure(depth int, f rewards.ComponentPolicy) {
	if f.Policy == "" {
		p.comment(depth, "on_failure: group_mean for a sample that has a prompt group, else fail.")
		return
	}
	p.line(depth, "on_failure: %s", policy(f.Policy, f.Value))
}

func (p *printer) python(depth int, t ComponentConfig) {
	if t.Scorer != PythonScorer {
		return
	}
	if t.entry == nil {
		p.line(depth, "name: %s", quote(t.Function))
		p.line(depth, "pixels: %s", t.Pixels)
	}
	if t.Frames != "" {
		p.line(depth, "frames: %s", t.Frames)
	}
	if t.accepted != "" {
		p.line(depth, acceptKey+": %s", quote(t.accepted))
	}
	if t.ExtraKeys != nil && t.entry == nil {
		p.line(depth, "extra_keys: %s", printable(encode(t.ExtraKeys)))
	}
	if t.MemoryBytes > 0 {
		p.line(depth, "memory: %s", keys.FormatSize(t.MemoryBytes))
	}
	if t.Env != nil {
		p.line(depth, "env: %s", printable(encode(t.Env)))
	}
	if t.Interpreter != "" {
		p.line(depth, "interpreter: %s", quote(t.Interpreter))
	}
	if !t.ownEnvironment {
		p.environment(depth, t.Environment)
	}
	if t.Signature != "" {
		p.line(depth, "signature: %s", t.Signature)
	}
	if t.Reference != "" {
		p.line(depth, "reference: %s", quote(t.Reference))
	}
	p.placement(depth, t)
	if t.Probe != nil {
		p.comment(depth, "Known samples with which the function is called at start: image, video, text; none with []. Left out: chosen by the function's parameters.")
		p.line(depth, "probe: %s", printable(encode(t.Probe)))
	}
}

// environment shows what the Python environment of a function is made of.
func (p *printer) environment(depth int, e *pyenv.Spec) {
	if e == nil {
		return
	}
	p.line(depth, "environment:")
	if e.Python != "" {
		p.line(depth+1, "python: %s", quote(e.Python))
	}
	switch {
	case e.File != "":
		p.line(depth+1, "requirements: %s", quote(e.File))
	case e.Requirements != "":
		lines := strings.Split(strings.TrimSuffix(redact.Text(e.Requirements), "\n"), "\n")
		p.line(depth+1, "requirements: %s", printable(encode(lines)))
	}
	p.line(depth+1, "system_site_packages: %v", e.SystemSitePackages)
}

// placement shows how a model in Python runs.
func (p *printer) placement(depth int, t ComponentConfig) {
	m := t.Placement
	if m == nil {
		return
	}
	p.line(depth, "devices: %s", printable(encode(m.Devices)))
	if m.Fraction > 0 {
		p.line(depth, "fraction: %v", m.Fraction)
	}
	wait := auto
	if m.BatchWait != nil {
		wait = fmt.Sprint(*m.BatchWait)
	}
	if !t.grouped() {
		p.line(depth, "batch_wait_timeout_s: %s", wait)
	}
	var s keys.Set
	m.Keys(&s)
	p.keys(depth, slices.DeleteFunc(s.Keys, func(k *keys.Key) bool {
		return k.Field == nil || t.grouped() && slices.Contains(batchKeys(), k.Name)
	}))
}

func (p *printer) component(depth int, t ComponentConfig) {
	p.line(depth, "timeout: %s", keys.FormatDuration(t.Timeout))
	p.line(depth, "retries: %d", t.Retries)
	p.line(depth, "concurrency: %s", showConcurrency(t.Concurrency))
	if len(t.When) > 0 {
		p.line(depth, "when: %s", printable(encode(t.When)))
	}
	if t.Clip != nil {
		p.line(depth, "clip: %s", encode(t.Clip))
	}
	if t.Scale != 1 {
		p.line(depth, "scale: %v", t.Scale)
	}
	if t.Steps {
		p.comment(depth, "The scorer returns a score for each step.")
		p.line(depth, "steps: true")
	}
	if t.MinMembers != 0 {
		p.line(depth, "min_members: %s", minMembers(t.MinMembers))
	}
	if len(t.InvalidValues) > 0 {
		p.line(depth, "invalid_values: %s", encode(t.InvalidValues))
	}
}

// options writes one key a line; JSON is YAML.
func (p *printer) options(depth int, shown json.RawMessage) {
	var m map[string]json.RawMessage
	if shown == nil || json.Unmarshal(shown, &m) != nil {
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		p.line(depth, "%s: %s", quote(k), printable(m[k]))
	}
}

func policy(p rewards.Policy, v float64) string {
	if p == rewards.PolicyValue {
		return fmt.Sprintf("value:%v", v)
	}
	return string(p)
}

// quote writes text as a YAML scalar: plain where that is beyond doubt, else in
// double quotes.
func quote(s string) string {
	plain := s != ""
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 && r != '/' || !strings.ContainsRune("0123456789_-./+", r)) {
			plain = false
			break
		}
	}
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		plain = false
	}
	if plain {
		return s
	}
	return printable(encode(s))
}

// printable is JSON as YAML takes it: the same, but for control characters that
// JSON leaves as they are.
func printable(raw json.RawMessage) string {
	var b strings.Builder
	for _, c := range string(raw) {
		if c >= 0x7f && c < 0xa0 || c == 0xfeff || c == 0xfffe || c == 0xffff || c == 0x2028 || c == 0x2029 {
			fmt.Fprintf(&b, `\u%04x`, c)
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}
