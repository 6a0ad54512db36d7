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

// uni speaks to UniRL's reward service: a conversation of one turn, or of two where
// an edit is scored, whose last is rated.
type uni struct {
	pictures pictures
	prompt   service.Source
	metadata service.Source // the zero value: none
	reward   string
	reduce   string // first, mean or max
	extras   []column
	header   http.Header
}

func newUni(o *options) *uni {
	u := &uni{
		pictures: newPictures(o), reward: o.Reward, reduce: o.Reduce, extras: columns(o.Extras),
		header: o.RequestHeader("application/json"),
	}
	u.prompt, _ = service.ParseSource(o.Prompt) // validate has read them
	if o.Metadata != "" {
		u.metadata, _ = service.ParseSource(o.Metadata)
	}
	return u
}

func (u *uni) item(ctx context.Context, s *rewards.Sample) (item, error) {
	var it item
	var err error
	if it.prompt, err = textOf(u.prompt, s); err != nil {
		return it, err
	}
	if u.metadata.Field != "" {
		d, err := objectOf(u.metadata, s)
		if err != nil {
			return it, err
		}
		it.metadata = d
	}
	return it, u.pictures.into(ctx, &it, s)
}

func (u *uni) call(its []item) (*outbound.Call, error) {
	return jsonCall(u.header, dict("requests", list(its, func(it item) pickle.Value {
		history := &pickle.List{}
		if it.source != nil {
			history.Items = append(history.Items, dict("text", it.prompt, "image_b64", base64Of(it.source)))
		}
		history.Items = append(history.Items, dict("text", it.prompt, "image_b64", base64Of(it.picture)))
		return dict("history", history, "required_rewards", &pickle.List{Items: []pickle.Value{u.reward}}, "metadata", it.metadata)
	}))), nil
}

func (u *uni) read(body []byte, its []item) ([]verdict, error) {
	d, results, err := decodeList(decodeJSON, body, "results", len(its))
	if err != nil {
		return nil, err
	}
	complaints := make([]pickle.Value, len(its))
	if v, _ := d.Get("errors"); v != nil {
		if complaints, err = listOf(d, "errors", len(its)); err != nil {
			return nil, err
		}
	}
	out := make([]verdict, len(its))
	for i := range its {
		out[i].score, out[i].err = u.one(results[i], complaints[i])
	}
	return out, nil
}

// one reads the sub-metrics of one sample. One that is no finite number fails the
// sample, whatever the others are.
func (u *uni) one(result, complaint pickle.Value) (rewards.Score, error) {
	var score rewards.Score
	if e, ok := (path{u.reward}).look(complaint); ok && e != nil {
		text := service.Quote(appendJSON(nil, e))
		if s, ok := e.(string); ok {
			text = service.Quote([]byte(s))
		}
		return score, fmt.Errorf("%w: the service reports an error for %s: %s", rewards.Internal, u.reward, text)
	}
	v, _ := (path{u.reward}).look(result)
	metrics, ok := v.(*pickle.Dict)
	if !ok || len(metrics.Items) == 0 {
		return score, fmt.Errorf("%w: the answer has no numbers under %q", rewards.InvalidScore, u.reward)
	}
	var sum float64
	for i, m := range metrics.Items {
		f, err := number(m.Value)
		if err != nil {
			return score, fmt.Errorf("%s.%v: %w", u.reward, m.Key, err)
		}
		sum += f
		switch {
		case i == 0:
			score.Value = f
		case u.reduce == "max":
			score.Value = max(score.Value, f)
		}
	}
	if u.reduce == "mean" {
		score.Value = sum / float64(len(metrics.Items))
	}
	columnsOf(metrics, u.extras, &score)
	return score, nil
}

func (u *uni) fields() []rewards.Field { return fieldsOf(u.extras) }
