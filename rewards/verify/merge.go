package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// field is where the results stand in extra_info.
const field = "verified_results"

// members are those of a JSON object, in order, as they were written.
type members []member

type member struct{ name, value json.RawMessage }

// trusted reads extra_info without what the trainer's side has put under Field. Names
// are compared without regard to case, because encoding/json finds a struct's field
// that way.
func trusted(extra json.RawMessage) (members, error) {
	text := bytes.TrimSpace(extra)
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("%w: extra_info is not a JSON object", rewards.BadInput)
	}
	broken := func(err error) error { return fmt.Errorf("%w: extra_info is not JSON: %w", rewards.BadInput, err) }
	var out members
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, broken(err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, broken(err)
		}
		name, _ := key.(string) // Token gives nothing else in the place of a name
		if !strings.EqualFold(name, field) {
			out = append(out, member{quoted(name), value})
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, broken(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: extra_info is more than one JSON value", rewards.BadInput)
	}
	return out, nil
}

// object writes the members as one JSON object.
func (m members) object() json.RawMessage {
	out := []byte{'{'}
	for i, one := range m {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, one.name...), ':'), one.value...)
	}
	return append(out, '}')
}

// failureValue is what stands in the place of a result.
func failureValue(class rewards.Class, message string) json.RawMessage {
	return members{{quoted("error"), members{
		{quoted("class"), quoted(string(class))},
		{quoted("message"), quoted(message)},
	}.object()}}.object()
}

// quoted is a JSON string without escapes for <, > and &, which texts here have.
func quoted(s string) json.RawMessage {
	out, err := encode(s)
	if err != nil {
		return json.RawMessage(`""`) // unreachable: every string can be encoded
	}
	return out
}

// encode is json.Marshal without escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("as JSON: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// checked is a result as it may stand in extra_info: one JSON value within the bound,
// of valid UTF-8, because a Python process would refuse the whole of extra_info otherwise.
func checked(result json.RawMessage) (json.RawMessage, error) {
	result = bytes.TrimSpace(result)
	switch {
	case len(result) > maxResult:
		return nil, fmt.Errorf("%w: the result has %d bytes, at most %d", rewards.Internal, len(result), maxResult)
	case !json.Valid(result):
		return nil, fmt.Errorf("%w: the result is not JSON: %s", rewards.Internal, service.Quote(result))
	}
	return bytes.ToValidUTF8(result, []byte("\uFFFD")), nil
}
