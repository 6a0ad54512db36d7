package remote

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// maxAnswer bounds an answer's body: 64 samples with all their fields have some
// kilobytes, a program's output behind SandboxFusion has more.
const maxAnswer = 8 << 20

// decoder reads a body into a tree.
type decoder func(body []byte) (pickle.Value, error)

// decodePickle decodes an answer and runs nothing. What is cut short may come
// whole next time; what names a global that is not known, or is built to hurt,
// will not.
func decodePickle(body []byte) (pickle.Value, error) {
	v, err := pickle.Decode(body, pickle.Limits{MaxBytes: maxAnswer, MaxExpandedBytes: 4 * maxAnswer})
	switch {
	case errors.Is(err, pickle.ErrMalformed), errors.Is(err, pickle.ErrProtocol0):
		return nil, fmt.Errorf("%w: the answer is not a complete pickle: %w; the answer begins %s", rewards.Unavailable, err, service.Quote(body))
	case err != nil:
		return nil, rewards.Permanent(rewards.BlameDependency, fmt.Errorf("%w: the answer: %w", rewards.Internal, err))
	}
	return v, nil
}

// decodeJSON decodes an answer. NaN and infinities become numbers out of range.
func decodeJSON(body []byte) (pickle.Value, error) {
	v, err := parseJSON(withNaN(body))
	if err != nil {
		return nil, fmt.Errorf("%w: the answer: %w; the answer begins %s", rewards.Unavailable, err, service.Quote(body))
	}
	return v, nil
}

// decodeDict decodes an answer that must be a dict without an error in it: some
// services report a failure with status 200.
func decodeDict(decode decoder, body []byte) (*pickle.Dict, error) {
	v, err := decode(body)
	if err != nil {
		return nil, err
	}
	d, ok := v.(*pickle.Dict)
	if !ok {
		return nil, fmt.Errorf("%w: the answer is %s, want an object", rewards.InvalidScore, typeName(v))
	}
	return d, reported(d)
}

// reported is the failure that an answer of status 200 speaks of under "error".
func reported(v pickle.Value) error {
	d, ok := v.(*pickle.Dict)
	if !ok {
		return nil
	}
	switch e, _ := d.Get("error"); e {
	case nil, false, "":
		return nil
	}
	return fmt.Errorf("%w: the scorer reports an error: %s", rewards.Internal, reason(d))
}

// explained says which answers beyond 2xx the scorer reads itself, because their
// body tells what is wrong with the samples: other attempts are left to the
// caller, who knows whether the sample is the cause. What speaks of the service or
// of the address is the doer's.
func explained(status int) bool {
	switch status {
	case http.StatusInternalServerError:
		return true
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 400 && status < 500
}

// refusal is the failure in an answer beyond 2xx: 500 is a traceback of this
// request and may pass; 400, 413, 415 and 422 say that the sample cannot be scored;
// other 4xx would only be repeated, whatever the sample.
func refusal(a *outbound.Answer) error {
	says := func(class rewards.Class) error {
		return fmt.Errorf("%w: %s answers %d: %s", class, a.Endpoint, a.Status, bodyReason(a.Body))
	}
	switch a.Status {
	case http.StatusInternalServerError:
		return says(rewards.Unavailable)
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return says(rewards.BadInput)
	}
	return rewards.Permanent(rewards.BlameDependency, says(rewards.Internal))
}

// bodyReason finds the reason in the body of a failure: pickled or JSON with an
// error in it, else text.
func bodyReason(body []byte) string {
	for _, decode := range []decoder{decodePickle, decodeJSON} {
		if v, err := decode(body); err == nil {
			if d, ok := v.(*pickle.Dict); ok {
				return reason(d)
			}
		}
	}
	return service.Quote(body)
}

// reason returns what an error object says.
func reason(d *pickle.Dict) string {
	for _, key := range []string{"error", "detail", "message"} {
		switch v, _ := d.Get(key); v := v.(type) {
		case nil:
		case string:
			return service.Quote([]byte(v))
		case *pickle.Dict:
			return reason(v)
		default:
			return service.Quote(appendJSON(nil, v))
		}
	}
	return service.Quote(appendJSON(nil, d))
}

// decodeList decodes an answer that has a list with one element per sample under a key.
func decodeList(decode decoder, body []byte, key string, n int) (*pickle.Dict, []pickle.Value, error) {
	d, err := decodeDict(decode, body)
	if err != nil {
		return nil, nil, err
	}
	list, err := listOf(d, key, n)
	return d, list, err
}

// listOf finds the list under a key: it must have n elements, one per sample. A
// list of another length says nothing about any of them.
func listOf(d *pickle.Dict, key string, n int) ([]pickle.Value, error) {
	v, ok := d.Get(key)
	if !ok {
		return nil, fmt.Errorf("%w: the answer has no %q; the answer has %s", rewards.InvalidScore, key, names(d))
	}
	list, ok := items(v)
	if !ok {
		return nil, fmt.Errorf("%w: %q is %s, want a list", rewards.InvalidScore, key, typeName(v))
	}
	if len(list) != n {
		return nil, fmt.Errorf("%w: %q has %d elements for %d samples", rewards.InvalidScore, key, len(list), n)
	}
	return list, nil
}

// names lists the keys of an answer, for messages.
func names(d *pickle.Dict) string {
	var out []string
	for _, p := range d.Items {
		if name, ok := p.Key.(string); ok && len(out) < 10 {
			out = append(out, service.Clip(name, 40))
		}
	}
	if len(out) == 0 {
		return "no keys"
	}
	return service.Plain(strings.Join(out, ", "))
}

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

// verdict is what an answer says of one sample: a score, or why there is none.
type verdict struct {
	score rewards.Score
	err   error
}

// verdicts reads a list of scores.
func verdicts(list []pickle.Value) []verdict {
	out := make([]verdict, len(list))
	for i, v := range list {
		out[i].score.Value, out[i].err = number(v)
	}
	return out
}
