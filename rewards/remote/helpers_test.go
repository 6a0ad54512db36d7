package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/remote"
)

// groups hands out one Doer and notes what it was asked for.
type groups struct {
	doer    outbound.Doer
	urls    []string
	options remote.UpstreamOptions
}

func (g *groups) Upstream(urls []string, o remote.UpstreamOptions) (outbound.Doer, error) {
	g.urls, g.options = urls, o
	if g.doer != nil {
		return g.doer, nil
	}
	return &direct{base: urls[0]}, nil
}

// direct is a Doer that sends once, as outbound.Doer says.
type direct struct{ base string }

func (d *direct) Do(ctx context.Context, c *outbound.Call) (*outbound.Answer, error) {
	method := c.Method
	if method == "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, d.base+c.Path, bytes.NewReader(c.Body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rewards.Internal, err)
	}
	req.Header = c.Header.Clone()
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", rewards.Timeout, err)
		}
		return nil, fmt.Errorf("%w: %w", rewards.Unavailable, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rewards.Unavailable, err)
	}
	if int64(len(body)) > c.MaxBytes {
		return nil, fmt.Errorf("%w: the answer is larger than %d bytes", rewards.Internal, c.MaxBytes)
	}
	a := &outbound.Answer{Status: resp.StatusCode, Header: resp.Header, Body: body, Endpoint: d.base, Attempts: 1}
	switch {
	case a.Status/100 == 2:
		return a, c.Check(a)
	case c.Statuses != nil && c.Statuses(a.Status):
		return a, nil
	case a.Status >= 500 || a.Status == http.StatusTooManyRequests || a.Status == http.StatusRequestTimeout:
		return nil, fmt.Errorf("%w: status %d", rewards.Unavailable, a.Status)
	}
	return nil, fmt.Errorf("%w: status %d", rewards.Internal, a.Status)
}

// request is what a service was sent.
type request struct {
	path   string
	header http.Header
	body   []byte
}

// service answers every request with what answer gives and keeps what it was sent.
type service struct {
	*httptest.Server
	mu   sync.Mutex
	sent []request
}

func serve(t *testing.T, answer func(n int, r request) (status int, body []byte)) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got := request{r.URL.Path, r.Header, body}
		s.mu.Lock()
		n := len(s.sent)
		s.sent = append(s.sent, got)
		s.mu.Unlock()
		status, out := answer(n, got)
		w.WriteHeader(status)
		_, _ = w.Write(out)
	}))
	t.Cleanup(s.Close)
	return s
}

// says answers 200 with the same body always.
func says(t *testing.T, body []byte) *service {
	t.Helper()
	return serve(t, func(int, request) (int, []byte) { return http.StatusOK, body })
}

func (s *service) requests() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request(nil), s.sent...)
}

// only is the one request that was sent.
func (s *service) only(t *testing.T) request {
	t.Helper()
	sent := s.requests()
	require.Len(t, sent, 1)
	return sent[0]
}

type options map[string]any

func (o options) with(more options) options {
	out := maps.Clone(o)
	maps.Copy(out, more)
	return out
}

func (o options) raw(t *testing.T) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(o)
	require.NoError(t, err)
	return raw
}

// buildNamed makes a scorer by name; it is closed at the end of the test.
func buildNamed(t *testing.T, name string, g remote.Upstreams, o options) (rewards.Scorer, error) {
	t.Helper()
	var reg rewards.Registry
	for _, s := range remote.Specs(g) {
		reg.Register(s)
	}
	sc, err := reg.Build(name, o.raw(t))
	if c, ok := sc.(rewards.Closer); ok {
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
	}
	return sc, err
}

// scorer makes an http scorer of a service.
func scorer(t *testing.T, s *service, o options) rewards.Scorer {
	t.Helper()
	sc, err := buildNamed(t, "http", &groups{}, options{"url": s.URL}.with(o))
	require.NoError(t, err)
	return sc
}

// pixels is a small picture whose bytes follow from seed.
func pixels(w, h, frames int, seed byte) []byte {
	out := make([]byte, w*h*3*frames)
	for i := range out {
		out[i] = byte(i*7) + seed
	}
	return out
}

