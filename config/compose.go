package config

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/verify"
)

// This file reads what makes one reward of several: which components are for a sample, what
// becomes of their values, and what is found out before.

// transform reads when, clip, scale and min_members.
func (r *reader) transform(o *object, t *ComponentConfig) {
	if v, ok := o.take("when"); ok && !v.null() {
		for _, item := range r.list(v) {
			if s, ok := r.text(item); ok {
				t.When = append(t.When, s)
			}
		}
		if len(t.When) == 0 {
			r.fault(v, "want the values of reward_fn_key for which the component is used, such as [ocr, geneval]")
		}
	}
	if v, ok := o.take("clip"); ok && !v.null() {
		var bounds []float64
		for _, item := range r.list(v) {
			if x, ok := r.number(item); ok {
				bounds = append(bounds, x)
			}
		}
		if len(bounds) != 2 || bounds[0] > bounds[1] {
			r.fault(v, "want the least and the largest value, such as [-1, 1]")
		} else {
			t.Clip = &[2]float64{bounds[0], bounds[1]}
		}
	}
	if v, ok := o.take("scale"); ok && !v.null() {
		if x, ok := r.number(v); ok && x != 0 {
			t.Scale = x
		} else if ok {
			r.fault(v, "want a number other than 0: with 0 all samples get the same score")
		}
	}
	if v, ok := o.take("min_members"); ok && !v.null() {
		if v.node.Value == "all" {
			t.MinMembers = rewards.WholeGroup
		} else if n, ok := r.integer(v, 1, 65536); ok {
			t.MinMembers = n
		}
	}
}

// routeBy reads reward_fn_key, verl's name for the column that chooses a reward.
func (r *reader) routeBy(p *Profile, parent *object) {
	p.RouteBy = "data_source"
	if v, ok := parent.take("group_by"); ok && !v.null() {
		s, _ := r.choice(v, []string{"uid", "prompt"})
		p.GroupByPrompt = s == "prompt"
	}
	v, ok := parent.take("reward_fn_key")
	if !ok || v.null() {
		return
	}
	s, ok := r.text(v)
	if !ok {
		return
	}
	if s != "data_source" && (!strings.HasPrefix(s, "extra_info.") || len(s) == len("extra_info.")) {
		r.fault(v, "want data_source or extra_info.<name>, got %q", shorten(s))
		return
	}
	p.RouteBy = s
}

// verify reads the tools that look at a sample before it is scored.
func (r *reader) verify(p *Profile, parent *object, longest time.Duration) {
	v, ok := parent.take("verify")
	if !ok {
		return
	}
	for _, e := range r.mapping(v).rest() {
		o := r.mapping(e.value)
		c := VerifyConfig{Key: e.name, Required: true, Timeout: verify.DefaultTimeout, Place: r.place(e.key)}
		if made, ok := r.origin[e.node]; ok {
			c.Place = made
		}
		if v, ok := o.take("kind"); !ok || v.null() {
			r.fault(e.value, "has no kind: write %s", strings.Join(verifyKinds(), ", "))
		} else if s, ok := r.choice(v, verifyKinds()); ok {
			c.Kind = s
		}
		if v, ok := o.take("required"); ok && !v.null() {
			if b, ok := r.boolean(v); ok {
				c.Required = b
			}
		}
		if v, ok := o.take("timeout"); ok && !v.null() {
			if d, ok := r.duration(v, time.Millisecond, keys.Longest); ok {
				c.Timeout = d
				if d > longest {
					r.fault(v, "want at most %s, which is loop.claim_timeout", keys.FormatDuration(longest))
				}
			}
		}
		c.Options, c.shown = r.object(o.rest())
		p.Verify = append(p.Verify, c)
	}
}

func verifyKinds() []string {
	var out []string
	for _, s := range verify.Specs() {
		out = append(out, s.Name)
	}
	return out
}

// minMembers is how min_members is written.
func minMembers(n int) string {
	if n == rewards.WholeGroup {
		return "all"
	}
	return strconv.Itoa(n)
}

// postProcess reads a component that is what a Python class makes of another component's values.
func (r *reader) postProcess(t *ComponentConfig, o *object, v value, hasPath bool) {
	t.PostProcess, _ = r.text(v)
	if t.MinMembers == 0 {
		t.MinMembers = 1 // the class is asked about every group that is finished
	}
	if hasPath {
		r.fault(v, "needs no path: the class is that of the component %q; leave path out", shorten(t.PostProcess))
	}
	for _, e := range o.rest() {
		r.fault(e.value, "has no effect with post_process; leave it out")
	}
}

// givesSteps reports whether the component's scorer gives step scores, as the file has it.
func (t ComponentConfig) givesSteps() bool {
	var o struct{ Steps []any }
	return t.Steps || t.Scorer != PythonScorer && json.Unmarshal(t.Options, &o) == nil && len(o.Steps) > 0
}

// checkSteps holds the components that give step scores against the aggregation, and their
// scorers.
func (r *reader) checkSteps(p *Profile) {
	for _, t := range p.Components {
		at := p.key(t) + ".steps"
		if p.Single && !t.Steps {
			at = p.key(t) + ".reward_kwargs.steps"
		}
		switch {
		case t.Steps && (t.PostProcess != "" || t.grouped() || t.Scorer == HTTPScorer || t.Scorer == onnxScorer):
			r.faultAt(at, "%s returns one score for the whole response; leave steps out", cmp.Or(t.Scorer, "post_process"))
		case t.givesSteps():
			if err := p.Aggregation.Stepless(); err != nil {
				r.faultAt(at, "the scorer returns step scores: %v", err)
			}
		}
	}
}

// checkPostProcess holds post_process against the components.
func (r *reader) checkPostProcess(p *Profile, path string) {
	for _, t := range p.Components {
		if t.PostProcess == "" {
			continue
		}
		at := path + "." + t.Key + ".post_process"
		i := slices.IndexFunc(p.Components, func(o ComponentConfig) bool { return o.Key == t.PostProcess })
		switch {
		case i < 0:
			r.faultAt(at, "there is no component %q", shorten(t.PostProcess))
		case p.Components[i].Scorer != PythonScorer:
			r.faultAt(at, "the component %q is not a Python class", shorten(t.PostProcess))
		case p.Components[i].grouped():
			r.faultAt(at, "the component %q scores whole groups itself", shorten(t.PostProcess))
		case p.Components[i].Required:
			r.noteAt(r.places[at], at, "a member for which "+t.PostProcess+" fails is left out, because that component is required; without required the class gets NaN for the member")
		}
	}
}
