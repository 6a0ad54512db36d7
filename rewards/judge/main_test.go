package judge_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	_ "image/jpeg" // the stub engine looks at what it is sent
	_ "image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/judge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine is a stub that answers chats over HTTP and keeps what it was asked.
type engine struct {
	answer func(n int, q asked) string // the body of the n-th answer, from 1

	mu   sync.Mutex
	seen []asked
}

// asked is a request as the engine understands it.
type asked struct {
	Path     string
	Body     map[string]any
	Messages []struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	} `json:"messages"`
}

// text is the text of the last message, and pictures are its pictures, which must
// come first.
func (a asked) parts(t *testing.T) (text string, pictures []image.Image) {
	t.Helper()
	content := a.Messages[len(a.Messages)-1].Content
	if s, ok := content.(string); ok {
		return s, nil
	}
	for _, p := range content.([]any) {
		part := p.(map[string]any)
		if part["type"] == "text" {
			assert.Empty(t, text, "one text")
			text = part["text"].(string)
			continue
		}
		assert.Empty(t, text, "pictures come before the text")
		url := part["image_url"].(map[string]any)["url"].(string)
		mime, data, ok := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
		require.True(t, ok)
		raw, err := base64.StdEncoding.DecodeString(data)
		require.NoError(t, err)
		img, format, err := image.Decode(bytes.NewReader(raw))
		require.NoError(t, err)
		assert.Equal(t, "image/"+format, mime)
		pictures = append(pictures, img)
	}
	return text, pictures
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	q := asked{Path: r.URL.Path}
	_ = json.Unmarshal(data, &q.Body)
	_ = json.Unmarshal(data, &q)
	e.mu.Lock()
	e.seen = append(e.seen, q)
	n := len(e.seen)
	e.mu.Unlock()
	_, _ = io.WriteString(w, e.answer(n, q))
}

func (e *engine) requests() []asked {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}

// says is a chat completion with a text.
func says(text string) string {
	js, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return `{"choices":[{"message":{"content":` + string(js) + `},"finish_reason":"stop"}]}`
}

// saying is an engine that says these one after the other, and then the last again.
func saying(texts ...string) *engine {
	return &engine{answer: func(n int, _ asked) string { return says(texts[min(n, len(texts))-1]) }}
}

// token is a likely first token and its log probability.
type token struct {
	text    string
	logprob float64
}

// likely is an engine whose first token is one of these.
func likely(tokens ...token) *engine {
	var top []string
	for _, t := range tokens {
		top = append(top, fmt.Sprintf(`{"token":%q,"logprob":%v}`, t.text, t.logprob))
	}
	body := fmt.Sprintf(`{"choices":[{"message":{"content":%q},"logprobs":{"content":[{"token":%q,"logprob":%v,"top_logprobs":[%s]}]}}]}`,
		tokens[0].text, tokens[0].text, tokens[0].logprob, strings.Join(top, ","))
	return &engine{answer: func(int, asked) string { return body }}
}

// httpDoer sends calls to one server by a real HTTP client, one attempt each.
type httpDoer struct {
	url    string
	client *http.Client
}

func (d httpDoer) Do(ctx context.Context, c *outbound.Call) (*outbound.Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+c.Path, bytes.NewReader(c.Body))
	if err != nil {
		return nil, err
	}
	req.Header = c.Header
	resp, err := d.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %w", rewards.Unavailable, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rewards.Unavailable, err)
	}
	a := &outbound.Answer{Status: resp.StatusCode, Body: body}
	return a, c.Check(a)
}

// enginesFunc is a function that is judge.Engines.
type enginesFunc func(e chat.Endpoint) (outbound.Doer, string, error)

func (f enginesFunc) Engine(e chat.Endpoint, _ func(string) outbound.Call) (outbound.Doer, string, error) {
	return f(e)
}

// deps serves e and wires scorers to it.
func deps(t *testing.T, e http.Handler) judge.Deps {
	t.Helper()
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	doer := httpDoer{srv.URL, srv.Client()}
	c, err := chat.New(chat.Config{Model: "default-model"}, doer)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return judge.Deps{
		Clients: chat.ClientsFunc(func(chat.Endpoint) (chat.Chatter, error) { return c, nil }),
		Engines: enginesFunc(func(chat.Endpoint) (outbound.Doer, string, error) { return doer, "default-model", nil }),
	}
}

func registry(d judge.Deps) *rewards.Registry {
	var reg rewards.Registry
	for _, s := range judge.Specs(d) {
		reg.Register(s)
	}
	return &reg
}

func build(t *testing.T, d judge.Deps, name, options string) rewards.Scorer {
	t.Helper()
	s, err := registry(d).Build(name, json.RawMessage(options))
	require.NoError(t, err)
	return s
}

// score builds the scorer against e and scores one sample.
func score(t *testing.T, e http.Handler, name, options string, s *rewards.Sample) (rewards.Score, error) {
	t.Helper()
	return build(t, deps(t, e), name, options).Score(t.Context(), s)
}

// numbered is a decoder of frames whose shade of grey is twice their number.
type numbered struct{ width, height, frames int }

func (n numbered) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) {
	size := n.width * n.height * 3
	rgb := make([]byte, n.frames*size)
	for i := range rgb {
		rgb[i] = byte(i / size * 2)
	}
	return &rewards.Pixels{Width: n.width, Height: n.height, Count: n.frames, RGB: rgb}, nil
}

// frame is the number of a frame that numbered made.
func frame(img image.Image) int {
	r, _, _, _ := img.At(0, 0).RGBA()
	return int(r>>8+1) / 2 // JPEG may be off by one
}

// video is a sample with that many frames; one is an image, none is text.
func video(frames int) *rewards.Sample {
	s := &rewards.Sample{ID: "s1", Prompt: "a cat", DataSource: "set", GroundTruth: json.RawMessage(`"HELLO"`)}
	if frames == 0 {
		return s
	}
	m := &rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw}
	if frames > 1 {
		m.Kind = rewards.Video
	}
	m.SetDecoder(numbered{24, 16, frames})
	s.Media = []*rewards.Media{m}
	return s
}

func quote(s string) json.RawMessage {
	js, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return js
}

// shaded is a decoder of one picture of a shade of grey, twice its number.
type shaded byte

func (n shaded) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) {
	return &rewards.Pixels{Width: 24, Height: 16, Count: 1, RGB: bytes.Repeat([]byte{byte(n) * 2}, 24*16*3)}, nil
}

// tryFunc is a function that is chat.Clients and sees what an engine is tried with.
type tryFunc func(sample chat.Request)

func (f tryFunc) Client(_ chat.Endpoint, sample chat.Request) (chat.Chatter, error) {
	f(sample)
	return chatterFunc(func(context.Context, *chat.Request) (*chat.Reply, error) { return &chat.Reply{}, nil }), nil
}
