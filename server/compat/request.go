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

// Request is the input of Protocol.Read.
type Request struct {
	// ID is the prefix of the ids of the request's samples, and is unique among requests.
	ID string
	// Reward is the name of the reward in the URL. Empty: the default reward, or that in the body.
	Reward string
	// ContentType is the header Content-Type with its parameters. Body is the complete body.
	ContentType string
	Body        []byte
	// Rewards are the available rewards.
	Rewards []Reward
	// Limits are the limits for the decoded body.
	Limits Limits
}

// Reward is an available reward.
type Reward struct {
	Name  string // empty: the default reward
	Extra []wire.ExtraKey
}

// Batch contains a request's samples and the conversion of their results into an answer.
type Batch struct {
	// Plans has one Plan for each sample of the request, in order.
	Plans []Plan
	// Whole means that the request has no answer unless every sample has a score. If one sample is not
	// accepted, the other samples are then cancelled.
	Whole bool
	// Policy is the policy for samples without a score. Nil: the policy of the reward.
	Policy *rewards.SamplePolicy
	// Answer makes the reply from the results, which are in the order of Plans.
	Answer func(results []*wire.Result) (Reply, *Fault)
}

// Plan is one sample of a request: the sample to submit, or why it is refused.
type Plan struct {
	Sample  *rewards.Sample
	Timeout time.Duration // from the arrival of the request; 0: the server's default
	Refused *Fault
}

// Refuse marks a sample as refused, so that it is not submitted. The first reason is kept.
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

// LookUp returns the reward with a name.
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

// AsFault returns the Fault in err, or a fault of class malformed with its text.
func AsFault(err error) *Fault {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f
	}
	return Faultf(rewards.Malformed, "%v", err)
}

// Picture returns the media of an encoded picture, or nil if its first bytes are not those of a JPEG, PNG or
// WebP file.
func Picture(data []byte) *rewards.Media {
	encoding := media.Sniff(data)
	if encoding == "" {
		return nil
	}
	return &rewards.Media{Kind: rewards.Image, Encoding: encoding, DType: "U8", Shape: []int{len(data)}, Data: data}
}
