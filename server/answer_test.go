package server_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/wire"
)

// flow_grpo's clients obey Retry-After a thousand times: one sample whose reward always
// fails must not hold a trainer for a day.
func TestOnlyWhatWillPassHereAsksForAPause(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{loop: oneAttempt()})
	body := pickled(t, "images", jpegs(1))
	assert.NotEmpty(t, s.post("/scorers/fail-unavailable", body).Header.Get("Retry-After"), "what the reward needs may come back")
	s.succeed()
	for _, class := range []string{"timeout", "crashed"} {
		r := s.post("/scorers/fail-"+class, body)
		r.refused(t, http.StatusServiceUnavailable)
		assert.Empty(t, r.Header.Get("Retry-After"), class)
		assert.Empty(t, s.post("/rm/fail-"+class, []byte(`{"prompt": "a", "response": "b"}`)).Header.Get("Retry-After"), class)
		s.succeed()
	}
	require.NoError(t, s.Drain(t.Context()))
	for _, r := range []reply{s.post("/", body), s.post("/rm", []byte(`{}`)), s.get("/health")} {
		assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
		assert.NotEmpty(t, r.Header.Get("Retry-After"))
	}
}

// logs takes what is logged.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// flow_grpo shows a KeyError, others a status: the reason must be somewhere.
func TestTheLogSaysWhyARequestHasNoScore(t *testing.T) {
	t.Parallel()
	var out logs
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Log = slog.New(slog.NewTextHandler(&out, nil)) }})
	s.post("/scorers/picky", pickled(t, "images", jpegs(2), "prompts", []string{"ok", "fail"})).refused(t, 422)
	assert.Contains(t, out.String(), "a request was answered without a score")
	for _, part := range []string{"route=/scorers/:name", "status=422", "class=bad_input", "failed=[1]", "sample 1: main: ", "request_id="} {
		assert.Contains(t, out.String(), part)
	}
	for range 100 {
		s.post("/scorers/nobody", pickled(t, "images", jpegs(1)))
	}
	assert.Less(t, strings.Count(out.String(), "without a score"), 60, "not all of them, and not none")
}

func TestAFewWarningsPassEachSecondAndTheOthersAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := server.NewSparse(3)
		for i := range 5 {
			missed, ok := w.Allow(time.Now())
			assert.Equal(t, i < 3, ok)
			assert.Zero(t, missed)
		}
		time.Sleep(time.Second)
		missed, ok := w.Allow(time.Now())
		assert.True(t, ok)
		assert.Equal(t, 2, missed)
	})
}

// A profile names its extra keys, and a scorer does not always have them: absence is not
// zero, nor an empty reply.
func TestABatchThatNeedsWhatARewardDidNotReportHasNoAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{
		policies: map[string]rewards.SamplePolicy{"llava": {Policy: rewards.PolicyValue, Value: -1}},
		server: func(o *server.Options) {
			for i := range o.Profiles {
				if o.Profiles[i].Name == "picky" { // whose scorer knows nothing of it
					o.Profiles[i].Extra = []wire.ExtraKey{{Name: "answer", Kind: rewards.String}}
				}
			}
		},
	})
	pics := jpegs(2)
	asking := func(second string) []byte {
		queries := []any{[]string{"q"}, []string{second}}
		return pickled(t, "images", pics, "queries", queries, "answers", queries)
	}
	tagged := func(second string) []byte {
		return pickled(t, "images", pics, "prompts", []string{"p", second}, "meta_datas", []any{dictOf("tag", "colors"), dictOf("tag", "colors")})
	}
	require.Equal(t, http.StatusOK, s.post("/scorers/llava", asking("r")).StatusCode) // the first success settles the keys
	require.Equal(t, http.StatusOK, s.post("/scorers/geneval", tagged("q")).StatusCode)
	for name, c := range map[string]struct {
		path   string
		body   []byte
		want   string
		failed []int64
	}{
		"no reply":       {"picky", pickled(t, "images", pics[:1], "queries", []any{[]string{"q"}}), `question 0: reward "picky" did not report answer`, []int64{0}},
		"a fallback":     {"llava", asking("fail"), `question 1: reward "llava" did not report answer`, []int64{1}},
		"no measure":     {"llava", asking("unmeasured"), `question 1: reward "llava" did not report recall`, []int64{1}},
		"no text":        {"llava", asking("garbled"), "the answer cannot be pickled", nil},
		"nothing strict": {"geneval", tagged("undecided"), `sample 1: reward "geneval" did not report strict_reward`, []int64{1}},
	} {
		message, failed := s.post("/scorers/"+c.path, c.body).refused(t, http.StatusUnprocessableEntity)
		assert.Contains(t, message, c.want, name)
		assert.Equal(t, c.failed, failed, name)
	}
}

func TestAResultThatCannotBeWrittenFailsItsSampleAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	got := s.post("/v1/score", []byte(`{"samples": [{"reward": "llava", "prompt": "endless"}, {"reward": "llava", "prompt": "q"}]}`)).results(t)
	assert.Equal(t, rewards.Failed, got[0].Outcome)
	assert.Contains(t, got[0].Errors[0].Message, "the result cannot be written")
	assert.Nil(t, got[0].RewardScore)
	assert.Equal(t, rewards.Scored, got[1].Outcome)
}

// The request as a whole was not too large: a client that halves its batches on a 413
// would do so for nothing.
func TestASampleThatIsTooLargeIsUnprocessable(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{loop: loop.Config{MessageBytes: 4096}})
	pics := jpegs(2)
	pics[1] = append(pics[1], make([]byte, 8192)...)
	message, failed := s.post("/", pickled(t, "images", pics)).refused(t, http.StatusUnprocessableEntity)
	assert.Contains(t, message, "the limit is 4096")
	assert.Contains(t, failed, int64(1))
}

// A worker that vanished says nothing about the sample.
func TestASampleWhoseWorkersVanishedMayBeSentAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{loop: oneAttempt()})
	done := s.slowly(t.Context(), pickled(t, "images", jpegs(1)))
	receive(t, s.started, "the slow scorer")
	s.loop.Lost([]string{"w0"})
	r := answerOf(t, done)
	message, failed := r.refused(t, http.StatusServiceUnavailable)
	assert.Contains(t, message, "lost: workers got the sample 1 times and did not answer 1 times")
	assert.Equal(t, []int64{0}, failed)
	assert.Empty(t, r.Header.Get("Retry-After"), "this server can, that worker could not")
}
