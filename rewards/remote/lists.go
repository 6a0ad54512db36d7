package remote

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// dict makes an object of names and values in turn.
func dict(pairs ...pickle.Value) *pickle.Dict {
	d := &pickle.Dict{}
	for i := 0; i+1 < len(pairs); i += 2 {
		d.Items = append(d.Items, pickle.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// list makes an array of what of gives for each item.
func list(its []item, of func(item) pickle.Value) *pickle.List {
	l := &pickle.List{Items: make([]pickle.Value, len(its))}
	for i, it := range its {
		l.Items[i] = of(it)
	}
	return l
}

func base64Of(file []byte) pickle.Value { return base64.StdEncoding.EncodeToString(file) }

// jsonCall makes a call of a JSON body.
func jsonCall(h http.Header, body pickle.Value) *outbound.Call {
	return &outbound.Call{Header: h, Body: appendJSON(nil, body)}
}

// factory speaks to Flow-Factory's reward server: base64 files under image, or a
// list of them per video under video.
type factory struct {
	pictures pictures
	prompt   source
	header   http.Header
}

func newFactory(o *Options) *factory {
	f := &factory{pictures: newPictures(o), header: o.RequestHeader("application/json")}
	f.prompt, _ = parseSource(o.Prompt) // validate has read it
	return f
}

func (f *factory) item(ctx context.Context, s *rewards.Sample) (item, error) {
	var it item
	var err error
	if it.prompt, err = f.prompt.text(s); err != nil {
		return it, err
	}
	return it, f.pictures.into(ctx, &it, s)
}

func (f *factory) call(its []item) (*outbound.Call, error) {
	var image, video, conditions pickle.Value
	if its[0].frames != nil {
		video = list(its, func(it item) pickle.Value {
			frames := &pickle.List{}
			for _, file := range it.frames {
				frames.Items = append(frames.Items, base64Of(file))
			}
			return frames
		})
	} else {
		image = list(its, func(it item) pickle.Value { return base64Of(it.picture) })
	}
	for _, it := range its {
		if (it.frames != nil) != (its[0].frames != nil) {
			return nil, fmt.Errorf("%w: images and videos do not go into one request", rewards.BadInput)
		}
	}
	if f.pictures.source > 0 {
		conditions = list(its, func(it item) pickle.Value { return &pickle.List{Items: []pickle.Value{base64Of(it.source)}} })
	}
	return jsonCall(f.header, dict(
		"prompt", list(its, func(it item) pickle.Value { return it.prompt }),
		"image", image, "video", video, "condition_images", conditions, "condition_videos", nil, "kwargs", nil,
	)), nil
}

func (f *factory) read(body []byte, its []item) ([]verdict, error) {
	d, err := decodeDict(decodeJSON, body)
	if err != nil {
		return nil, err
	}
	rewardList, err := listOf(d, "rewards", len(its))
	if err != nil {
		return nil, err
	}
	return verdicts(rewardList), nil
}

func (f *factory) fields() []rewards.Field { return nil }

// textItem is what the text services are told of a sample.
func textItem(s *rewards.Sample) (item, error) {
	it := item{prompt: s.Prompt, response: s.Response}
	if s.Response == "" && len(s.Media) > 0 {
		return it, fmt.Errorf("%w: the sample has no text response", rewards.BadInput)
	}
	if len(s.GroundTruth) > 0 {
		truth, err := parseJSON(s.GroundTruth)
		if err != nil {
			return it, fmt.Errorf("%w: ground_truth is %w", rewards.BadInput, err)
		}
		it.truth = truth
	}
	return it, nil
}

// rlhf speaks to OpenRLHF's reward server: query is prompt and response in one
// text, rewards come back in the order of the queries.
type rlhf struct {
	extras []column
	header http.Header
}

func newRLHF(o *Options) *rlhf {
	return &rlhf{extras: columns(o.Extras), header: o.RequestHeader("application/json")}
}

func (r *rlhf) item(_ context.Context, s *rewards.Sample) (item, error) { return textItem(s) }

func (r *rlhf) call(its []item) (*outbound.Call, error) {
	return jsonCall(r.header, dict(
		"query", list(its, func(it item) pickle.Value { return it.prompt + it.response }),
		"prompts", list(its, func(it item) pickle.Value { return it.prompt }),
		"labels", list(its, func(it item) pickle.Value { return it.truth }),
	)), nil
}

func (r *rlhf) read(body []byte, its []item) ([]verdict, error) {
	d, err := decodeDict(decodeJSON, body)
	if err != nil {
		return nil, err
	}
	rewardList, err := listOf(d, "rewards", len(its))
	if err != nil {
		return nil, err
	}
	out := verdicts(rewardList)
	logs, _ := d.Get("extra_logs")
	return out, columnLists(logs, r.extras, out)
}

func (r *rlhf) fields() []rewards.Field { return fieldsOf(r.extras) }

// slimeProtocol asks for one sample at a time and takes any JSON number, or one in
// an object under reward_key.
type slimeProtocol struct {
	key    path
	extras []column
	header http.Header
}

func newSlime(o *Options) *slimeProtocol {
	p := &slimeProtocol{extras: columns(o.Extras), header: o.RequestHeader("application/json")}
	if o.RewardKey != "" {
		p.key = path{o.RewardKey}
	}
	return p
}

func (p *slimeProtocol) item(_ context.Context, s *rewards.Sample) (item, error) { return textItem(s) }

func (p *slimeProtocol) call(its []item) (*outbound.Call, error) {
	return jsonCall(p.header, dict("prompt", its[0].prompt, "response", its[0].response, "label", its[0].truth)), nil
}

func (p *slimeProtocol) read(body []byte, _ []item) ([]verdict, error) {
	return readOne(body, p.key, p.extras)
}

func (p *slimeProtocol) fields() []rewards.Field { return fieldsOf(p.extras) }

// readOne reads the answer for a single sample: the number at a path, and the
// columns at theirs.
func readOne(body []byte, at path, extras []column) ([]verdict, error) {
	v, err := decodeJSON(body)
	if err != nil {
		return nil, err
	}
	if err := reported(v); err != nil {
		return nil, err
	}
	found, ok := at.look(v)
	if !ok {
		return nil, fmt.Errorf("%w: the answer has nothing at %q: %s", rewards.InvalidScore, at, service.Quote(body))
	}
	var out verdict
	if out.score.Value, err = number(found); err != nil {
		return nil, fmt.Errorf("%w: %s", err, service.Quote(body))
	}
	columnsOf(v, extras, &out.score)
	return []verdict{out}, nil
}
