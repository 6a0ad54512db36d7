package preference

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
)

// The values of the options named formula.
const (
	formulaFlowGRPO = "flow_grpo"
	formulaPaper    = "paper"
	formulaCosine   = "cosine"
	formulaSigmoid  = "sigmoid"
	formulaLogit    = "logit"
)

// Specs describes the scorers for a registry. The scorers of one call share their models and
// caches.
func Specs(d Deps) []rewards.Spec {
	s := &shelf{deps: d, models: make(map[place]*model)}
	all := s.specs()
	for i := range all {
		all[i].Concurrency = localmodel.Concurrency
	}
	return all
}

func (s *shelf) specs() []rewards.Spec {
	pair := func(model string, own ...rewards.Option) []rewards.Option {
		return slices.Concat(baseOptions(model), own, []rewards.Option{frameOption(), rewards.FramesOption("every:4")})
	}
	return []rewards.Spec{
		{
			Name: "pickscore", Summary: "PickScore: predicted human preference between pictures of one prompt (flow_grpo, verl-omni, deepgen)",
			Options: pair(PickScoreModel, rewards.Option{Name: "divisor", Type: "number", Default: "26", Doc: "number that logit_scale·cosine is divided by: 26 as in flow_grpo, 1 for the model's own score"}),
			Build:   s.pickscore,
		},
		{
			Name: "clipscore", Summary: "CLIPScore: similarity of a picture to the prompt (flow_grpo, UniRL, Flow-Factory)",
			Options: pair(CLIPModel, rewards.Option{Name: "formula", Type: "string", Default: formulaFlowGRPO, Doc: "formula: flow_grpo, logit_scale·cosine/30; paper, 2.5·max(cosine, 0); or cosine"}),
			Build:   s.clipscore,
		},
		{
			Name: "hpsv2", Summary: "HPSv2: predicted human preference, the cosine similarity of picture and prompt (flow_grpo, deepgen, DanceGRPO, UniRL)",
			Options: pair(HPSv2Model, rewards.Option{Name: "scale", Type: "number", Default: "1", Doc: "factor of the cosine"}),
			Build:   s.hpsv2,
		},
		{
			Name: "aesthetic", Summary: "LAION's aesthetic predictor: beauty of a picture, about 1 to 10 (ddpo, flow_grpo)",
			Options: pair(AestheticModel, rewards.Option{Name: "scale", Type: "number", Default: "1", Doc: "factor of the model's score"}),
			Build:   s.aesthetic,
		},
		{
			Name: "siglip", Summary: "SigLIP: probability that a picture and its prompt belong together",
			Options: pair(SigLIPModel, rewards.Option{Name: "formula", Type: "string", Default: formulaSigmoid, Doc: "formula: sigmoid (of logit_scale·cosine + logit_bias) or logit (without the sigmoid)"}),
			Build:   s.siglip,
		},
		{
			Name: "image_similarity", Summary: "similarity of a picture and a reference, such as an edit and its source (Flow-Factory)",
			Options: pair(CLIPModel, rewards.Option{Name: "result", Type: "string", Default: resultFirst, Doc: "place of the result among the sample's pictures: first (the reference is the second) or last (the reference is the first)"}),
			Build:   s.similarity,
		},
		{
			Name: "text_rm", Summary: "score of prompt and response by a text reward model (sequence classification)",
			Options: append(baseOptions("none"), templateOption()),
			Build:   s.textRM,
		},
		{
			Name: "onnx", Summary: "score of any reward model that was exported to ONNX with a scorer.json",
			Options: append(baseOptions("none"), templateOption(), frameOption(), rewards.FramesOption("every:4")),
			Build:   s.onnx,
		},
	}
}

// pair makes the scorer of an embedding model; logit: the formula needs logit_scale.
func (s *shelf) pair(o base, f sampling, rate formula, scaled bool) (rewards.Scorer, error) {
	m, err := s.model(o, kindTwoTower, kindCombined)
	if err != nil {
		return nil, err
	}
	if scaled && m.side.LogitScale == nil {
		return nil, fmt.Errorf("model %q: %s has no logit_scale, which the formula needs", o.Model, sidecarFile)
	}
	return &pairScorer{judging: judging{m, o.SelfTest, f}, rate: rate}, nil
}

func (s *shelf) pickscore(raw json.RawMessage) (rewards.Scorer, error) {
	o := struct {
		base
		sampling
		Divisor float64 `json:"divisor"`
	}{defaults(PickScoreModel), everyFourth(), 26}
	if err := decode(raw, &o, o.base.validate, o.sampling.validate, func(f *faults) { f.number("divisor", o.Divisor) }); err != nil {
		return nil, err
	}
	return s.pair(o.base, o.sampling, func(_, logit float64) float64 { return logit / o.Divisor }, true)
}

