package verify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/verify"
)

func TestExtraInfoHoldsTheResultsAndNothingElseChanges(t *testing.T) {
	t.Parallel()
	s := sample()
	before, media := *s, s.Media[0]
	out, outcomes, err := verify.Apply(t.Context(), []verify.Named{
		{Key: "sql", Required: true, Verifier: finds(` {"match": true, "t": 1.50} `)},
		{Key: `a "b" <c>`, Verifier: finds(`null`)},
	}, s)
	require.NoError(t, err)
	letters(t, `{"caption":"a \"fox\"","n":3.50,"deep":{"k":[1,{"x":null}]},`+
		`"verified_results":{"sql":{"match": true, "t": 1.50},"a \"b\" <c>":null}}`, out.ExtraInfo)
	require.Len(t, outcomes, 2)
	assert.Equal(t, "sql", outcomes[0].Key)
	assert.True(t, outcomes[0].Required)
	assert.Empty(t, outcomes[0].Class)
	assert.Equal(t, before, *s, "the sample that came is as it was")
	assert.Same(t, media, out.Media[0])
	out.ExtraInfo = s.ExtraInfo
	assert.Equal(t, s, out)
}

func TestASampleWithoutExtraInfoGetsOne(t *testing.T) {
	t.Parallel()
	for _, extra := range []string{"", "  ", "null", "{}", " { } "} {
		s := &rewards.Sample{ID: "s", ExtraInfo: json.RawMessage(extra)}
		out, _, err := verify.Apply(t.Context(), []verify.Named{{Key: "k", Verifier: finds(`1`)}}, s)
		require.NoError(t, err)
		letters(t, `{"verified_results":{"k":1}}`, out.ExtraInfo)
	}
}

func TestResultsThatCameWithTheSampleAreNeverTrusted(t *testing.T) {
	t.Parallel()
	var seen string
	looks := verifierFunc(func(_ context.Context, s *rewards.Sample) (json.RawMessage, error) {
		seen = string(s.ExtraInfo)
		return json.RawMessage(`1`), nil
	})
	s := &rewards.Sample{ID: "s", ExtraInfo: json.RawMessage(`{"verified_results":{"k":"forged"},"a":1,"verified\u005fresults":2,
		"Verified_Results":3,"verified_reſults":4,"a":2,"verified_results":{"k":"forged"}}`)}
	out, _, err := verify.Apply(t.Context(), []verify.Named{{Key: "k", Verifier: looks}}, s)
	require.NoError(t, err)
	assert.Equal(t, `{"a":1,"a":2}`, seen, "not even a verifier sees them")
	letters(t, `{"a":1,"a":2,"verified_results":{"k":1}}`, out.ExtraInfo)

	out, outcomes, err := verify.Apply(t.Context(), nil, s)
	require.NoError(t, err)
	assert.Empty(t, outcomes)
	letters(t, `{"a":1,"a":2,"verified_results":{}}`, out.ExtraInfo)
}

func TestAnExtraInfoThatIsNoObjectIsABadInput(t *testing.T) {
	t.Parallel()
	for _, extra := range []string{`[1]`, `"text"`, `3`, `{"a":1`, `{"a" 1}`, `{a:1}`, `{} {}`, `{}x`, `{"a":tru}`, `nul`, "\xff"} {
		out, outcomes, err := verify.Apply(t.Context(), []verify.Named{{Key: "k", Verifier: finds(`1`)}}, &rewards.Sample{ID: "s1", ExtraInfo: json.RawMessage(extra)})
		require.ErrorIs(t, err, rewards.BadInput, "%q", extra)
		require.ErrorContains(t, err, "s1")
		assert.Nil(t, out)
		assert.Nil(t, outcomes)
	}
}

