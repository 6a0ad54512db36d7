package remote_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestTheBlameForAnAnswerOfAScorerServiceIsByTheTable(t *testing.T) {
	t.Parallel()
	deepgen, slime, drm := options{"protocol": "deepgen"}, options{"protocol": "slime"}, options{"protocol": "latent"}
	batched := deepgen.with(options{"batch": 4, "batch_wait": 0.001})
	for _, tt := range []struct {
		event     string
		options   options
		status    int // 0: it hangs
		body      []byte
		class     rewards.Class
		blame     rewards.Blame
		permanent bool
	}{
		{"no score in an answer", deepgen, 200, pickled(t, dict("scores", list())), rewards.InvalidScore, rewards.BlameReward, false},
		{"NaN", slime, 200, []byte(`NaN`), rewards.InvalidScore, rewards.BlameReward, false},
		{"an exception that the service reports", deepgen, 200, pickled(t, dict("error", "ValueError")), rewards.Internal, rewards.BlameReward, false},
		{"garbage instead of a pickle", deepgen, 200, []byte("<html>"), rewards.Unavailable, rewards.BlameDependency, false},
		{"garbage instead of JSON", slime, 200, []byte("<html>"), rewards.Unavailable, rewards.BlameDependency, false},
		{"a pickle that names an unknown global", deepgen, 200, []byte("\x80\x04cos\nsystem\n."), rewards.Internal, rewards.BlameDependency, true},
		{"another version of the protocol", drm, 200, []byte(`{"protocol_version":"2","raw_scores":[1]}`), rewards.Internal, rewards.BlameDependency, true},
		{"400 of a service", deepgen, 400, nil, rewards.BadInput, rewards.BlameSample, false},
		{"413 of a service", deepgen, 413, nil, rewards.BadInput, rewards.BlameSample, false},
		{"422 of a service", deepgen, 422, nil, rewards.BadInput, rewards.BlameSample, false},
		{"401", deepgen, 401, nil, rewards.Internal, rewards.BlameDependency, true},
		{"403", deepgen, 403, nil, rewards.Internal, rewards.BlameDependency, true},
		{"404", deepgen, 404, nil, rewards.Internal, rewards.BlameDependency, true},
		{"409", deepgen, 409, nil, rewards.Internal, rewards.BlameDependency, true},
		{"429", deepgen, 429, nil, rewards.Unavailable, rewards.BlameDependency, false},
		{"500", deepgen, 500, []byte("Traceback"), rewards.Unavailable, rewards.BlameDependency, false},
		{"503", deepgen, 503, nil, rewards.Unavailable, rewards.BlameDependency, false},
		{"the service hangs past the component's timeout", deepgen, 0, nil, rewards.Timeout, rewards.BlameDependency, false},
		{"the service hangs past the timeout of a component in a batch", batched, 0, nil, rewards.Timeout, rewards.BlameDependency, false},
		{"404 of a batch", batched, 404, nil, rewards.Internal, rewards.BlameDependency, true},
	} {
		t.Run(tt.event, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // or the end of the client goes unseen
				if tt.status == 0 {
					<-r.Context().Done()
					return
				}
				w.WriteHeader(tt.status)
				_, _ = w.Write(tt.body)
			}))
			t.Cleanup(srv.Close)
			s := sample(t)
			s.Response = "4"
			if tt.options["protocol"] == "latent" {
				s = latentSample()
			}
			f := failure(t, overNetwork(t, srv.URL, tt.options), s)
			assert.Equal(t, tt.class, f.Class, f.Message)
			assert.Equal(t, tt.blame, f.Blame, f.Message)
			assert.Equal(t, tt.permanent, f.Permanent, f.Message)
		})
	}
}

// failure is what a sample fails with whose only component, with a timeout of 200 ms, is sc.
func failure(t *testing.T, sc rewards.Scorer, s *rewards.Sample) rewards.ComponentError {
	t.Helper()
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{Key: "k", Weight: 1, Timeout: 200 * time.Millisecond, Scorer: sc}}})
	require.NoError(t, err)
	r := m.Run(t.Context(), s)
	<-r.Done()
	require.Len(t, r.Result.Errors, 1)
	return r.Result.Errors[0]
}

func TestACaseThatTheSandboxCouldNotJudgeIsTheDependencysFailure(t *testing.T) {
	t.Parallel()
	transport, err := outbound.NewTransport(outbound.Policy{})
	require.NoError(t, err)
	t.Cleanup(transport.Close)
	for body, want := range map[string]rewards.ComponentError{
		`{"status":"SandboxError"}`: {Class: rewards.Unavailable, Blame: rewards.BlameDependency},
		`<html>`:                    {Class: rewards.Unavailable, Blame: rewards.BlameDependency},
		`{"status":"Fine"}`:         {Class: rewards.InvalidScore, Blame: rewards.BlameReward},
	} {
		sc, err := buildNamed(t, "sandbox_fusion", network{transport}, options{"url": says(t, []byte(body)).URL})
		require.NoError(t, err)
		f := failure(t, sc, codeSample())
		assert.Equal(t, want.Class, f.Class, f.Message)
		assert.Equal(t, want.Blame, f.Blame, f.Message)
		assert.False(t, f.Permanent)
	}
}

func TestAScorerThatIsClosedIsTheWorkersFailure(t *testing.T) {
	t.Parallel()
	srv := says(t, pickled(t, dict("scores", list(0.5))))
	sc := overNetwork(t, srv.URL, options{"protocol": "deepgen", "batch": 4, "batch_wait": 0.001})
	require.NoError(t, sc.(rewards.Closer).Close())
	f := failure(t, sc, sample(t))
	assert.Equal(t, rewards.Unavailable, f.Class)
	assert.Equal(t, rewards.BlameWorker, f.Blame)
}
