package compat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Request is what Protocol.Read is given.
type Request struct {
	// ID begins the ids of the request's samples; no two requests have the same.
	ID string
	// Reward is the reward that the URL names. Empty: the default one, or what the body says.
	Reward string
	// ContentType is the header's, with its parameters; Body has been read whole.
	ContentType string
	Body        []byte
	// Rewards are those that can be asked for.
	Rewards []Reward
	// Limits bound what Read makes of the body.
	Limits Limits
}

// Reward is a reward that can be asked for.
type Reward struct {
	Name  string // empty: the default one
	Extra []wire.ExtraKey
}

// Batch is a request's samples and what becomes of their results.
type Batch struct {
	// Plans has one for each sample of the request, in its order.
	Plans []Plan
	// Whole: one sample without a score leaves the request without an answer, so that
	// the others are given up with the first that is not accepted.
	Whole bool
	// Policy is what stands in for a sample without a score, over the reward's own. Nil: the reward's own.
	Policy *rewards.SamplePolicy
	// Answer makes the reply of the results, which are in the order of the plans.
	Answer func(results []*wire.Result) (Reply, *Fault)
}

// Plan is a sample on its way: what to submit, or why not.
type Plan struct {
	Sample  *rewards.Sample
	Timeout time.Duration // from the arrival of the request; 0: the server's
	Refused *Fault
}

// Refuse makes a sample's plan one that is not submitted. The first reason stays.
func (p *Plan) Refuse(format string, args ...any) {
	if p.Refused == nil {
		p.Refused = Faultf(rewards.BadInput, format, args...)
	}
}

// newPlan makes the plan of a request's sample number i.
func newPlan(req *Request, reward string, i int) Plan {
	return Plan{Sample: &rewards.Sample{ID: fmt.Sprintf("%s-%d", req.ID, i), Reward: reward}}
}

// reward looks up the reward that a request asks for.
func (r *Request) reward() (*Reward, *Fault) { return LookUp(r.Rewards, r.Reward) }

// LookUp finds a reward by its name.
func LookUp(all []Reward, name string) (*Reward, *Fault) {
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
	}
	return nil, Faultf(rewards.UnknownReward, "no reward named %q, want one of %q", strictjson.Clip(name), names(all))
}

// keyOfField is the name under which a reward reports a field, of one of the kinds if they
// are given: by itself, or reward/<key>/<field>. Empty: it does not.
func (r *Reward) keyOfField(field string, kinds ...rewards.FieldKind) string {
	for _, k := range r.Extra {
		if k.Name[strings.LastIndexByte(k.Name, '/')+1:] == field && (kinds == nil || slices.Contains(kinds, k.Kind)) {
			return k.Name
		}
	}
	return ""
}

// reporting are the names of the rewards that report a field.
func reporting(all []Reward, field string, kinds ...rewards.FieldKind) []string {
	able := []string{}
	for i := range all {
		if all[i].keyOfField(field, kinds...) != "" {
			able = append(able, all[i].Name)
		}
	}
	return able
}

// tooMany is the fault of a body with more samples than one request may have.
func (r *Request) tooMany() *Fault {
	return Faultf(rewards.TooLarge, "more than %d samples in one request", r.Limits.Samples)
}

// AsFault is the fault of a body that cannot be read.
func AsFault(err error) *Fault {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f
	}
	return Faultf(rewards.Malformed, "%v", err)
}

// Picture makes the media of an encoded picture by its first bytes; nil for one
// that is none of those that can be decoded.
func Picture(data []byte) *rewards.Media {
	encoding := media.Sniff(data)
	if encoding == "" {
		return nil
	}
	return &rewards.Media{Kind: rewards.Image, Encoding: encoding, DType: "U8", Shape: []int{len(data)}, Data: data}
}