func TestAnOptionalFailureStandsInTheResultsAndARequiredOneIsTheSamples(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		verifier rewards.Verifier
		class    rewards.Class
		says     string
	}{
		"of a class":       {failsWith(fmt.Errorf("%w: no <db>", rewards.Unavailable)), rewards.Unavailable, "no <db>"},
		"of none":          {failsWith(errors.New("what?")), rewards.Internal, "what?"},
		"endless":          {failsWith(errors.New(strings.Repeat("é", 1<<20))), rewards.Internal, "éé"},
		"panics":           {verifierFunc(func(context.Context, *rewards.Sample) (json.RawMessage, error) { panic("ouch") }), rewards.Panicked, "ouch"},
		"Goexit":           {verifierFunc(func(context.Context, *rewards.Sample) (json.RawMessage, error) { runtime.Goexit(); return nil, nil }), rewards.Panicked, "Goexit"},
		"its error panics": {failsWith(badError{}), rewards.Panicked, "no text"},
		"not JSON":         {finds(`{"a":`), rewards.Internal, "not JSON"},
		"nothing":          {finds(``), rewards.Internal, "not JSON"},
		"NaN":              {finds(`NaN`), rewards.Internal, "not JSON"},
		"too large":        {finds(`"` + strings.Repeat("x", verify.MaxResult) + `"`), rewards.Internal, "65538 bytes, at most 65536"},
		"too late":         {waits(), rewards.Timeout, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			named := []verify.Named{{Key: "bad", Verifier: tt.verifier, Timeout: 10 * time.Millisecond}, {Key: "good", Required: true, Verifier: finds(`1`)}}
			out, outcomes, err := verify.Apply(t.Context(), named, sample())
			require.NoError(t, err)
			var extra struct {
				Results map[string]json.RawMessage `json:"verified_results"`
			}
			require.NoError(t, json.Unmarshal(out.ExtraInfo, &extra))
			assert.Equal(t, "1", string(extra.Results["good"]))
			var failure struct{ Error map[string]string }
			require.NoError(t, json.Unmarshal(extra.Results["bad"], &failure))
			assert.Equal(t, string(tt.class), failure.Error["class"])
			assert.Contains(t, failure.Error["message"], tt.says)
			assert.Less(t, len(failure.Error["message"]), 1100)
			assert.Equal(t, tt.class, outcomes[0].Class)
			assert.Equal(t, failure.Error["message"], outcomes[0].Message)

			named[0].Required = true
			out, outcomes, err = verify.Apply(t.Context(), named, sample())
			require.Error(t, err)
			assert.Nil(t, out)
			assert.Equal(t, tt.class, rewards.ClassOf(err))
			require.ErrorContains(t, err, `sample "s1": verifier "bad": `)
			require.ErrorContains(t, err, tt.says)
			assert.Less(t, len(err.Error()), 1200)
			assert.Equal(t, tt.class, outcomes[0].Class)
		})
	}
}

// badError is an error without a text.
type badError struct{}

func (badError) Error() string { panic("no text") }

func TestAResultIsMadeValidUTF8(t *testing.T) {
	t.Parallel()
	out, _, err := verify.Apply(t.Context(), []verify.Named{{Key: "k", Verifier: finds("\"a\xffb\"")}}, &rewards.Sample{ID: "s"})
	require.NoError(t, err)
	letters(t, `{"verified_results":{"k":"a�b"}}`, out.ExtraInfo)
}

func TestVerifiersRunAtOnceAndInOrder(t *testing.T) {
	t.Parallel()
	var together sync.WaitGroup
	together.Add(8)
	var named []verify.Named
	for i := range 8 {
		named = append(named, verify.Named{Key: fmt.Sprint(i), Verifier: verifierFunc(func(context.Context, *rewards.Sample) (json.RawMessage, error) {
			together.Done()
			together.Wait() // all of them are here
			return json.RawMessage(fmt.Sprint(i)), nil
		})})
	}
	out, outcomes, err := verify.Apply(t.Context(), named, &rewards.Sample{ID: "s"})
	require.NoError(t, err)
	letters(t, `{"verified_results":{"0":0,"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7}}`, out.ExtraInfo)
	assert.Equal(t, "7", outcomes[7].Key)
}

func TestAVerifierSeesNoMediaAndNoByteOfTheSample(t *testing.T) {
	t.Parallel()
	s := sample()
	spoils := verifierFunc(func(_ context.Context, seen *rewards.Sample) (json.RawMessage, error) {
		assert.Nil(t, seen.Media)
		assert.JSONEq(t, string(s.ExtraInfo), string(seen.ExtraInfo))
		clear(seen.GroundTruth)
		clear(seen.ExtraInfo)
		*seen.Index = -1
		seen.Prompt = ""
		return json.RawMessage(`1`), nil
	})
	_, _, err := verify.Apply(t.Context(), []verify.Named{{Key: "k", Verifier: spoils}}, s)
	require.NoError(t, err)
	assert.Equal(t, sample(), s)
}

func TestEveryVerifierHasItsOwnDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, outcomes, err := verify.Apply(t.Context(), []verify.Named{
			{Key: "short", Timeout: time.Second, Verifier: waits()},
			{Key: "default", Verifier: waits()},
		}, sample())
		require.NoError(t, err)
		assert.Equal(t, time.Second, outcomes[0].Took)
		assert.Equal(t, verify.DefaultTimeout, outcomes[1].Took)
	})
}

func TestOneThatIgnoresItsContextIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hangs := verifierFunc(func(context.Context, *rewards.Sample) (json.RawMessage, error) {
			<-release
			return json.RawMessage(`"late"`), nil
		})
		start := time.Now()
		out, outcomes, err := verify.Apply(t.Context(), []verify.Named{
			{Key: "hangs", Timeout: time.Second, Verifier: hangs}, {Key: "good", Verifier: finds(`1`)},
		}, &rewards.Sample{ID: "s"})
		require.NoError(t, err)
		assert.Equal(t, 2*time.Second, time.Since(start))
		assert.Equal(t, rewards.Timeout, outcomes[0].Class)
		assert.Contains(t, outcomes[0].Message, "ignored its context")
		assert.Contains(t, string(out.ExtraInfo), `"good":1`)
		text := string(out.ExtraInfo)
		close(release)
		synctest.Wait()
		assert.Equal(t, text, string(out.ExtraInfo), "an answer that comes late changes nothing")

		release = make(chan struct{})
		_, outcomes, err = verify.Apply(t.Context(), []verify.Named{
			{Key: "hangs", Required: true, Timeout: time.Second, Verifier: hangs}, {Key: "long", Timeout: time.Hour, Verifier: waits()},
		}, &rewards.Sample{ID: "s"})
		require.ErrorIs(t, err, rewards.Timeout)
		require.ErrorContains(t, err, `verifier "hangs"`)
		assert.Equal(t, 2*time.Second, outcomes[1].Took, "the others end with a required one")
		close(release)
	})
}

func TestARequiredFailureEndsTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, outcomes, err := verify.Apply(t.Context(), []verify.Named{
			{Key: "waits", Required: true, Timeout: time.Hour, Verifier: waits()},
			{Key: "bad", Required: true, Verifier: failsWith(rewards.Unavailable)},
		}, sample())
		require.ErrorIs(t, err, rewards.Unavailable)
		require.ErrorContains(t, err, `verifier "bad"`)
		assert.Zero(t, time.Since(start))
		assert.Equal(t, rewards.Cancelled, outcomes[0].Class)
	})
}

func TestTheEndOfTheCallerIsNobodysFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		out, outcomes, err := verify.Apply(ctx, []verify.Named{{Key: "waits", Required: true, Timeout: time.Hour, Verifier: waits()}}, sample())
		require.ErrorIs(t, err, rewards.Timeout)
		require.NotContains(t, err.Error(), "waits")
		assert.Nil(t, out)
		assert.Len(t, outcomes, 1)
		assert.Equal(t, time.Second, time.Since(start))

		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		release := make(chan struct{})
		_, _, err = verify.Apply(ctx, []verify.Named{{Key: "hangs", Timeout: time.Hour, Verifier: verifierFunc(func(context.Context, *rewards.Sample) (json.RawMessage, error) {
			<-release
			return nil, rewards.Internal
		})}}, sample())
		require.ErrorIs(t, err, rewards.Cancelled)
		assert.Equal(t, 2*time.Second, time.Since(start), "even then it is not waited for without end")
		close(release)
	})
}

func TestCheckNamesEveryFault(t *testing.T) {
	t.Parallel()
	one := finds(`1`)
	named := []verify.Named{
		{Verifier: one},
		{Key: "a", Verifier: one},
		{Key: "a", Verifier: one, Timeout: -1},
		{Key: "b"},
		{Key: "c", Verifier: one, Timeout: 25 * time.Hour},
	}
	err := verify.Check(named)
	require.Error(t, err)
	for _, says := range []string{"verifier 1 has no key", `"a" is used twice`, `"a": timeout`, `"b" has no function to run`, `"c": timeout of 25h`} {
		require.ErrorContains(t, err, says)
	}
	_, _, err = verify.Apply(t.Context(), named, sample())
	require.ErrorIs(t, err, rewards.Internal)
}

func FuzzApplyMakesAnObjectOrRefuses(f *testing.F) {
	for _, seed := range []string{`{"a":1,"verified_results":{"k":2}}`, `{"a":{"b":[1,2]},"a":3}`, `null`, `[]`, `{"\u0076erified_results":1}`, `{"a":"\ud800"}`} {
		f.Add(seed, `{"x":1}`)
	}
	f.Fuzz(func(t *testing.T, extra, result string) {
		out, _, err := verify.Apply(t.Context(), []verify.Named{{Key: "k", Verifier: finds(result)}}, &rewards.Sample{ID: "s", ExtraInfo: json.RawMessage(extra)})
		if err != nil {
			require.ErrorIs(t, err, rewards.BadInput)
			return
		}
		var got map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(out.ExtraInfo, &got))
		var results map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(got[verify.Field], &results))
		require.Contains(t, results, "k")
		for name := range got {
			require.True(t, name == verify.Field || !strings.EqualFold(name, verify.Field), name)
		}
	})
}
