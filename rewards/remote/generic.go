package remote

import (
	"context"
	"net/http"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// anyJSON speaks to a service whose request and answer the options describe.
type anyJSON struct {
	template *template
	pictures pictures
	at       path
	extras   []column
	header   http.Header
}

func newAnyJSON(o *options) *anyJSON {
	a := &anyJSON{pictures: newPictures(o), extras: columns(o.Extras), header: o.RequestHeader("application/json")}
	a.template, _ = parseTemplate(o.Request) // validate has read both
	a.at, _ = parsePath(o.ScorePath)
	if a.template.frames {
		a.pictures.video = "frames"
	}
	return a
}

// item makes the whole request: whatever the template names is then in it.
func (a *anyJSON) item(ctx context.Context, s *rewards.Sample) (item, error) {
	var it item
	if a.template.pictures || a.template.frames {
		if err := a.pictures.into(ctx, &it, s); err != nil {
			return it, err
		}
	}
	if a.template.frames && it.frames == nil {
		it.frames = [][]byte{it.picture} // an image is a video of one frame
	}
	v, err := a.template.render(s, &it, a.pictures.mime())
	if err != nil {
		return it, err
	}
	return item{body: appendJSON(nil, v)}, nil
}

func (a *anyJSON) call(its []item) (*outbound.Call, error) {
	return &outbound.Call{Header: a.header, Body: its[0].body}, nil
}

func (a *anyJSON) read(body []byte, _ []item) ([]verdict, error) {
	return readOne(body, a.at, a.extras)
}

func (a *anyJSON) fields() []rewards.Field { return fieldsOf(a.extras) }
