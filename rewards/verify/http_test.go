package verify_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/verify"
)

func TestARequestIsFilledInAndItsAnswerIsTheResult(t *testing.T) {
	t.Parallel()
	srv := says(t, http.StatusOK, ` {"found": [1, 2.50], "who": "<x>"} `)
	v := asking(t, "http", srv, options{"request": options{
		"q": "{prompt}", "text": "{{{id}}} {response} of {ground_truth.n}: {extra_info.deep}", "truth": "{ground_truth}",
		"list": []any{"{extra_info.n}", 1.5, true, nil, "{extra_info.deep.k.1.x}", "{data_source}", ""},
	}})
	result, err := v.Verify(t.Context(), sample())
	require.NoError(t, err)
	letters(t, `{"found": [1, 2.50], "who": "<x>"}`, result)
	assert.Equal(t, map[string]any{
		"q": "how many <singers>?", "text": `{s1} 12 & more of 12: {"k":[1,{"x":null}]}`, "truth": map[string]any{"db": "concerts", "n": 12.0},
		"list": []any{3.5, 1.5, true, nil, nil, "spider", ""},
	}, srv.only(t))
}

func TestWhatTheSampleLacksIsABadInputAndNothingIsSent(t *testing.T) {
	t.Parallel()
	srv := says(t, http.StatusOK, `1`)
	for placeholder, says := range map[string]string{
		"{extra_info.missing}": "no extra_info.missing", "{ground_truth.db.x}": "no ground_truth.db.x",
		"a {extra_info.deep.k.2}": "no extra_info.deep.k.2", "{extra_info.deep.k.-1}": "no extra_info.deep.k.-1",
	} {
		result, err := asking(t, "http", srv, options{"request": options{"x": []string{placeholder}}}).Verify(t.Context(), sample())
		fails(t, rewards.BadInput, result, err, says)
	}
	v := asking(t, "http", srv, options{"request": options{"x": "{ground_truth}"}})
	result, err := v.Verify(t.Context(), &rewards.Sample{ID: "s"})
	fails(t, rewards.BadInput, result, err, "no ground_truth")
	result, err = v.Verify(t.Context(), &rewards.Sample{ID: "s", GroundTruth: json.RawMessage(`{"a":`)})
	fails(t, rewards.BadInput, result, err, "ground_truth is not JSON")
	assert.Empty(t, srv.requests())
}

func TestAnAnswerThatFailsIsAFailureOfItsClass(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status   int
		body     string
		class    rewards.Class
		requests int
	}{
		"busy":             {http.StatusServiceUnavailable, "", rewards.Unavailable, 2},
		"too many":         {http.StatusTooManyRequests, "", rewards.Unavailable, 2},
		"a page":           {http.StatusOK, "<html>starting</html>", rewards.Unavailable, 2},
		"half of it":       {http.StatusOK, `{"a": [1, `, rewards.Unavailable, 2},
		"nothing":          {http.StatusNoContent, "", rewards.Unavailable, 2},
		"not this sample":  {http.StatusUnprocessableEntity, "no such db", rewards.BadInput, 1},
		"not found":        {http.StatusNotFound, "no such path", rewards.Internal, 1},
		"not allowed":      {http.StatusUnauthorized, "who?", rewards.Internal, 1},
		"more than 64 KiB": {http.StatusOK, `"` + strings.Repeat("x", verify.MaxResult) + `"`, rewards.Internal, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := says(t, tt.status, tt.body)
			result, err := asking(t, "http", srv, options{"attempts": 2, "request": options{"x": "{id}"}}).Verify(t.Context(), sample())
			fails(t, tt.class, result, err)
			assert.Len(t, srv.requests(), tt.requests)
		})
	}
}

func TestAnAnswerThatIsBrokenOnceIsAskedForAgain(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(n int) (int, string) {
		if n == 0 {
			return http.StatusOK, `{"a":`
		}
		return http.StatusOK, `{"a":1}`
	})
	result, err := asking(t, "http", srv, options{"request": options{"x": "{id}"}}).Verify(t.Context(), sample())
	require.NoError(t, err)
	letters(t, `{"a":1}`, result)
}

func TestAServiceThatHangsIsATimeout(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(release) })
	v := asking(t, "http", &server{Server: srv}, options{"request": options{"x": "{id}"}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	result, err := v.Verify(ctx, sample())
	fails(t, rewards.Timeout, result, err)
}

func TestRequestsBesideEachOtherKeepTheirSamples(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var got struct{ ID string }
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&got))
		assert.NoError(t, json.NewEncoder(w).Encode(got.ID))
	}))
	t.Cleanup(srv.Close)
	v := asking(t, "http", &server{Server: srv}, options{"request": options{"id": "{id}"}})
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			id := strings.Repeat("x", i+1)
			result, err := v.Verify(t.Context(), &rewards.Sample{ID: id})
			if assert.NoError(t, err) {
				assert.JSONEq(t, `"`+id+`"`, string(result))
			}
		})
	}
	wg.Wait()
}

