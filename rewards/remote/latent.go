package remote

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// drmVersion is the version of the protocol, in the request's header and in the
// answer.
const drmVersion = "1"

// drm speaks to a diffusion reward model that rates latents: safetensors there, one
// raw score back (verl-omni's latent client).
type drm struct {
	noiseLevel float32
	seed       *int64 // nil: none is sent
	header     http.Header
}

func newDRM(o *options) *drm {
	d := &drm{noiseLevel: float32(o.NoiseLevel), seed: o.NoiseSeed, header: o.RequestHeader("application/octet-stream")}
	d.header.Set("X-Drm-Protocol-Version", drmVersion)
	return d
}

// tensor is one entry of the request.
type tensor struct {
	name  string
	dtype string
	shape []int
	data  []byte
}

// item packs the whole request: latents [1,C,H,W], prompt_embeds [1,L,D],
// pooled_prompt_embeds [1,D], u [1] and seeds [1].
func (d *drm) item(_ context.Context, s *rewards.Sample) (item, error) {
	result, named, err := latents(s)
	if err != nil {
		return item{}, err
	}
	if named["latents_clean"] == nil {
		named["latents_clean"] = result
	}
	var ts []tensor
	for _, want := range []struct {
		name, from string
		rank       int
	}{{"latents", "latents_clean", 4}, {"prompt_embeds", "prompt_embeds", 3}, {"pooled_prompt_embeds", "pooled_prompt_embeds", 2}} {
		t, err := batched(named[want.from], want.from, want.rank)
		if err != nil {
			return item{}, err
		}
		t.name = want.name
		ts = append(ts, t)
	}
	ts = append(ts, tensor{"u", "F32", []int{1}, binary.LittleEndian.AppendUint32(nil, math.Float32bits(d.noiseLevel))})
	if d.seed != nil {
		ts = append(ts, tensor{"seeds", "I64", []int{1}, binary.LittleEndian.AppendUint64(nil, uint64(*d.seed))})
	}
	body, err := safetensors(ts)
	return item{body: body}, err
}

// latents splits the sample's latents: the trainer's plug-in puts the result first
// and after it those of extra_info, whose names are in extra_info.rewardloop_tensors
// in the same order.
func latents(s *rewards.Sample) (result *rewards.Media, named map[string]*rewards.Media, err error) {
	var extra struct {
		Names []string `json:"rewardloop_tensors"`
	}
	if len(s.ExtraInfo) > 0 {
		if err := json.Unmarshal(s.ExtraInfo, &extra); err != nil {
			return nil, nil, fmt.Errorf("%w: extra_info.rewardloop_tensors: want a list of names: %w", rewards.BadInput, err)
		}
	}
	var all []*rewards.Media
	for _, m := range s.Media {
		if m.Kind == rewards.Latent {
			all = append(all, m)
		}
	}
	own := len(all) - len(extra.Names)
	if own < 0 {
		return nil, nil, fmt.Errorf("%w: extra_info.rewardloop_tensors names %d tensors, but the sample has %d latents", rewards.BadInput, len(extra.Names), len(all))
	}
	if own > 0 {
		result = all[0]
	}
	named = map[string]*rewards.Media{}
	for i, name := range extra.Names {
		named[name] = all[own+i]
	}
	return result, named, nil
}

// batched gives a latent the rank with a batch of 1.
func batched(m *rewards.Media, name string, rank int) (tensor, error) {
	if m == nil {
		return tensor{}, fmt.Errorf("%w: the sample has no latent %s; the trainer's send_tensors must name it", rewards.BadInput, name)
	}
	shape := slices.Clone(m.Shape)
	if len(shape) == rank-1 {
		shape = append([]int{1}, shape...)
	}
	if len(shape) != rank || shape[0] != 1 {
		return tensor{}, fmt.Errorf("%w: %s has the shape %v, want %d axes, or %d with a batch of 1", rewards.BadInput, name, m.Shape, rank-1, rank)
	}
	size := dtypeSize(m.DType)
	for _, n := range shape {
		size *= n
	}
	if size == 0 || size != len(m.Data) {
		return tensor{}, fmt.Errorf("%w: %s of %s %v has %d bytes", rewards.BadInput, name, m.DType, m.Shape, len(m.Data))
	}
	return tensor{dtype: m.DType, shape: shape, data: m.Data}, nil
}

// dtypeSize is the size of an element, 0 for what no latent has.
func dtypeSize(dtype string) int {
	switch dtype {
	case "F16", "BF16":
		return 2
	case "F32":
		return 4
	case "F64", "I64":
		return 8
	}
	return 0
}

// safetensors writes the format as its Python library does: wide types first, then
// by name, the header padded with spaces to 8 bytes.
func safetensors(ts []tensor) ([]byte, error) {
	slices.SortFunc(ts, func(a, b tensor) int {
		return cmp.Or(cmp.Compare(dtypeSize(b.dtype), dtypeSize(a.dtype)), cmp.Compare(a.name, b.name))
	})
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	entries, at := map[string]entry{}, 0
	for _, t := range ts {
		entries[t.name] = entry{t.dtype, t.shape, [2]int{at, at + len(t.data)}}
		at += len(t.data)
	}
	if at > maxRequest {
		return nil, fmt.Errorf("%w: latents of %d bytes, want at most %d", rewards.BadInput, at, maxRequest)
	}
	header, err := json.Marshal(entries)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rewards.Internal, err)
	}
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	body := make([]byte, 0, 8+len(header)+at)
	body = append(binary.LittleEndian.AppendUint64(body, uint64(len(header))), header...)
	for _, t := range ts {
		body = append(body, t.data...)
	}
	return body, nil
}

func (d *drm) call(its []item) (*outbound.Call, error) {
	return &outbound.Call{Header: d.header, Body: its[0].body}, nil
}

// read wants the protocol's version and exactly one raw score.
func (d *drm) read(body []byte, its []item) ([]verdict, error) {
	answer, err := decodeDict(decodeJSON, body)
	if err != nil {
		return nil, err
	}
	if v, _ := answer.Get("protocol_version"); v != drmVersion {
		return nil, rewards.Permanent(rewards.BlameDependency, fmt.Errorf(
			"%w: the server uses version %s of the protocol, want version %q", rewards.Internal, appendJSON(nil, v), drmVersion))
	}
	raw, err := listOf(answer, "raw_scores", len(its))
	if err != nil {
		return nil, err
	}
	out := verdicts(raw)
	for i, v := range out {
		if v.err == nil {
			out[i].score.Extra = map[string]any{"drm_raw_score": v.score.Value}
		}
	}
	return out, nil
}

func (d *drm) fields() []rewards.Field {
	return []rewards.Field{{Name: "drm_raw_score", Kind: rewards.Number}}
}
