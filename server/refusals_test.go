package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/wire"
)

func TestEveryProtocolRefusesABodyThatItDoesNotReadByName(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Config.BatchSamples, o.Config.JSONBytes = 4, 1<<20 }})
	pic := b64(jpegs(1)[0])
	raw := `{"b64": "AAAA", "encoding": "raw", "layout": "HWC", "dtype": "U8", "shape": [1, 1, 3]}`
	five := strings.Repeat(`"q",`, 4) + `"q"`
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/score", `{"images": [{"b64": 7}]}`, 400, "want base64"},
		{"/v1/score", `{"prompt": "a cat", "image": "cat.png"}`, 400, `image: unknown key: pictures go into "images"`},
		{"/v1/score", `{"prompt": "a cat", "image": "cat.png"}`, 400, `a picture is {"b64": "its bytes in base64"}, or {"file": "name"}`},
		{"/v1/score", `{"images": ["cat.png"]}`, 400, `want an object: found "cat.png"; a picture is {"b64"`},
		{"/v1/score", `{"images": [{"path": "cat.png"}]}`, 400, `path: unknown key: a picture is {"b64"`},
		{"/v1/score", `{"images": [{"url": "http://a/b.png"}]}`, 400, "opens neither paths nor URLs"},
		{"/v1/score", `{"promt": "a cat"}`, 400, "promt: unknown key"},
		{"/v1/score", `{"images": [{"b64": "\/\u00"}]}`, 400, "not JSON"},
		{"/v1/score", `{"images": [{"b64": "` + pic + `", "layout": "HWC"}]}`, 400, `go with "encoding": "raw"`},
		{"/v1/score", `{"images": [{"file": 7}]}`, 400, "want a string"},
		{"/v1/score", `{"videos": [{"frames": [` + raw + `]}]}`, 400, "raw videos go over /v1/stream"},
		{"/v1/score", `{"videos": [{"frames": [{}]}]}`, 400, "either"},
		{"/v1/score", `{"videos": [{"frames": [], "fps": "8"}]}`, 400, "want a number"},
		{"/v1/score", `{"videos": [{"frames": [], "speed": 8}]}`, 400, "speed: unknown key"},
		{"/v1/score", `{"samples": [{}], "on_sample_failure": 7}`, 400, "want a string"},
		{"/score", `{"requests"`, 400, "not JSON"},
		{"/score", `{"requests": [{"histories": []}]}`, 400, "histories: unknown key"},
		{"/score", `{"requests": [{"history": [], "required_rewards": [7]}]}`, 400, "want a string"},
		{"/score", `{"requests": [{"history": {}, "required_rewards": []}]}`, 400, "want an array"},
		{"/compute", `{"prompt"`, 400, "not JSON"},
		{"/compute", `{"prompt": [` + five + `]}`, 413, "more than 4"},
		{"/compute", `{"prompt": ["a", "b", "c"], "kwargs": {"text": "` + strings.Repeat("x", 400_000) + `"}}`, 413, "kwargs become"},
		{"/get_reward", `{"query"`, 400, "not JSON"},
		{"/get_reward", `{"query": [` + five + `]}`, 413, "more than 4"},
		{"/rm", `{"prompt"`, 400, "not JSON"},
		{"/rm", `[{"prompt": "", "response": ""}` + strings.Repeat(`, {"prompt": "", "response": ""}`, 4) + `]`, 413, "more than 4"},
	} {
		_, message := s.post(c.path, []byte(c.body)).jsonError(t, c.status)
		assert.Contains(t, message, c.want, "%s %.60s", c.path, c.body)
	}
	_, cut := s.post("/v1/score", []byte("--x\r\nContent-Disposition: form-data; name=\"cut\"\r\n\r\nno end"),
		"Content-Type", "multipart/form-data; boundary=x").jsonError(t, 400)
	assert.Contains(t, cut, `multipart "cut": unexpected EOF`)
	for kind, want := range map[string]string{
		"multipart/form-data; boundary":   "content-type",
		"multipart/form-data; boundary=x": "has no name",
	} {
		_, message := s.post("/v1/score", []byte("--x\r\n\r\nno name\r\n--x--\r\n"), "Content-Type", kind).jsonError(t, 400)
		assert.Contains(t, message, want)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Empty(t, s.calls, "nothing was scored")
}

func TestBase64WithEscapedSlashesIsRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	pic := jpegs(1)[0]
	escaped := strings.ReplaceAll(b64(pic), "/", `\/`)
	require.Contains(t, escaped, `\/`)
	got := s.post("/v1/score", []byte(`{"prompt": "p", "images": [{"b64": "`+escaped+`"}]}`)).results(t)
	assert.InDelta(t, expected("p", pic), *got[0].RewardScore, 0)
}

func TestTensorsThatAreNoneAreRefusedByName(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	one := []any{"latents", "F32", []int{1, 1, 1, 1}, floats(1, 1)}
	var many []any
	for i := range 64 {
		many = append(many, fmt.Sprint("t", i), "F32", []int{1}, floats(1, 1))
	}
	for want, more := range map[string][]any{
		"more than 63 tensors":     many,
		"name has 1 to 512":        {"", "F32", []int{1}, floats(1, 1)},
		"more than 8 axes":         {"x", "F32", []int{1, 1, 1, 1, 1, 1, 1, 1, 1}, floats(1, 1)},
		"name has 1 to 512 bytes":  {strings.Repeat("x", 513), "F32", []int{1}, floats(1, 1)},
		"the first axis must be":   {"x", "F32", []int{2}, floats(1, 2)},
		`no tensor "latents"`:      nil,
		`"u" has the shape [1 1 1`: {"u", "F32", []int{1, 1, 1, 1, 1, 1}, floats(1, 1)},
	} {
		all := append(append([]any{}, one...), more...)
		if more == nil {
			all = []any{"u", "F32", []int{1}, floats(1, 1)}
		}
		_, message := s.post("/latent/looks", tensors(all...), drm, "1").jsonError(t, 400)
		assert.Contains(t, message, want)
	}
}

func TestPicklesThatAreNotWhatTheyShouldBeAreRefusedByName(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	pics := jpegs(2)
	tags := func(n int) []any {
		var list []any
		for i := range n {
			list = append(list, dictOf("tag", fmt.Sprint("t", i)))
		}
		return list
	}
	two := tags(2)
	for _, c := range []struct {
		path   string
		body   []any
		status int
		want   string
	}{
		{"/", []any{"images", pics, "prompts", []any{1, 2}}, 400, "prompts"},
		{"/", []any{"images", pics, "metadata", []any{1, 2}}, 400, "want a dict"},
		{"/", []any{"images", pics, "metadata", "text"}, 400, "want a dict"},
		{"/", []any{"images", pics, "metadata", []any{dictOf()}}, 400, "1 entries for 2 images"},
		{"/", []any{"images", pics, "metadata", dictOf("mask", []byte("raw"))}, 400, `metadata: `},
		{"/", []any{"images", pics, "metadata", []any{dictOf("ground_truth", strings.Repeat("x", 2<<20)), nil}}, 413, "ground_truth of"},
		{"/", []any{"images", pics, "metadata", []any{dictOf("note", strings.Repeat("x", 2<<20)), nil}}, 413, "metadata of"},
		{"/", []any{"images", pics, "metadata", dictOf("ground_truth", strings.Repeat("x", 2<<20))}, 413, "ground_truth of"},
		{"/", []any{"images", pics, "metadata", dictOf("ground_truth", []any{strings.Repeat("x", 2<<20), "b"})}, 413, "ground_truth of"},
		{"/scorers/geneval", []any{"images", pics, "meta_datas", []any{1, 2}}, 400, "meta_datas"},
		{"/scorers/geneval", []any{"images", pics, "meta_datas", two[:1]}, 400, "1 entries for 2 images"},
		{"/scorers/geneval", []any{"images", pics, "meta_datas", two, "only_strict", "yes"}, 400, "want a bool"},
		{"/scorers/geneval", []any{"images", pics, "meta_datas", []any{dictOf(), dictOf()}}, 400, "has no tag"},
		{"/scorers/geneval", []any{"images", pics[:1], "meta_datas", []any{dictOf("tag", "t", "mask", []byte("raw"))}}, 400, "meta_datas: "},
		{"/scorers/geneval", []any{"images", jpegs(59), "meta_datas", tags(59)}, 400, "65 different tags"},
		{"/scorers/geneval", []any{"images", pics[:1], "meta_datas", []any{dictOf("tag", "t", "note", strings.Repeat("x", 2<<20))}}, 413, "meta_datas of"},
		{"/scorers/llava", []any{"images", pics, "queries", []any{[]string{"a"}, []string{"b"}}, "answers", "text"}, 400, "answers"},
	} {
		message, _ := s.post(c.path, pickled(t, c.body...)).refused(t, c.status)
		assert.Contains(t, message, c.want)
	}
	assert.Len(t, s.post("/", pickled(t, "images", pics, "metadata", []any{})).scores(t), 2, "no metadata is none")
}

