package chat

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// The roles of a message.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
)

// Part is a part of a message: text, or a picture.
type Part struct {
	Text string
	// Image is an encoded picture, and MIME its type: "image/png", "image/jpeg" or "image/webp".
	// The picture is sent as a data URL.
	Image []byte
	MIME  string
}

// Text returns a text part.
func Text(s string) Part { return Part{Text: s} }

// Message is one message of a chat.
type Message struct {
	Role  string
	Parts []Part
}

// Schema requests an answer in JSON.
type Schema struct {
	// Name is the name of the schema for the engine.
	Name string
	// Schema is a JSON schema; nil: any JSON object.
	Schema json.RawMessage
}

// Request is one question. For fields that are nil or 0 the engine uses its defaults.
type Request struct {
	// Model replaces the client's model.
	Model    string
	Messages []Message
	// Temperature 0 selects the most likely token. With nil the engine uses its default, and the
	// answer is treated as random.
	Temperature, TopP *float64
	MaxTokens         int
	Seed              *int64
	// Logprobs requests the log probabilities of the answer's tokens, and TopLogprobs those of that
	// number of alternatives, up to 20.
	Logprobs    bool
	TopLogprobs int
	// ResponseFormat requests JSON.
	ResponseFormat *Schema
	// Extra contains additional fields of the body, for parameters that only some engines support:
	// {"chat_template_kwargs": {"enable_thinking": false}}.
	Extra map[string]any
	// Accept returns an error if a reply is unusable; Chat returns that error. Only a reply that
	// Accept accepts is cached. Accept runs on the goroutine that called Chat. nil: every reply is
	// accepted.
	Accept func(Reply) error
	// Attempt is the number of earlier replies to the same question that the caller could not use.
	// Above 0, replies are not taken from the cache.
	Attempt int
}

// reserved are the names Extra may not have: they are sent already, or would make
// of the answer something else than one message.
//
//nolint:gochecknoglobals // a table
var reserved = []string{
	"logprobs", "max_tokens", "messages", "model", "n", "response_format", "seed", "stream", "stream_options",
	"temperature", "top_logprobs", "top_p",
}

// deterministic says whether asking again is meant to give the same answer.
func (r *Request) deterministic() bool {
	return r.Seed != nil || (r.Temperature != nil && *r.Temperature == 0)
}

func (r *Request) validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(r.Messages) == 0 {
		fault("the request has no messages")
	}
	for i, m := range r.Messages {
		if err := m.validate(); err != nil {
			fault("message %d: %w", i, err)
		}
	}
	inRange := func(name string, v *float64, high float64) {
		if v != nil && !(*v >= 0 && *v <= high) {
			fault("%s: %v, want 0 to %v", name, *v, high)
		}
	}
	inRange("temperature", r.Temperature, math.MaxFloat64)
	inRange("top_p", r.TopP, 1)
	if r.MaxTokens < 0 {
		fault("max_tokens: %d, want 0 or more", r.MaxTokens)
	}
	if r.TopLogprobs < 0 || r.TopLogprobs > 20 || (r.TopLogprobs > 0 && !r.Logprobs) {
		fault("top_logprobs: %d, want 0 to 20, together with logprobs", r.TopLogprobs)
	}
	for name := range r.Extra {
		if slices.Contains(reserved, name) {
			fault("extra field %q is set by the request itself; leave the extra field out", name)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: the chat request is not right: %w", rewards.Internal, err)
	}
	return nil
}

func (m Message) validate() error {
	if m.Role != System && m.Role != User && m.Role != Assistant {
		return fmt.Errorf("role %q, want system, user or assistant", m.Role)
	}
	if len(m.Parts) == 0 {
		return errors.New("no parts")
	}
	for i, p := range m.Parts {
		switch {
		case p.Image == nil:
		case p.Text != "":
			return fmt.Errorf("part %d is text and picture", i)
		case len(p.Image) == 0:
			return fmt.Errorf("part %d is an empty picture", i)
		case p.MIME != "image/png" && p.MIME != "image/jpeg" && p.MIME != "image/webp":
			return fmt.Errorf("part %d is of type %q, want image/png, image/jpeg or image/webp", i, p.MIME)
		}
	}
	return nil
}

