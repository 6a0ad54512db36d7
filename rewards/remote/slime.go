package remote

import (
	"context"
	"net/http"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// slimeProtocol asks for one sample at a time and takes any JSON number, or one in
// an object under reward_key.
type slimeProtocol struct {
	key    path
	extras []column
	header http.Header
}

func newSlime(o *options) *slimeProtocol {
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
