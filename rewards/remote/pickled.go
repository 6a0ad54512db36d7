package remote

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// pickled speaks the family of flow_grpo: a pickled dict of lists there, a pickled
// dict of lists back.
type pickled struct {
	dialect  string
	pictures pictures
	prompt   service.Source
	metadata service.Source // the zero value: none
	strict   bool           // GenEval's only_strict
	value    string         // which list is the value
	extras   []column
	header   http.Header
}

func newPickled(o *options) *pickled {
	p := &pickled{
		dialect: o.Protocol, pictures: newPictures(o), strict: o.OnlyStrict, extras: columns(o.Extras),
		// The clients send none, and requests none at all; the services look at the body.
		header: o.RequestHeader("application/octet-stream"),
	}
	p.prompt, _ = service.ParseSource(o.Prompt) // validate has read them
	if o.Metadata != "" {
		p.metadata, _ = service.ParseSource(o.Metadata)
	}
	switch o.Protocol {
	case deqa, unifiedReward:
		p.value = "outputs"
	case genEval, deepgenGenEval:
		p.value = o.GenEvalValue
	default:
		p.value = "scores"
	}
	return p
}

// isGenEval reports whether the answer has GenEval's five lists.
func (p *pickled) isGenEval() bool { return p.dialect == genEval || p.dialect == deepgenGenEval }

// item readies what one sample sends.
func (p *pickled) item(ctx context.Context, s *rewards.Sample) (item, error) {
	var it item
	var err error
	if p.dialect != deqa && p.dialect != genEval {
		if it.prompt, err = textOf(p.prompt, s); err != nil {
			return it, err
		}
	}
	if p.metadata.Field != "" {
		d, err := objectOf(p.metadata, s)
		if err != nil {
			return it, err
		}
		it.metadata = forPickle(d)
	}
	return it, p.pictures.into(ctx, &it, s)
}

// call pickles the request, keys in the order in which the clients write them.
func (p *pickled) call(its []item) (*outbound.Call, error) {
	results, prompts, rows := make([][]byte, len(its)), make([]string, len(its)), make([]pickle.Value, len(its))
	sources := make([][]byte, len(its))
	for i, it := range its {
		results[i], sources[i], rows[i] = it.picture, it.source, it.metadata
		prompts[i] = strings.ToValidUTF8(it.prompt, "\uFFFD")
	}
	var images pickle.Value = results
	if p.pictures.source > 0 {
		images = &pickle.Dict{Items: []pickle.Pair{{Key: "source", Value: sources}, {Key: "edited", Value: results}}}
	}
	gen := []pickle.Pair{{Key: "meta_datas", Value: rows}, {Key: "only_strict", Value: p.strict}}
	request := []pickle.Pair{{Key: "images", Value: images}}
	switch p.dialect {
	case deqa:
	case genEval:
		request = append(request, gen...)
	case unifiedReward:
		request = append(request, pickle.Pair{Key: "prompts", Value: prompts})
	case deepgenGenEval:
		request = append(request, pickle.Pair{Key: "prompts", Value: prompts}, pickle.Pair{Key: "metadata", Value: &pickle.Dict{Items: gen}})
	default:
		metadata := rows[0] // validate allows no batch with metadata
		if metadata == nil {
			metadata = &pickle.Dict{}
		}
		request = append(request, pickle.Pair{Key: "prompts", Value: prompts}, pickle.Pair{Key: "metadata", Value: metadata})
	}
	body, err := pickle.Encode(&pickle.Dict{Items: request})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rewards.BadInput, err)
	}
	return &outbound.Call{Header: p.header, Body: body}, nil
}

func (p *pickled) read(body []byte, its []item) ([]verdict, error) {
	d, list, err := decodeList(decodePickle, body, p.value, len(its))
	if err != nil {
		return nil, err
	}
	out := verdicts(list)
	if p.isGenEval() {
		return out, p.readGenEval(d, out)
	}
	return out, p.readExtras(d, out)
}

// readExtras takes the declared lists that stand beside the scores.
func (p *pickled) readExtras(d *pickle.Dict, out []verdict) error {
	return columnLists(d, p.extras, out)
}

func (p *pickled) fields() []rewards.Field {
	if p.isGenEval() {
		return genEvalFields()
	}
	return fieldsOf(p.extras)
}
