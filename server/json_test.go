package server_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/wire"
)

// results requires a 200 and returns its results.
func (r reply) results(t *testing.T) []*wire.Result {
	t.Helper()
	require.Equal(t, http.StatusOK, r.StatusCode, "%s", r.body)
	var out struct {
		Results []json.RawMessage `json:"results"`
	}
	require.NoError(t, json.Unmarshal(r.body, &out))
	list := make([]*wire.Result, len(out.Results))
	for i, text := range out.Results {
		v, err := wire.DecodeControl(text)
		require.NoError(t, err, "%s", text)
		list[i] = v.(*wire.Result) //nolint:forcetypeassert // fails the test
	}
	return list
}

// jsonError requires an error in JSON.
func (r reply) jsonError(t *testing.T, status int) (code, message string) {
	t.Helper()
	require.Equal(t, status, r.StatusCode, "%s", r.body)
	require.True(t, status == http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "")
	var out struct {
		Error json.RawMessage
		Code  string
	}
	require.NoError(t, json.Unmarshal(r.body, &out))
	if json.Unmarshal(out.Error, &message) == nil {
		return out.Code, message
	}
	var inner struct{ Message, Type, Code string } // as OpenAI's clients read it
	require.NoError(t, json.Unmarshal(out.Error, &inner))
	require.Equal(t, inner.Type, inner.Code)
	return inner.Code, inner.Message
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func TestOneSampleAsJSON(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	pic := jpegs(1)[0]
	got := s.post("/v1/score", fmt.Appendf(nil, ` {"id": "a", "prompt": "p\u00e9", "step": 3, "split": "val", "index": 4, "data_source": "ocr",
		"response": "r", "ground_truth": ["x", {"y": 1}], "extra_info": {"k": null}, "deadline_ms": 5000,
		"images": [ {"b64":"%s"} ] } `, b64(pic))).results(t)
	require.Len(t, got, 1)
	assert.Equal(t, "a", got[0].ID)
	require.NotNil(t, got[0].RewardScore)
	assert.InDelta(t, expected("pé", pic), *got[0].RewardScore, 0)
	sample := s.byPrompt("pé")
	assert.EqualValues(t, 3, sample.Step)
	assert.EqualValues(t, "val", sample.Split)
	assert.EqualValues(t, 4, *sample.Index)
	assert.Equal(t, "ocr", sample.DataSource)
	assert.Equal(t, "r", sample.Response)
	assert.JSONEq(t, `["x", {"y": 1}]`, string(sample.GroundTruth))
	assert.JSONEq(t, `{"k": null}`, string(sample.ExtraInfo))

	got = s.post("/v1/score", []byte(`{"response": "text only"}`)).results(t)
	assert.NotEmpty(t, got[0].ID, "a sample without an id is given one")
	assert.EqualValues(t, "scored", got[0].Outcome)
}

func TestOneBadSampleOfManyHurtsOnlyItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	got := s.post("/v1/score", fmt.Appendf(nil, `{"reward": "picky", "on_sample_failure": "value:-1", "samples": [
		{"id": "1", "prompt": "ok"},
		{"id": "2", "prompt": "fail"},
		{"id": "3", "prompt": "ok", "images": [{"b64": "%s"}]},
		{"id": "4", "prompt": "ok", "reward": "nobody"},
		{"id": "5", "prompt": "ok", "images": [{"b64": "%s", "encoding": "png"}]},
		{"id": "6", "prompt": "ok"}]}`, b64([]byte("GIF89a")), b64(jpegs(1)[0]))).results(t)
	require.Len(t, got, 6)
	outcomes := make([]string, 6)
	for i, r := range got {
		assert.Equal(t, strconv.Itoa(i+1), r.ID)
		outcomes[i] = string(r.Outcome)
	}
	assert.Equal(t, []string{"scored", "failed", "rejected", "rejected", "rejected", "scored"}, outcomes)
	assert.Nil(t, got[1].RewardScore, "absence is not zero")
	assert.InDelta(t, -1, *got[1].Fallback.Value, 0)
	assert.EqualValues(t, "bad_input", got[2].Errors[0].Class)
	assert.EqualValues(t, "unknown_reward", got[3].Errors[0].Class)
	assert.Contains(t, got[4].Errors[0].Message, "is a jpeg")
}

