package compat

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/wire"
)

// pairs is a JSON object that keeps its order, for clients that take the first.
type pairs []pair

type pair struct {
	key   string
	value any
}

// MarshalJSON writes the object.
func (p pairs) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, it := range p {
		if i > 0 {
			out.WriteByte(',')
		}
		for n, v := range []any{it.key, it.value} {
			if n > 0 {
				out.WriteByte(':')
			}
			text, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			out.Write(text)
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// splitMetadata takes ground_truth out of an object of metadata, as the reader of
// pickles does; the rest is extra_info. Both are nil where there is nothing.
func splitMetadata(v strictjson.Text) (truth, extra json.RawMessage, err error) {
	if v.Null() {
		return nil, nil, nil
	}
	var rest bytes.Buffer
	err = v.Object(func(key string, v strictjson.Text) error {
		if key == truthKey {
			truth = v.Raw()
			return nil
		}
		name, _ := json.Marshal(key) // a string, which cannot fail
		rest.WriteByte(',')
		rest.Write(name)
		rest.WriteByte(':')
		rest.Write(v)
		return nil
	})
	if err == nil && rest.Len() > 0 {
		extra = rest.Bytes()
		extra[0] = '{'
		extra = append(extra, '}')
	}
	return truth, extra, err
}

// scoreColumn is the key of the score itself, among others of its kind.
const scoreColumn = "score"

// ownColumn reports whether a key of reward_extra_info is about the scoring and not
// about the sample.
func ownColumn(key string) bool { return strings.HasPrefix(key, "rewardloop/") }

// decimal is a number that is written as Python writes a float, 1.0 and not 1: a trainer
// that makes a tensor of a list would get one of integers, which has no mean.
type decimal float64

// MarshalJSON writes the number.
func (d decimal) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(float64(d))
	if err == nil && !bytes.ContainsAny(text, ".e") {
		text = append(text, ".0"...)
	}
	return text, err
}

// allOrNone answers with every sample's score, or with one fault for all.
func allOrNone(form func(scores []decimal, results []*wire.Result) any) func([]*wire.Result) (Reply, *Fault) {
	return func(results []*wire.Result) (Reply, *Fault) {
		values, f := allScores(results)
		if f != nil {
			return Reply{}, f
		}
		scores := make([]decimal, len(values))
		for i, v := range values {
			scores[i] = decimal(v)
		}
		return JSONReply(http.StatusOK, false, form(scores, results)), nil
	}
}