// params encodes everything but the messages as a JSON object, the same for equal
// requests.
func (r *Request) params(model string) ([]byte, error) {
	p := make(map[string]any, len(r.Extra)+9)
	maps.Copy(p, r.Extra)
	p["model"] = model
	if r.Temperature != nil {
		p["temperature"] = *r.Temperature
	}
	if r.TopP != nil {
		p["top_p"] = *r.TopP
	}
	if r.MaxTokens > 0 {
		p["max_tokens"] = r.MaxTokens
	}
	if r.Seed != nil {
		p["seed"] = *r.Seed
	}
	if r.Logprobs {
		p["logprobs"] = true
	}
	if r.TopLogprobs > 0 {
		p["top_logprobs"] = r.TopLogprobs
	}
	if s := r.ResponseFormat; s != nil {
		p["response_format"] = s.format()
	}
	// Maps are encoded in the order of their keys.
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("%w: the parameters of a chat request: %w", rewards.Internal, err)
	}
	return b, nil
}

func (s *Schema) format() map[string]any {
	if s.Schema == nil {
		return map[string]any{"type": "json_object"}
	}
	return map[string]any{"type": "json_schema", "json_schema": map[string]any{
		"name": s.Name, "schema": s.Schema, "strict": true,
	}}
}

// digest is the key a question is remembered under: model, parameters, text and the
// bytes of the pictures, each with its length, so that no two questions run into
// one another.
func digest(params []byte, messages []Message) [sha256.Size]byte {
	h := sha256.New()
	write(h, params)
	for _, m := range messages {
		write(h, []byte(m.Role))
		write(h, binary.LittleEndian.AppendUint64(nil, uint64(len(m.Parts))))
		for _, p := range m.Parts {
			write(h, []byte(p.Text))
			write(h, []byte(p.MIME))
			write(h, p.Image)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func write(h hash.Hash, b []byte) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
	_, _ = h.Write(n[:]) // a hash never fails
	_, _ = h.Write(b)
}

// body is the request as it is sent: params with the messages in it.
func body(params []byte, messages []Message) []byte {
	b := make([]byte, 0, size(params, messages))
	b = append(b, params[:len(params)-1]...) // without the closing brace
	b = append(b, `,"messages":[`...)
	for i, m := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"role":"`...)
		b = append(b, m.Role...)
		b = append(b, `","content":`...)
		b = appendContent(b, m.Parts)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

// appendContent writes a message of one text as a string: some chat templates know
// no other form for a system message.
func appendContent(b []byte, parts []Part) []byte {
	if len(parts) == 1 && parts[0].Image == nil {
		return appendString(b, parts[0].Text)
	}
	b = append(b, '[')
	for i, p := range parts {
		if i > 0 {
			b = append(b, ',')
		}
		if p.Image == nil {
			b = append(b, `{"type":"text","text":`...)
			b = append(appendString(b, p.Text), '}')
			continue
		}
		b = append(b, `{"type":"image_url","image_url":{"url":"data:`...)
		b = append(b, p.MIME...)
		b = append(b, `;base64,`...)
		b = base64.StdEncoding.AppendEncode(b, p.Image)
		b = append(b, `"}}`...)
	}
	return append(b, ']')
}

func appendString(b []byte, s string) []byte {
	var w strings.Builder
	e := json.NewEncoder(&w)
	e.SetEscapeHTML(false) // a prompt in tags is shorter, and readable in the engine's log
	if err := e.Encode(s); err != nil {
		return append(b, `""`...) // a string can always be encoded
	}
	return append(b, strings.TrimSuffix(w.String(), "\n")...)
}

// size is about the length of body, and never less by much.
func size(params []byte, messages []Message) int64 {
	n := int64(len(params)) + 32
	for _, m := range messages {
		n += 64
		for _, p := range m.Parts {
			n += 64 + int64(len(p.Text)) + int64(len(p.Text)/8) + int64(base64.StdEncoding.EncodedLen(len(p.Image)))
		}
	}
	return n
}

// tokens estimates what a question and its longest answer take: 4 bytes of text a
// token, and perImage for each picture.
func (r *Request) tokens(perImage int) int {
	n := r.MaxTokens
	for _, m := range r.Messages {
		for _, p := range m.Parts {
			if p.Image != nil {
				n += perImage
			}
			n += len(p.Text) / 4
		}
	}
	return n
}