// noted keeps what a group was asked for.
type noted struct {
	urls    []string
	options service.UpstreamOptions
}

func (n *noted) Upstream(urls []string, o service.UpstreamOptions) (outbound.Doer, error) {
	n.urls, n.options = urls, o
	return nil, nil
}

func TestAddressesReachTheGroup(t *testing.T) {
	t.Parallel()
	var n noted
	_, err := verify.New("http", json.RawMessage(`{"url": "http://a", "urls": ["http://b/x"], "key_file": "/k", "attempts": 3, "attempt_timeout": "5s",
		"concurrency": 4, "rpm": 60, "request": {}}`), &n)
	require.NoError(t, err)
	assert.Equal(t, []string{"http://a", "http://b/x"}, n.urls)
	assert.Equal(t, service.UpstreamOptions{KeyFile: "/k", Concurrency: 4, RPM: 60, Timeout: 5 * time.Second, Attempts: 3}, n.options)
	_, err = verify.New("sandbox_fusion", json.RawMessage(`{"url": "http://a", "run_timeout": 3}`), &n)
	require.NoError(t, err)
	assert.Equal(t, service.UpstreamOptions{Timeout: 16 * time.Second}, n.options, "twice the time of a run, and ten seconds for the way")
}

func TestOptionsThatAreWrongAreAllNamed(t *testing.T) {
	t.Parallel()
	for kind, tt := range map[string]struct {
		options string
		says    []string
	}{
		"http": {
			`{"urls": ["ftp://a", "http://", "http://s3cret:x@b", "http://c", "http://c", "http://d#x"], "key_file": "/k", "headers": {"authorization": "s3cret", "a b": "", "X": "a\nb"},
				"attempts": 21, "attempt_timeout": "soon", "concurrency": -1, "rpm": -1, "score_path": "x", "request": {"a": "{picture}", "b": ["{half", "}"], "c": "{prompt.x}", "d": "{extra_info..x}"}}`,
			[]string{
				"urls[0]: must begin", "urls[1]: names no host", "urls[2]: has a user in addition to key_file", "urls[4]: is a duplicate", "urls[5]", "Authorization is made from key_file",
				`"a b" is not the name`, "X contains a control character", "attempts: is 21", "attempt_timeout: want a duration", "concurrency", "rpm", "score_path: unknown option",
				"{picture}", "unpaired brace", "prompt is text", "two dots",
			},
		},
		"sandbox_fusion": {
			`{"language": "", "run_timeout": "0s", "memory_limit_mb": 0, "max_code_bytes": 0, "attempt_timeout": 3, "continuous": true}`,
			[]string{"url: is missing", "language", "run_timeout", "memory_limit_mb", "max_code_bytes", "attempt_timeout: unknown option", "continuous"},
		},
		"magic": {`{}`, []string{`"magic" is unknown, want one of http, sandbox_fusion, command`}},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			v, err := verify.New(kind, json.RawMessage(tt.options), &noted{})
			require.Error(t, err)
			assert.Nil(t, v)
			for _, text := range tt.says {
				require.ErrorContains(t, err, text)
			}
			assert.NotContains(t, err.Error(), "s3cret")
		})
	}
	for _, request := range []string{`[]`, `"x"`, `null`, `3`} {
		_, err := verify.New("http", json.RawMessage(`{"url": "http://a", "request": `+request+`}`), &noted{})
		require.ErrorContains(t, err, "request: ")
	}
	_, err := verify.New("http", json.RawMessage(`{"url": "http://a", "request": {}}`), nil)
	require.ErrorContains(t, err, "without upstreams")
	_, err = verify.New("http", json.RawMessage(`{} {}`), nil)
	require.ErrorContains(t, err, "more than one JSON value")
}

func TestEveryOptionIsDocumented(t *testing.T) {
	t.Parallel()
	for _, spec := range verify.Specs() {
		assert.NotEmpty(t, spec.Summary)
		for _, o := range spec.Options {
			assert.NotEmpty(t, o.Type+o.Default+o.Doc, o.Name)
			_, err := verify.New(spec.Name, options{o.Name: nil}.raw(t), nil)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "unknown option")
		}
	}
}