func image(t *testing.T, seed byte) *rewards.Media {
	t.Helper()
	return decodable(t, &rewards.Media{
		Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{6, 8, 3}, Data: pixels(8, 6, 1, seed),
	})
}

func video(t *testing.T, frames int) *rewards.Media {
	t.Helper()
	return decodable(t, &rewards.Media{
		Kind: rewards.Video, Layout: rewards.THWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{frames, 6, 8, 3}, Data: pixels(8, 6, frames, 1),
	})
}

func encoded(t *testing.T, e rewards.Encoding, data []byte) *rewards.Media {
	t.Helper()
	return decodable(t, &rewards.Media{Kind: rewards.Image, Encoding: e, DType: "U8", Shape: []int{len(data)}, Data: data})
}

func decodable(t *testing.T, m *rewards.Media) *rewards.Media {
	t.Helper()
	d, err := media.New(media.Config{})
	require.NoError(t, err)
	m.SetDecoder(d)
	return m
}

// file is a frame of the pictures above as a file.
func file(t *testing.T, format string, m *rewards.Media, frame int) []byte {
	t.Helper()
	px, err := m.Pixels(t.Context())
	require.NoError(t, err)
	var out []byte
	if format == "jpeg" {
		out, err = media.EncodeJPEG(px, frame, 75)
	} else {
		out, err = media.EncodePNG(px, frame)
	}
	require.NoError(t, err)
	return out
}

func sample(t *testing.T) *rewards.Sample {
	t.Helper()
	return &rewards.Sample{
		ID: "s1", Prompt: "a red fox", DataSource: "src", GroundTruth: json.RawMessage(`"the truth"`),
		ExtraInfo: json.RawMessage(`{"caption":"a fox","n":3,"deep":{"k":[1,2.5]}}`), Media: []*rewards.Media{image(t, 0)},
	}
}

// pickled is a Python value as the services send it.
func pickled(t *testing.T, v pickle.Value) []byte {
	t.Helper()
	out, err := pickle.Encode(v)
	require.NoError(t, err)
	return out
}

func dict(pairs ...any) *pickle.Dict {
	d := &pickle.Dict{}
	for i := 0; i < len(pairs); i += 2 {
		d.Items = append(d.Items, pickle.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func list(items ...pickle.Value) *pickle.List { return &pickle.List{Items: items} }

func unpickle(t *testing.T, body []byte) pickle.Value {
	t.Helper()
	v, err := pickle.Decode(body, pickle.Limits{})
	require.NoError(t, err)
	return v
}

// golden reads a fixture that a real Python wrote.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	dir := os.Getenv("REWARDLOOP_GOLDEN")
	if dir == "" {
		dir = filepath.Join("..", "..", "testdata", "golden")
	}
	data, err := os.ReadFile(filepath.Join(dir, "pickle", name))
	if os.IsNotExist(err) {
		t.Skipf("the golden pickles are not there: %v", err)
	}
	require.NoError(t, err)
	return data
}

// requireFailure checks the class of a failure and that nothing was scored.
func requireFailure(t *testing.T, want rewards.Class, score rewards.Score, err error, says ...string) {
	t.Helper()
	require.Error(t, err)
	assert.Equal(t, want, rewards.ClassOf(err), err.Error())
	assert.Equal(t, rewards.Score{}, score, "nothing is made up")
	for _, text := range says {
		require.ErrorContains(t, err, text)
	}
	assert.Less(t, len(err.Error()), 2000, "what is quoted is bounded")
}

// fixed answers everything alike, without a network.
type fixed struct {
	status int
	body   []byte
}

func (f fixed) Do(_ context.Context, c *outbound.Call) (*outbound.Answer, error) {
	a := &outbound.Answer{Status: f.status, Body: f.body}
	if f.status/100 != 2 {
		if c.Statuses(f.status) && f.status != http.StatusBadRequest {
			return a, nil
		}
		return nil, fmt.Errorf("%w: status %d", rewards.Unavailable, f.status)
	}
	return a, c.Check(a)
}
