package server_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/testkit/memqueue"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a gateway with one worker behind a server on a loopback port.
type site struct {
	*server.Server

	t      *testing.T
	loop   *loop.Manager
	engine *memqueue.Queue
	url    string
	client *http.Client

	mu    sync.Mutex
	seen  []*rewards.Sample // what the scorers were given, without media
	looks []string          // what the media of the looks profile's samples were
	calls map[string]int    // by profile

	started   chan struct{} // one element when the slow scorer begins
	release   chan struct{} // closed to let the slow scorer answer
	cancelled chan struct{} // one element when the slow scorer was cancelled
}

// siteOptions change what a site is made of.
type siteOptions struct {
	server   func(*server.Options)
	loop     loop.Config
	policies map[string]rewards.SamplePolicy
	workers  int // defaults to 1; -1: none
	bare     bool
}

func newSite(t *testing.T, o siteOptions) *site {
	t.Helper()
	s := &site{
		t: t, calls: map[string]int{}, engine: memqueue.New(1, time.Minute),
		started: make(chan struct{}, 1024), release: make(chan struct{}), cancelled: make(chan struct{}, 1024),
	}
	scorers := s.scorers()
	managers := map[string]*rewards.Manager{}
	var profiles []server.Profile
	o.loop.OnSampleFailure = o.policies
	for name, sc := range scorers {
		m, err := rewards.NewManager(rewards.ManagerConfig{
			Components: []rewards.Component{{Key: "main", Weight: 1, Required: true, Scorer: s.note(name, sc)}}, Single: true, OnSampleFailure: o.policies[name],
		})
		require.NoError(t, err)
		managers[name] = m
		o.loop.Profiles = append(o.loop.Profiles, name)
		p := server.Profile{Name: name, Components: []server.Component{{Key: "main", Weight: 1, Required: true}}}
		if name == "geneval" {
			p.Extra = []wire.ExtraKey{{Name: "strict_reward", Kind: rewards.Number}}
		}
		if name == "llava" || name == "brief" {
			p.Extra = []wire.ExtraKey{{Name: "answer", Kind: rewards.String}}
		}
		if name == "llava" {
			for _, name := range []string{"precision", "recall", "f1"} {
				p.Extra = append(p.Extra, wire.ExtraKey{Name: name, Kind: rewards.Number})
			}
		}
		profiles = append(profiles, p)
	}
	registry := prometheus.NewRegistry()
	m, err := loop.New(loop.Options{Config: o.loop, Queue: s.engine, Presence: s.engine, Metrics: registry})
	require.NoError(t, err)
	s.loop = m
	m.Start(t.Context())
	decoder, err := media.New(media.Config{})
	require.NoError(t, err)
	var stop []func()
	if o.workers == 0 {
		o.workers = 1
	}
	for i := range o.workers {
		w, err := workers.New(workers.Options{
			Config: workers.Config{ID: fmt.Sprintf("w%d", i)},
			Source: s.engine.NewSource(fmt.Sprintf("w%d", i)), Gateway: m, Profiles: rig.Served(managers, 8), Decoder: decoder,
		})
		require.NoError(t, err)
		w.Start(t.Context())
		stop = append(stop, w.Stop)
	}
	opts := server.Options{Loop: m, Presence: s.engine, Profiles: profiles, Version: "v0-test", Gatherer: registry, Metrics: registry}
	if o.server != nil {
		o.server(&opts)
	}
	opts.Config.Listen = cmp.Or(opts.Config.Listen, "127.0.0.1:0")
	s.Server, err = server.New(opts)
	require.NoError(t, err)
	transport := &http.Transport{}
	s.client = &http.Client{Transport: transport}
	if !o.bare {
		require.NoError(t, s.Start(t.Context(), nil))
		s.url = "http://" + s.Addr().String()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.Stop(ctx) // some tests have stopped it, or leave a request behind
		m.Stop()
		for _, f := range stop {
			f()
		}
		transport.CloseIdleConnections()
	})
	return s
}

var errClass = map[string]rewards.Class{
	"fail-bad_input": rewards.BadInput, "fail-timeout": rewards.Timeout, "fail-crashed": rewards.Crashed,
	"fail-unavailable": rewards.Unavailable, "fail-invalid_score": rewards.InvalidScore, "fail-internal": rewards.Internal,
}

