package compat

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// The latent protocol's version, and the header that must name it.
const (
	latentVersion = "1"
	latentHeader  = "X-Drm-Protocol-Version"
)

// latentTensors is the entry of extra_info that names a sample's latents after the
// first, in their order; the verl plug-in sends the same.
const latentTensors = "rewardloop_tensors"

// maxIntegers bounds the whole numbers of a row's tensor, which become JSON.
const maxIntegers = 4096

// readLatent reads POST /latent and /latent/{name}, the protocol of verl-omni's
// latent_http_scorer_client ("DRM protocol 1"). The body is safetensors:
//
//	latents               [N, C, H, W]  F16, BF16 or F32; N is 1 with verl-omni's client
//	prompt_embeds         [N, L, D]
//	pooled_prompt_embeds  [N, D]
//	u                     [N]  the noise level
//	seeds                 [N]  I64, may be missing
//
// Each of the N rows is a sample whose media are latents, "latents" first and the
// others in the order of the body, without the axis N: layouts CHW, LD and L, as the
// verl plug-in sends them. Their names stand in extra_info["rewardloop_tensors"];
// whole numbers are lists in extra_info under their own names. Any names beside
// latents will do.
//
//	200 {"protocol_version": "1", "raw_scores": [float]}
//	400 not such a body, another version
//	422, 503 a row without a score
func readLatent(req *Request) (*Batch, *Fault) {
	p, f := req.reward()
	if f != nil {
		return nil, f
	}
	list, err := readTensors(req.Body)
	if err != nil {
		return nil, AsFault(err)
	}
	plans, err := latentPlans(req, p, list)
	if err != nil {
		return nil, AsFault(err)
	}
	return &Batch{Plans: plans, Whole: true, Answer: allOrNone(func(scores []decimal, _ []*wire.Result) any {
		return pairs{{"protocol_version", latentVersion}, {"raw_scores", scores}}
	})}, nil
}

func checkVersion(r *http.Request) *Fault {
	if v := r.Header.Values(latentHeader); len(v) != 1 || v[0] != latentVersion {
		return Faultf(rewards.Malformed, "%s is %q, want %s", latentHeader, strictjson.Clip(fmt.Sprint(v)), latentVersion)
	}
	return nil
}

// latentPlans makes a sample of every row.
func latentPlans(req *Request, p *Reward, list []tensor) ([]Plan, error) {
	first := -1
	for i := range list {
		if list[i].name == "latents" {
			first = i
		}
	}
	switch {
	case first < 0:
		return nil, errors.New(`there is no tensor "latents"`)
	case len(list[first].shape) != 4:
		return nil, fmt.Errorf("latents has the shape %v, want [N, C, H, W]", list[first].shape)
	}
	rows := list[first].shape[0]
	if rows > req.Limits.Samples {
		return nil, req.tooMany()
	}
	main := list[first]
	list = append(append([]tensor{}, list[:first]...), list[first+1:]...)
	plans := make([]Plan, rows)
	for row := range plans {
		plans[row] = newPlan(req, p.Name, row)
		m, err := main.row(row, rows)
		if err != nil {
			return nil, err
		}
		if m == nil {
			return nil, fmt.Errorf("latents is %s, want F16, BF16 or F32", main.dtype)
		}
		sample := plans[row].Sample
		sample.Media = append(sample.Media, m)
		if err := attach(sample, list, row, rows); err != nil {
			return nil, err
		}
	}
	return plans, nil
}

// attach gives a sample its row of the other tensors.
func attach(sample *rewards.Sample, list []tensor, row, rows int) error {
	extra := map[string]any{}
	names := []string{}
	for i := range list {
		m, err := list[i].row(row, rows)
		if err != nil {
			return err
		}
		if m != nil {
			sample.Media, names = append(sample.Media, m), append(names, list[i].name)
			continue
		}
		if list[i].name == latentTensors {
			return fmt.Errorf("a tensor cannot be named %s", latentTensors)
		}
		size := len(list[i].data) / rows
		values := integers(list[i].dtype, list[i].data[row*size:(row+1)*size])
		if len(values) > maxIntegers {
			return fmt.Errorf("%q has %d whole numbers for a row; the limit is %d", strictjson.Clip(list[i].name), len(values), maxIntegers)
		}
		extra[list[i].name] = values
	}
	if len(names) > 0 {
		extra[latentTensors] = names
	}
	if len(extra) == 0 {
		return nil
	}
	text, err := json.Marshal(extra)
	sample.ExtraInfo = text
	return err
}

// row is one row as a latent; nil for whole numbers, which are none.
func (n *tensor) row(row, rows int) (*rewards.Media, error) {
	if len(n.shape) == 0 || n.shape[0] != rows {
		return nil, fmt.Errorf("%q has the shape %v: the first axis must be the %d of latents", strictjson.Clip(n.name), n.shape, rows)
	}
	if n.dtype == "I32" || n.dtype == "I64" {
		return nil, nil
	}
	shape := n.shape[1:]
	if len(shape) == 0 {
		shape = []int{1} // a number for each row
	}
	layouts := []rewards.Layout{"", "L", "LD", rewards.CHW, rewards.TCHW}
	if len(shape) >= len(layouts) {
		return nil, fmt.Errorf("%q has the shape %v: too many axes", strictjson.Clip(n.name), n.shape)
	}
	size := len(n.data) / rows
	return &rewards.Media{
		Kind: rewards.Latent, Encoding: rewards.Raw, Layout: layouts[len(shape)], DType: n.dtype, Shape: shape,
		Data: n.data[row*size : (row+1)*size : (row+1)*size],
	}, nil
}