func TestAFailedBatchNamesThreeOfItsSamplesAndCountsTheOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	message, failed := s.post("/scorers/picky", pickled(t, "images", jpegs(5), "prompts", []string{"fail", "fail", "fail", "fail", "fine"})).refused(t, 422)
	assert.Equal(t, []int64{0, 1, 2, 3}, failed)
	assert.Equal(t, "bad_input: 4 of 5 samples have no score: samples 0, 1, 2 and 1 more: main: bad_input: asked to fail", message, "a reason is read once")
}

func TestWhatIsNotKnownIsSaidOnceAndWithWhatIs(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	s.succeed()
	for _, path := range []string{"/v1/runs/qwen/steps/1", "/v1/runs/qwen/steps/1/rewards", "/v1/runs/qwen/steps/1/trace"} {
		code, message := s.get(path).jsonError(t, http.StatusNotFound)
		assert.Equal(t, "not_found", code)
		assert.Equal(t, `run "qwen" is unknown here; known runs: _slime`, message, path)
	}
	_, message := s.get("/v1/runs/_slime/steps/7").jsonError(t, http.StatusNotFound)
	assert.Equal(t, `step 7 (train) of run "_slime" is unknown here`, message)
	_, message = s.post("/v1/score", []byte(`{"reward": "beauty"}`)).jsonError(t, http.StatusUnprocessableEntity)
	assert.Regexp(t, `^no sample was accepted; sample 0: unknown_reward: no reward named "beauty", want one of \["[^"]+"`, message)
}

// One sample can never be scored and the others could be in a moment: the client is told
// to come again, and with what.
func TestARequestOfWhichNothingWasAcceptedIsTransientIfAnySampleIs(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{loop: loop.Config{MaxBytes: 1 << 20, MessageBytes: 1 << 20, CreditBytes: 1 << 18}})
	big := make([]byte, 900<<10)
	copy(big, "\xff\xd8\xff")
	first := s.background("/v1/score", []byte(`{"reward": "slow", "images": [{"b64": "`+b64(big)+`"}]}`))
	within20(t, s.started)
	big[100] = 1
	r := s.post("/v1/score", []byte(`{"samples": [{"images": [{"b64": "R0lG"}]}, {"images": [{"b64": "`+b64(big)+`"}]}]}`))
	code, message := r.jsonError(t, http.StatusServiceUnavailable)
	assert.Equal(t, string(rewards.Unavailable), code)
	assert.Contains(t, message, "no sample was accepted; sample 1: ")
	assert.Equal(t, "2", r.Header.Get("Retry-After"))
	assert.Contains(t, string(r.body), `"failed":[0,1]`)

	// UniRL's clients find no reward's error in a 200 that could be asked for again.
	r = s.post("/score", []byte(`{"requests": [`+unirlBody("p", b64(big), "picky", "extras")+`]}`))
	code, message = r.jsonError(t, http.StatusServiceUnavailable)
	assert.Equal(t, string(rewards.Unavailable), code)
	assert.Contains(t, message, "no sample was accepted; sample 0: ")
	assert.Equal(t, "2", r.Header.Get("Retry-After"))
	close(s.release)
	<-first
}

// background posts without waiting; the channel is closed with the answer.
func (s *site) background(path string, body []byte) <-chan struct{} {
	done := make(chan struct{})
	go func() { // ends with the answer
		defer close(done)
		resp, err := s.client.Do(s.request(s.t.Context(), http.MethodPost, path, body))
		if err == nil {
			_ = resp.Body.Close()
		}
	}()
	return done
}