func (s *shelf) clipscore(raw json.RawMessage) (rewards.Scorer, error) {
	o := struct {
		base
		sampling
		Formula string `json:"formula"`
	}{defaults(CLIPModel), everyFourth(), formulaFlowGRPO}
	if err := decode(raw, &o, o.base.validate, o.sampling.validate, func(f *faults) { f.word("formula", o.Formula, formulaFlowGRPO, formulaPaper, formulaCosine) }); err != nil {
		return nil, err
	}
	rate := func(_, logit float64) float64 { return logit / 30 }
	switch o.Formula {
	case formulaPaper: // J. Hessel et al., "CLIPScore", 2021
		rate = func(cosine, _ float64) float64 { return 2.5 * max(cosine, 0) }
	case formulaCosine:
		rate = func(cosine, _ float64) float64 { return cosine }
	}
	return s.pair(o.base, o.sampling, rate, o.Formula == formulaFlowGRPO)
}

func (s *shelf) hpsv2(raw json.RawMessage) (rewards.Scorer, error) {
	o := struct {
		base
		sampling
		Scale float64 `json:"scale"`
	}{defaults(HPSv2Model), everyFourth(), 1}
	if err := decode(raw, &o, o.base.validate, o.sampling.validate, func(f *faults) { f.number("scale", o.Scale) }); err != nil {
		return nil, err
	}
	return s.pair(o.base, o.sampling, func(cosine, _ float64) float64 { return cosine * o.Scale }, false)
}

func (s *shelf) siglip(raw json.RawMessage) (rewards.Scorer, error) {
	o := struct {
		base
		sampling
		Formula string `json:"formula"`
	}{defaults(SigLIPModel), everyFourth(), formulaSigmoid}
	if err := decode(raw, &o, o.base.validate, o.sampling.validate, func(f *faults) { f.word("formula", o.Formula, formulaSigmoid, formulaLogit) }); err != nil {
		return nil, err
	}
	rate := func(_, logit float64) float64 { return logistic(logit) }
	if o.Formula == formulaLogit {
		rate = func(_, logit float64) float64 { return logit }
	}
	return s.pair(o.base, o.sampling, rate, true)
}

func (s *shelf) aesthetic(raw json.RawMessage) (rewards.Scorer, error) {
	o := struct {
		base
		sampling
		Scale float64 `json:"scale"`
	}{defaults(AestheticModel), everyFourth(), 1}
	if err := decode(raw, &o, o.base.validate, o.sampling.validate, func(f *faults) { f.number("scale", o.Scale) }); err != nil {
		return nil, err
	}
	m, err := s.model(o.base, kindImage)
	if err != nil {
		return nil, err
	}
	return &wholeScorer{judging: judging{m, o.SelfTest, o.sampling}, scale: o.Scale}, nil
}

func (s *shelf) similarity(raw json.RawMessage) (rewards.Scorer, error) {
	o := struct {
		base
		sampling
		Result string `json:"result"`
	}{defaults(CLIPModel), everyFourth(), resultFirst}
	if err := decode(raw, &o, o.base.validate, o.sampling.validate, func(f *faults) { f.word("result", o.Result, resultFirst, resultLast) }); err != nil {
		return nil, err
	}
	m, err := s.model(o.base, kindTwoTower, kindCombined)
	if err != nil {
		return nil, err
	}
	return &similarityScorer{judging: judging{m, o.SelfTest, o.sampling}, result: o.Result}, nil
}

func (s *shelf) textRM(raw json.RawMessage) (rewards.Scorer, error) {
	o := struct {
		base
		Template string `json:"template"`
	}{base: defaults("")}
	if err := decode(raw, &o, o.validate, func(f *faults) { f.template(o.Template) }); err != nil {
		return nil, err
	}
	m, err := s.model(o.base, kindText)
	if err != nil {
		return nil, err
	}
	return &wholeScorer{judging: judging{m, o.SelfTest, everyFourth()}, template: o.Template, scale: 1}, nil
}

func (s *shelf) onnx(raw json.RawMessage) (rewards.Scorer, error) {
	o := struct {
		base
		sampling
		Template string `json:"template"`
	}{base: defaults(""), sampling: everyFourth()}
	if err := decode(raw, &o, o.base.validate, o.sampling.validate, func(f *faults) { f.template(o.Template) }); err != nil {
		return nil, err
	}
	m, err := s.model(o.base, kindGraph, kindImage, kindText)
	if err != nil {
		return nil, err
	}
	if o.Template != "" && m.side.Text == nil {
		return nil, errors.New("template: the model reads no text")
	}
	return &wholeScorer{judging: judging{m, o.SelfTest, o.sampling}, template: o.Template, scale: 1}, nil
}

func (f *faults) template(t string) {
	err := checkTemplate(t)
	f.check(err == nil, "template: %v", err)
}