// scorers are the profiles of a site.
func (s *site) scorers() map[string]rewards.Scorer {
	m := map[string]rewards.Scorer{
		// The default counts what it gets, so that every sample has its own score.
		"": rewards.ScorerFunc(func(_ context.Context, sample *rewards.Sample) (rewards.Score, error) {
			return rewards.Score{Value: expected(sample.Prompt, data(sample)...)}, nil
		}),
		"pixels": rewards.ScorerFunc(func(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
			v, err := sample.Visual()
			if err != nil {
				return rewards.Score{}, err
			}
			px, err := v.Pixels(ctx)
			if err != nil {
				return rewards.Score{}, err
			}
			return rewards.Score{Value: float64(px.Width * px.Height * px.Count)}, nil
		}),
		"geneval": rewards.ScorerFunc(func(_ context.Context, sample *rewards.Sample) (rewards.Score, error) {
			if sample.Prompt == "undecided" {
				return rewards.Score{Value: 0.5}, nil // the extra key that it declares is missing
			}
			return rewards.Score{Value: 0.5, Extra: map[string]any{"strict_reward": float64(len(sample.Media))}}, nil
		}),
		"slow": rewards.ScorerFunc(func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
			s.started <- struct{}{}
			select {
			case <-s.release:
				return rewards.Score{Value: 7}, nil
			case <-ctx.Done():
				s.cancelled <- struct{}{}
				return rewards.Score{}, ctx.Err()
			}
		}),
		// Half fails where the prompt asks for it.
		"picky": rewards.ScorerFunc(func(_ context.Context, sample *rewards.Sample) (rewards.Score, error) {
			if sample.Prompt == "fail" {
				return rewards.Score{}, fmt.Errorf("%w: asked to fail", rewards.BadInput)
			}
			return rewards.Score{Value: 1}, nil
		}),
		// Looks writes down what the media are.
		"looks": rewards.ScorerFunc(func(_ context.Context, sample *rewards.Sample) (rewards.Score, error) {
			text := make([]string, 0, len(sample.Media))
			for _, m := range sample.Media {
				text = append(text, fmt.Sprintf("%s %s %s %s %v %q", m.Kind, m.Encoding, m.Layout, m.DType, m.Shape, append([][]byte{m.Data}, m.Frames...)))
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.looks = append(s.looks, strings.Join(text, "; "))
			return rewards.Score{Value: 0.25}, nil
		}),
		"extras": rewards.ScorerFunc(func(_ context.Context, sample *rewards.Sample) (rewards.Score, error) {
			return rewards.Score{Value: float64(len(sample.Response)), Extra: map[string]any{
				"zeta": 2.5, "alpha": int64(3), "flag": true, "text": "no number", "absent": nil,
			}}, nil
		}),
		"llava": rewards.ScorerFunc(func(_ context.Context, sample *rewards.Sample) (rewards.Score, error) {
			truth, _ := sample.Truth()
			extra := map[string]any{"answer": "to " + sample.Prompt, "precision": 0.125, "recall": float64(len(truth)), "f1": 0.75}
			switch sample.Prompt {
			case "unmeasured":
				delete(extra, "recall")
			case "garbled":
				extra["answer"] = "\xff"
			case "endless":
				extra["answer"] = strings.Repeat("x", wire.MaxServerControlBytes)
			case "fail":
				return rewards.Score{}, fmt.Errorf("%w: asked to fail", rewards.BadInput)
			}
			return rewards.Score{Value: 0.5, Extra: extra}, nil
		}),
		"brief": rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) {
			return rewards.Score{Value: 1, Extra: map[string]any{"answer": "yes"}}, nil
		}),
		"panic": rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) { panic("scorer") }),
	}
	for name, class := range errClass {
		m[name] = rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) {
			return rewards.Score{}, fmt.Errorf("%w: on purpose", class)
		})
	}
	m["fail-permanent"] = rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{}, rewards.Permanent(rewards.BlameDependency, fmt.Errorf("%w: the key was refused", rewards.Unavailable))
	})
	return m
}

// note records what a profile's scorer is given.
func (s *site) note(name string, sc rewards.Scorer) rewards.Scorer {
	return rewards.ScorerFunc(func(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
		own := *sample
		own.Media = nil
		own.GroundTruth, own.ExtraInfo = bytes.Clone(own.GroundTruth), bytes.Clone(own.ExtraInfo)
		s.mu.Lock()
		s.seen = append(s.seen, &own)
		s.calls[name]++
		s.mu.Unlock()
		return sc.Score(ctx, sample)
	})
}

// succeed scores a sample, so that the worker of a test that only fails on purpose is
// not taken out for seconds.
func (s *site) succeed() {
	s.t.Helper()
	require.Equal(s.t, http.StatusOK, s.post("/rm/extras", fmt.Appendf(nil, `{"prompt": "", "response": %q}`, rand.Text())).StatusCode)
}

func (s *site) called(profile string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[profile]
}