func within20[T any](t *testing.T, ch <-chan T) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(20 * time.Second):
		require.Fail(t, "nothing came for 20 s")
	}
}

func TestAReaderOfAStepWhoLeavesIsCountedAsGone(t *testing.T) {
	t.Parallel()
	s := stepped(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.client.Do(s.request(ctx, http.MethodGet, "/v1/runs/"+url.PathEscape("a/b")+"/steps/77/rewards?wait=60", nil)) //nolint:bodyclose // there is none
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool {
		return strings.Contains(string(s.get("/metrics").body), `rewardloop_http_requests_total{code="499",route="/v1/runs/:run/steps/:step/rewards"} 1`)
	}, patience, 5*time.Millisecond)
}

// gone is a loop whose steps have no rows any more.
type gone struct {
	server.Loop
	err error
}

func (g gone) Rewards(context.Context, string, uint64, wire.Fetch) (*wire.Rewards, error) {
	return nil, g.err
}

func TestAStepWhoseRowsAreGoneIsAnsweredWith410AndAStoppedLoopWith503(t *testing.T) {
	t.Parallel()
	for status, err := range map[int]error{
		http.StatusGone:               fmt.Errorf("%w: the rows of step 1 (train) were dropped", rewards.Expired),
		http.StatusServiceUnavailable: loop.ErrStopped,
	} {
		s := newSite(t, siteOptions{server: func(o *server.Options) { o.Loop = gone{o.Loop, err} }})
		r := s.get("/v1/runs/r/steps/1/rewards")
		r.jsonError(t, status)
		assert.Equal(t, status == http.StatusServiceUnavailable, r.Header.Get("Retry-After") != "")
		s.get("/v1/runs/r/steps/x").jsonError(t, http.StatusBadRequest)
		s.get("/v1/runs/r/steps/x/trace").jsonError(t, http.StatusBadRequest)
		s.get("/v1/runs/r/steps/1/rewards?chunk=-1").jsonError(t, http.StatusBadRequest)
	}
}

func TestASelfTestIsRunOnceForAllProbesOfItsTime(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}, 10), make(chan struct{})
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.SelfTest = func(ctx context.Context) error {
			began <- struct{}{}
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}})
	require.Eventually(t, func() bool { return strings.Contains(string(s.get("/v1/workers").body), "ready") }, patience, time.Millisecond)
	assert.Contains(t, string(s.get("/?plain", "Accept", "text/html").body), "no result yet", "the page does not wait for it")
	assert.Contains(t, string(s.get("/?plain", "Accept", "text/html").body), "no result yet")
	close(release)
	for range 3 {
		require.Equal(t, http.StatusOK, s.get("/readyz").StatusCode)
	}
	assert.Len(t, began, 1)
}

func TestAServerWithoutARegistryShowsItsOwnMetrics(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Gatherer, o.Metrics = nil, nil }})
	assert.Contains(t, string(s.get("/metrics").body), "rewardloop_http_connections")
}

func TestAnAddressThatIsTakenIsAnErrorOfStart(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	other := newSite(t, siteOptions{bare: true, server: func(o *server.Options) { o.Config.Listen = s.Addr().String() }})
	require.Nil(t, other.Addr())
	require.Error(t, other.Start(t.Context(), nil))
}

// A conversation's prompt is its last user turn, as text or in parts.
func TestSlimesConversationsEndInTheirLastUserTurn(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	for prompt, want := range map[string]string{
		`[{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]`:                                          "one",
		`[{"role": "user", "content": [{"type": "text", "text": "in "}, {"type": "image"}, {"type": "text", "text": "parts"}]}]`: "in parts",
		`[{"role": "system", "content": "nobody asks"}]`:                                                                         "",
	} {
		require.Equal(t, http.StatusOK, s.post("/rm/extras", []byte(`{"response": "r", "prompt": `+prompt+`}`)).StatusCode)
		s.byPrompt(want)
	}
	_, message := s.post("/rm", []byte(`{"response": "r", "prompt": [{"role": "user", "content": [7]}]}`)).jsonError(t, 400)
	assert.Contains(t, message, "message 0")
}
