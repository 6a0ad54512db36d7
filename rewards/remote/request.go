package remote

import (
	"encoding/base64"
	"fmt"
	"net/http"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/pickle"
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
