package server_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// stepped is a site whose run "a/b" has a step of four samples, two groups; one fails.
func stepped(t *testing.T) *site {
	t.Helper()
	s := newSite(t, siteOptions{})
	c, err := client.Dial(t.Context(), client.Config{URL: "ws" + s.url[len("http"):], Run: "a/b", Reward: "picky"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.Step(rewards.Val, 5, 4))
	for i := range 4 {
		sample := &rewards.Sample{
			ID: fmt.Sprint("s", i), Split: rewards.Val, Step: 5, Index: new(int64(i)), UID: fmt.Sprint("g", i/2), GroupSize: 2, Prompt: "fine",
		}
		if i == 3 {
			sample.Prompt = "fail"
		}
		f, err := c.Submit(t.Context(), sample, 0)
		require.NoError(t, err)
		_, err = f.Wait(t.Context())
		require.NoError(t, err)
	}
	return s
}

// read gets a path below the step.
func (s *site) readStep(t *testing.T, path, accept string) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/runs/"+path, http.NoBody)
	require.NoError(t, err)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := s.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if accept != "" {
		require.Equal(t, accept, resp.Header.Get("Content-Type"))
	}
	return resp.StatusCode, b
}

func TestAStepsRewardsAreReadOverHTTP(t *testing.T) {
	t.Parallel()
	s := stepped(t)
	run := url.PathEscape("a/b")
	status, b := s.readStep(t, run+"/steps/5/rewards?split=val&wait=20", "")
	require.Equal(t, http.StatusOK, status, string(b))
	var r wire.Rewards
	require.NoError(t, json.Unmarshal(b, &r))
	assert.True(t, r.Done)
	assert.Equal(t, []string{"s0", "s1", "s2", "s3"}, r.IDs)
	_, again := s.readStep(t, run+"/steps/5/rewards?split=val", "")
	assert.JSONEq(t, string(b), string(again), "a plain read hands nothing out")
	assert.Equal(t, []bool{true, true, true, false}, r.Valid)
	assert.Nil(t, r.Scores[3], "absence is not zero")

	status, b = s.readStep(t, run+"/steps/5/rewards?split=val&chunk=0", "application/octet-stream")
	require.Equal(t, http.StatusOK, status)
	n := binary.LittleEndian.Uint64(b)
	var head map[string]struct {
		Dtype   string
		Shape   []int
		Offsets [2]int `json:"data_offsets"`
	}
	var raw map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(b[8:8+n], &raw))
	delete(raw, "__metadata__")
	text, err := json.Marshal(raw)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &head))
	scores := head["rm_scores"]
	assert.Equal(t, "F32", scores.Dtype)
	assert.Equal(t, []int{4, 1}, scores.Shape)
	data := b[8+n:]
	at := func(i int) float32 {
		return math.Float32frombits(binary.LittleEndian.Uint32(data[scores.Offsets[0]+4*i:]))
	}
	assert.InDelta(t, *r.Scores[0], at(0), 0)
	assert.True(t, math.IsNaN(float64(at(3))))
	valid := head["rm_valid"]
	assert.Equal(t, []byte{1, 1, 1, 0}, data[valid.Offsets[0]:valid.Offsets[1]])
	assert.Zero(t, n%8, "the data is aligned")

	status, b = s.readStep(t, run+"/steps/5?split=val", "")
	require.Equal(t, http.StatusOK, status)
	var d loop.StepDetail
	require.NoError(t, json.Unmarshal(b, &d))
	assert.Equal(t, wire.StepComplete, d.State)
	assert.Equal(t, 1, d.Chunks)

	status, b = s.readStep(t, run+"/steps/5/trace?split=val", "")
	require.Equal(t, http.StatusOK, status)
	var trace trace.Trace
	require.NoError(t, json.Unmarshal(b, &trace))
	require.NoError(t, trace.Validate())
	assert.Len(t, trace.Spans, 4)
}

func TestQuestionsAboutStepsThatHaveNoAnswerAreRefusedByName(t *testing.T) {
	t.Parallel()
	s := stepped(t)
	run := url.PathEscape("a/b")
	for path, want := range map[string]struct {
		status int
		says   string
	}{
		"nobody/steps/1/rewards":                    {http.StatusNotFound, `run \"nobody\"`},
		"nobody/steps/1":                            {http.StatusNotFound, "is unknown here"},
		run + "/steps/9":                            {http.StatusNotFound, "step 9 (train)"},
		run + "/steps/9/trace":                      {http.StatusNotFound, "step 9 (train)"},
		run + "/steps/x/rewards":                    {http.StatusBadRequest, "whole number"},
		run + "/steps/5/rewards?split=test":         {http.StatusBadRequest, "train or val"},
		run + "/steps/5/rewards?n=-1":               {http.StatusBadRequest, "n="},
		run + "/steps/5/rewards?wait=61":            {http.StatusBadRequest, "from 0 to 60"},
		run + "/steps/5/rewards?wait=NaN":           {http.StatusBadRequest, "from 0 to 60"},
		run + "/steps/5/rewards?chunk=0&order=any":  {http.StatusBadRequest, "completion or index"},
		run + "/steps/5/rewards?n=4":                {http.StatusBadRequest, "beginning with chunk=0"},
		run + "/steps/5/rewards?split=val&chunk=99": {http.StatusBadRequest, "the next one is"},
	} {
		status, b := s.readStep(t, path, "")
		assert.Equal(t, want.status, status, "%s: %s", path, b)
		assert.Contains(t, string(b), want.says, path)
	}
}

func TestAStepThatFailsAtItsDeadlineIsAnsweredWith422(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{loop: loop.Config{StepTimeout: 300 * time.Millisecond, OnStepDeadline: wire.DeadlineFail}})
	c, err := client.Dial(t.Context(), client.Config{URL: "ws" + s.url[len("http"):], Run: "run"})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Step(rewards.Train, 1, 2))
	f, err := c.Submit(t.Context(), &rewards.Sample{ID: "here", Step: 1, Index: new(int64(1))}, 0)
	require.NoError(t, err)
	_, err = f.Wait(t.Context())
	require.NoError(t, err)
	status, b := s.readStep(t, "run/steps/1/rewards?wait=20", "")
	require.Equal(t, http.StatusUnprocessableEntity, status, string(b))
	var r wire.Rewards
	require.NoError(t, json.Unmarshal(b, &r))
	assert.Equal(t, wire.StepFailed, r.State)
	assert.Equal(t, []wire.Missing{{Index: new(int64(0)), Stage: "not arrived"}}, r.Without)
}

func TestAReaderWhoLeavesFreesItsPlace(t *testing.T) {
	t.Parallel()
	s := stepped(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.loop.Rewards(ctx, "a/b", 0, wire.Fetch{Step: 77, WaitMS: 60_000})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