func TestGroupsStayWithinTheirRequest(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	body := func(nonce int) []byte {
		return fmt.Appendf(nil, `{"reward": "picky", "on_sample_failure": "group_mean", "samples": [
			{"id": "a", "uid": "g", "group_size": 2, "prompt": "ok", "step": %d}, {"id": "b", "uid": "g", "group_size": 2, "prompt": "fail", "step": %d}]}`, nonce, nonce)
	}
	for nonce := range 2 {
		got := s.post("/v1/score", body(nonce)).results(t)
		require.NotNil(t, got[1].Fallback)
		assert.InDelta(t, 1, *got[1].Fallback.Value, 0)
		require.NotNil(t, got[1].Group)
		assert.Equal(t, "g", got[1].Group.UID)
		assert.Equal(t, 0, got[1].Group.Missing)
	}
	_, message := s.post("/v1/score", []byte(`{"uid": "g", "group_size": 2}`)).jsonError(t, 400)
	assert.Contains(t, message, "whole groups")
	_, message = s.post("/v1/score", []byte(`{"samples": [{"uid": "g", "group_size": 2, "step": 1}, {"uid": "g", "group_size": 2, "step": 2}]}`)).jsonError(t, 400)
	assert.Contains(t, message, "of step 1 has 1 samples", "the loop's groups are per step")

	// A member that is never submitted is not waited for.
	got := s.post("/v1/score", fmt.Appendf(nil, `{"reward": "picky", "on_sample_failure": "group_mean", "samples": [
		{"uid": "g", "group_size": 3, "prompt": "ok"}, {"uid": "g", "group_size": 3, "prompt": "fail"},
		{"uid": "g", "group_size": 3, "images": [{"b64": "%s"}]}]}`, b64([]byte("GIF")))).results(t)
	assert.InDelta(t, 1, *got[1].Fallback.Value, 0)
	assert.EqualValues(t, "rejected", got[2].Outcome)
}

func TestVideosAndRawTensorsAsJSON(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	pics := jpegs(2)
	got := s.post("/v1/score", fmt.Appendf(nil, `{"prompt": "v", "videos": [{"frames": [{"b64": "%s"}, {"b64": "%s"}], "fps": 8}]}`, b64(pics[0]), b64(pics[1]))).results(t)
	assert.InDelta(t, expected("v", pics...), *got[0].RewardScore, 0)
	raw := []byte{1, 2, 3, 4, 5, 6}
	got = s.post("/v1/score", fmt.Appendf(nil, `{"reward": "pixels", "images": [{"b64": "%s", "encoding": "raw", "layout": "HWC", "dtype": "U8", "shape": [1, 2, 3]}]}`, b64(raw))).results(t)
	assert.InDelta(t, 2, *got[0].RewardScore, 0)
	code, _ := s.post("/v1/score", fmt.Appendf(nil, `{"images": [{"b64": "%s", "encoding": "raw", "layout": "HWC", "dtype": "U8", "shape": [1, 3, 3]}]}`, b64(raw))).jsonError(t, 400)
	assert.Equal(t, "malformed", code)
}