// byPrompt returns the sample that a scorer was given with a prompt.
func (s *site) byPrompt(prompt string) *rewards.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sample := range s.seen {
		if sample.Prompt == prompt {
			return sample
		}
	}
	require.Failf(s.t, "no sample", "prompt %q", prompt)
	return nil
}

func data(s *rewards.Sample) [][]byte {
	var all [][]byte
	for _, m := range s.Media {
		if m.Data != nil {
			all = append(all, m.Data)
		}
		all = append(all, m.Frames...)
	}
	return all
}

// expected is the default profile's score.
func expected(prompt string, pictures ...[]byte) float64 {
	h := uint32(2166136261)
	add := func(b []byte) {
		for _, c := range b {
			h = (h ^ uint32(c)) * 16777619
		}
		h = (h ^ 0xff) * 16777619
	}
	for _, p := range pictures {
		add(p)
	}
	add([]byte(prompt))
	return float64(h) / (1 << 32)
}

// reply is an answer, read to its end.
type reply struct {
	*http.Response

	body []byte
}

func (s *site) do(req *http.Request) reply {
	s.t.Helper()
	resp, err := s.client.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return reply{resp, body}
}

func (s *site) request(ctx context.Context, method, path string, body []byte, header ...string) *http.Request {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	require.NoError(s.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

func (s *site) post(path string, body []byte, header ...string) reply {
	s.t.Helper()
	return s.do(s.request(s.t.Context(), http.MethodPost, path, body, header...))
}

func (s *site) get(path string, header ...string) reply {
	s.t.Helper()
	return s.do(s.request(s.t.Context(), http.MethodGet, path, nil, header...))
}

// dict decodes a pickled answer.
func (r reply) dict(t *testing.T) *pickle.Dict {
	t.Helper()
	require.Equal(t, "application/octet-stream", r.Header.Get("Content-Type"))
	v, err := pickle.Decode(r.body, pickle.Limits{})
	require.NoError(t, err, "%q", r.body)
	d, ok := v.(*pickle.Dict)
	require.True(t, ok)
	return d
}

// refused requires a pickled error with a status and returns it.
func (r reply) refused(t *testing.T, status int) (message string, failed []int64) {
	t.Helper()
	require.Equal(t, status, r.StatusCode, "%q", r.body)
	d := r.dict(t)
	v, ok := d.Get("error")
	require.True(t, ok)
	message, ok = v.(string)
	require.True(t, ok)
	require.True(t, status == http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "", "Retry-After with %d", status)
	if v, ok := d.Get("failed"); ok {
		items, _ := pickle.Items(v)
		for _, it := range items {
			failed = append(failed, it.(int64)) //nolint:forcetypeassert // fails the test
		}
	}
	return message, failed
}

// scores requires a pickled success and returns its scores.
func (r reply) scores(t *testing.T) []float64 {
	t.Helper()
	require.Equal(t, http.StatusOK, r.StatusCode, "%q", r.body)
	d := r.dict(t)
	var lists [][]float64
	for _, key := range []string{"scores", "outputs"} {
		v, ok := d.Get(key)
		require.True(t, ok, key)
		require.IsType(t, &pickle.List{}, v, "%s must be a plain list", key)
		var list []float64
		for _, it := range v.(*pickle.List).Items { //nolint:forcetypeassert // checked a line above
			require.IsType(t, float64(0), it, key)
			list = append(list, it.(float64)) //nolint:forcetypeassert // likewise
		}
		lists = append(lists, list)
	}
	require.Equal(t, lists[0], lists[1])
	return lists[0]
}

// pickled encodes {key: value, …}.
func pickled(t *testing.T, kv ...any) []byte {
	t.Helper()
	b, err := pickle.Encode(dictOf(kv...))
	require.NoError(t, err)
	return b
}

func dictOf(kv ...any) *pickle.Dict {
	d := &pickle.Dict{}
	for i := 0; i < len(kv); i += 2 {
		d.Items = append(d.Items, pickle.Pair{Key: kv[i], Value: kv[i+1]})
	}
	return d
}

// jpegs returns n different byte strings that begin as JPEGs do.
func jpegs(n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = fmt.Appendf([]byte("\xff\xd8\xff\xe0"), "picture %d", i)
	}
	return list
}

// golden opens the golden folder, or skips.
func golden(t *testing.T, parts ...string) string {
	t.Helper()
	root := os.Getenv("REWARDLOOP_GOLDEN")
	if root == "" {
		root = filepath.Join("..", "testdata", "golden")
	}
	path := filepath.Join(append([]string{root}, parts...)...)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		t.Skipf("%s is missing: set REWARDLOOP_GOLDEN to a folder that has it", path)
	}
	return path
}
