package remote

import (
	"context"
	"fmt"
	"net/http"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// factory speaks to Flow-Factory's reward server: base64 files under image, or a
// list of them per video under video.
type factory struct {
	pictures pictures
	prompt   service.Source
	header   http.Header
}

func newFactory(o *options) *factory {
	f := &factory{pictures: newPictures(o), header: o.RequestHeader("application/json")}
	f.prompt, _ = service.ParseSource(o.Prompt) // validate has read it
	return f
}

func (f *factory) item(ctx context.Context, s *rewards.Sample) (item, error) {
	var it item
	var err error
	if it.prompt, err = textOf(f.prompt, s); err != nil {
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
			return nil, fmt.Errorf("%w: a request must not mix images and videos", rewards.BadInput)
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
	_, rewardList, err := decodeList(decodeJSON, body, "rewards", len(its))
	if err != nil {
		return nil, err
	}
	return verdicts(rewardList), nil
}

func (f *factory) fields() []rewards.Field { return nil }