// form makes a multipart body.
func form(t *testing.T, parts ...string) (body []byte, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(parts); i += 2 {
		f, err := w.CreateFormFile(parts[i], parts[i]+".bin")
		require.NoError(t, err)
		_, err = f.Write([]byte(parts[i+1]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes(), w.FormDataContentType()
}

func TestMultipartFilesAreReferredToByName(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	pics := jpegs(2)
	const two = `{"samples": [{"prompt": "a", "images": [{"file": "x"}]}, {"prompt": "b", "images": [{"file": "y"}, {"file": "x"}]}]}`
	body, kind := form(t, "x", string(pics[0]), "samples", two, "y", string(pics[1]))
	got := s.post("/v1/score", body, "Content-Type", kind).results(t)
	assert.InDelta(t, expected("a", pics[0]), *got[0].RewardScore, 0)
	assert.InDelta(t, expected("b", pics[1], pics[0]), *got[1].RewardScore, 0)
	for want, parts := range map[string][]string{
		"no part named":          {"samples", two, "x", "1"},
		"no picture refers":      {"samples", two, "x", "1", "y", "2", "z", "3"},
		"two parts are named":    {"samples", two, "x", "1", "x", "2"},
		`no part is named "sam`:  {"x", "1"},
		"neither JPEG":           {"samples", `{"images": [{"file": "x"}]}`, "x", "GIF"},
		`either "b64" or "file"`: {"samples", `{"images": [{"file": "x", "b64": "AAAA"}]}`, "x", "GIF"},
	} {
		body, kind := form(t, parts...)
		r := s.post("/v1/score", body, "Content-Type", kind)
		_, message := r.jsonError(t, r.StatusCode)
		assert.Contains(t, message, want)
	}
	s.post("/v1/score", body, "Content-Type", "multipart/form-data; boundary=wrong").jsonError(t, 400)
	s.post("/v1/score", body, "Content-Type", "multipart/form-data").jsonError(t, 400)
}

func TestMalformedJSONIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	for body, want := range map[string]string{
		``:                                   "not JSON",
		`{`:                                  "not JSON",
		`[]`:                                 "object",
		`3`:                                  "object",
		`{"Prompt": "x"}`:                    "Prompt: unknown key",
		`{"promt": "x"}`:                     "promt: unknown key",
		`{"prompt": "a", "prompt": "b"}`:     "duplicate",
		`{"prompt": "a", "\u0070rompt": ""}`: "duplicate",
		`{"prompt": 3}`:                      "want a string",
		`{"step": 1.5}`:                      "integer",
		`{"step": 9223372036854775808}`:      "integer",
		`{"split": "test"}`:                  "train or val",
		`{"extra_info": []}`:                 "object",
		`{"samples": []}`:                    "no samples",
		`{"samples": {}}`:                    "array",
		`{"samples": [], "x": 1}`:            "unknown key",
		`{"samples": [{"id": "a"}, {"id": "a"}]}`:             "duplicate",
		`{"images": [{"b64": "A"}]}`:                          "base64",
		`{"images": [{"b64": "AAAA", "x": 1}]}`:               "unknown key",
		`{"images": [{}]}`:                                    "either",
		`{"videos": [{}]}`:                                    "frames",
		`{"deadline_ms": 0}`:                                  "integer from 1",
		`{"deadline_ms": 900001}`:                             "integer from 1",
		`{"samples": [{}], "on_sample_failure": "sometimes"}`: "sometimes",
		"{\"prompt\": \"\xff\"}":                              "UTF-8",
		strings.Repeat(`[`, 20000):                            "not JSON",
		`{"id": "` + strings.Repeat("x", 300) + `"}`:          "256 bytes",
	} {
		_, message := s.post("/v1/score", []byte(body)).jsonError(t, 400)
		assert.Contains(t, message, want, "%.60s", body)
	}
	many := `{"samples": [` + strings.Repeat(`{},`, 1024) + `{}]}`
	s.post("/v1/score", []byte(many)).jsonError(t, 413)
	code, _ := s.post("/v1/score", []byte(`{"reward": "nobody"}`)).jsonError(t, 422)
	assert.Equal(t, "unknown_reward", code)
	code, _ = s.post("/v1/score", []byte(`{"extra_info": {"deep": `+strings.Repeat(`[`, 100)+strings.Repeat(`]`, 100)+`}}`)).jsonError(t, 400)
	assert.Equal(t, "malformed", code)
}
