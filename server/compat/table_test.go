package compat_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
)

func TestEveryRowOfTheTableIsWhole(t *testing.T) {
	t.Parallel()
	paths, runs := map[string]bool{}, map[string]bool{}
	for _, p := range compat.Protocols() {
		assert.NotEmpty(t, p.System)
		assert.NotEmpty(t, p.Paths, p.System)
		for _, path := range p.Paths {
			assert.False(t, paths[path], "%s is there twice", path)
			paths[path] = true
			assert.True(t, strings.HasPrefix(path, "/"), path)
		}
		switch p.Method {
		case http.MethodPost:
			assert.NotNil(t, p.Read, p.System)
			assert.Nil(t, p.Tell, p.System)
			assert.True(t, strings.HasPrefix(p.Run, "_"), "%s: users' runs must not meet the protocol's", p.System)
			assert.False(t, runs[p.Run], "%s is there twice", p.Run)
			runs[p.Run] = true
		case http.MethodGet:
			assert.NotNil(t, p.Tell, p.System)
			assert.Nil(t, p.Read, p.System)
		default:
			assert.Failf(t, "no such method", "%s: %s", p.System, p.Method)
		}
	}
}

// A reader is given an empty body sooner or later, and what it is refused with must have a
// status that its clients do not retry.
func TestEveryProtocolRefusesAnEmptyBodyForGood(t *testing.T) {
	t.Parallel()
	for _, p := range compat.Protocols() {
		if p.Read == nil {
			continue
		}
		_, f := p.Read(&compat.Request{ID: "r", Rewards: []compat.Reward{{}}, Limits: compat.Limits{Samples: 8, PickleBytes: 1 << 20, JSONBytes: 1 << 20}})
		require.NotNil(t, f, p.System)
		assert.Equal(t, http.StatusBadRequest, f.Status, "%s: %v", p.System, f)
		assert.False(t, f.Transient(), p.System)
	}
}

func TestAPathIsFoundWithSlashesTooMany(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]struct{ run, name string }{
		"": {"_pickle", ""}, "/": {"_pickle", ""}, "//": {"_pickle", ""}, "/scorers/ocr": {"_pickle", "ocr"}, "//scorers//ocr/": {"_pickle", "ocr"},
		"/score/": {"_unirl", ""}, "/rm": {"_slime", ""}, "rm/ocr//": {"_slime", "ocr"}, "/scorers/ocr/compute/": {"_flow_factory", "ocr"}, "/compute/ocr": {"_flow_factory", "ocr"},
	} {
		p, name, ok := compat.Find(path)
		require.True(t, ok, path)
		assert.Equal(t, want.run, p.Run, path)
		assert.Equal(t, want.name, name, path)
	}
	for _, path := range []string{"/scorers", "/scorers/a/b", "/scorers/a/compute/b", "/score/ocr", "/rm/a/b", "/health", "/rewards", "/nothing"} {
		_, _, ok := compat.Find(path)
		assert.False(t, ok, path)
	}
}

// The URLs of the clients that send pickles are free text.
func TestAPathThatNobodyKnowsIsRefusedWithAPickle(t *testing.T) {
	t.Parallel()
	own := []string{"/v1", "/classify"}
	for path, want := range map[string]compat.Form{
		"/": compat.Pickle, "//": compat.Pickle, "/scorers": compat.Pickle, "/scorers/x": compat.Pickle, "/scorers/x/y": compat.Pickle, "/predict": compat.Pickle,
		"/v1": compat.JSON, "/v1/x": compat.JSON, "//v1/x": compat.JSON, "/classify": compat.JSON, "/classify/x": compat.JSON, "/v10": compat.Pickle,
		"/score": compat.JSON, "/score/x/y": compat.JSON, "/latent/": compat.JSON, "/scorers/x/compute": compat.JSON, "/scorers/x/compute/y": compat.JSON,
		"/health": compat.JSON, "/scorers/x/health": compat.JSON, "/rewards": compat.JSON, "/rm/x": compat.JSON,
	} {
		assert.Equal(t, want, compat.FormOf(path, own...), path)
	}
}

func TestAFaultIsWrittenInItsProtocolsForm(t *testing.T) {
	t.Parallel()
	f := compat.Faultf(rewards.Unavailable, "come again")
	f.Failed = []int{1}
	j, p := compat.JSON.Refusal(f), compat.Pickle.Refusal(f)
	assert.JSONEq(t, `{"error": "come again", "code": "unavailable", "failed": [1]}`, string(j.Body))
	assert.Equal(t, "application/json", j.ContentType)
	assert.Equal(t, "application/octet-stream", p.ContentType)
	for _, r := range []compat.Reply{j, p} {
		assert.Equal(t, http.StatusServiceUnavailable, r.Status)
		assert.True(t, r.Transient)
		assert.True(t, r.Pause)
		assert.Same(t, f, r.Reason)
	}
}
