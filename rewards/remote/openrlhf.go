package remote

import (
	"context"
	"net/http"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/rewards"
)

// rlhf speaks to OpenRLHF's reward server: query is prompt and response in one
// text, rewards come back in the order of the queries.
type rlhf struct {
	extras []column
	header http.Header
}

func newRLHF(o *options) *rlhf {
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
	d, rewardList, err := decodeList(decodeJSON, body, "rewards", len(its))
	if err != nil {
		return nil, err
	}
	out := verdicts(rewardList)
	logs, _ := d.Get("extra_logs")
	return out, columnLists(logs, r.extras, out)
}

func (r *rlhf) fields() []rewards.Field { return fieldsOf(r.extras) }
