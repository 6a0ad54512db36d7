package remote_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

func b64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

func TestUniRLSendsAConversationAndReducesTheSubMetrics(t *testing.T) {
	t.Parallel()
	answer := `{"results":[{"hpsv3":{"b":0.5,"a":2,"c":-1}}],"errors":[{}]}`
	for reduce, want := range map[string]float64{"first": 0.5, "mean": 0.5, "max": 2} {
		srv := says(t, []byte(answer))
		s := sample(t)
		o := options{"protocol": "unirl", "reward": "hpsv3", "sub_metric_reduce": reduce, "extras": []options{{"name": "a"}}, "metadata": "extra_info.deep"}
		score, err := scorer(t, srv, o).Score(t.Context(), s)
		require.NoError(t, err)
		assert.InDelta(t, want, score.Value, 1e-15, reduce)
		assert.Equal(t, map[string]any{"a": 2.0}, score.Extra)
		sent := srv.only(t)
		assert.Equal(t, "/score", sent.path)
		assert.Equal(t, "application/json", sent.header.Get("Content-Type"))
		assert.JSONEq(t, `{"requests":[{"history":[{"text":"a red fox","image_b64":"`+b64(file(t, "png", s.Media[0], 0))+
			`"}],"required_rewards":["hpsv3"],"metadata":{"k":[1,2.5]}}]}`, string(sent.body))
	}
}

func TestUniRLSendsTheSourceOfAnEditAsATurnBefore(t *testing.T) {
	t.Parallel()
	srv := says(t, []byte(`{"results":[{"edit":{"x":1}}]}`))
	s := sample(t)
	s.Media = append(s.Media, image(t, 5))
	_, err := scorer(t, srv, options{"protocol": "unirl", "reward": "edit", "source_image": 1}).Score(t.Context(), s)
	require.NoError(t, err)
	var got struct {
		Requests []struct {
			History []struct {
				Text  string `json:"text"`
				Image string `json:"image_b64"`
			} `json:"history"`
		} `json:"requests"`
	}
	require.NoError(t, json.Unmarshal(srv.only(t).body, &got))
	turns := got.Requests[0].History
	require.Len(t, turns, 2)
	assert.Equal(t, b64(file(t, "png", s.Media[1], 0)), turns[0].Image)
	assert.Equal(t, b64(file(t, "png", s.Media[0], 0)), turns[1].Image)
	assert.Equal(t, "a red fox", turns[0].Text)
}

func TestUniRLFailsASampleForAnySubMetricThatIsNoNumber(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		class rewards.Class
		says  string
	}{
		`{"results":[{"r":{"a":1,"b":null}}]}`:                         {rewards.InvalidScore, "r.b"},
		`{"results":[{"r":{"a":1,"b":NaN}}]}`:                          {rewards.InvalidScore, "not finite"},
		`{"results":[{"r":{"a":1,"b":true}}]}`:                         {rewards.InvalidScore, "bool"},
		`{"results":[{"r":{}}]}`:                                       {rewards.InvalidScore, "no numbers"},
		`{"results":[{"r":0.5}]}`:                                      {rewards.InvalidScore, "no numbers"},
		`{"results":[{"other":{"a":1}}]}`:                              {rewards.InvalidScore, "no numbers"},
		`{"results":[{}],"errors":[{"r":"timed out after 120 s"}]}`:    {rewards.Internal, "timed out after 120 s"},
		`{"results":[{"r":{"a":1}}],"errors":[{"r":"half"}]}`:          {rewards.Internal, "half"},
		`{"results":[{"r":{"a":1}},{"r":{"a":1}}]}`:                    {rewards.InvalidScore, "2 elements"},
		`{"results":[{"r":{"a":1}}],"errors":[{},{}]}`:                 {rewards.InvalidScore, "2 elements"},
		`{"results":{"r":{"a":1}}}`:                                    {rewards.InvalidScore, "want a list"},
		`{"results":[{"r":{"a":` + strings.Repeat("1", 30) + `}}]}`:    {rewards.InvalidScore, "2^53"},
		`{"results":[{"r":{"a":1e308,"b":1e308}}],"errors":[{"x":1}]}`: {rewards.InvalidScore, "overflows"},
	} {
		srv := says(t, []byte(answer))
		score, err := scorer(t, srv, options{"protocol": "unirl", "reward": "r", "sub_metric_reduce": "mean"}).Score(t.Context(), sample(t))
		requireFailure(t, want.class, score, err, want.says)
	}
}

func TestFlowFactorySendsImagesVideosAndConditions(t *testing.T) {
	t.Parallel()
	s := sample(t)
	s.Media = append(s.Media, image(t, 5))
	clip := video(t, 2)
	for name, tt := range map[string]struct {
		options options
		media   []*rewards.Media
		want    string
	}{
		"image": {nil, s.Media, `"image":["` + b64(file(t, "png", s.Media[0], 0)) + `"],"video":null,"condition_images":null`},
		"video": {nil, []*rewards.Media{clip}, `"image":null,"video":[["` + b64(file(t, "png", clip, 0)) + `","` + b64(file(t, "png", clip, 1)) + `"]],"condition_images":null`},
		"edit": {
			options{"source_image": 1},
			s.Media,
			`"image":["` + b64(file(t, "png", s.Media[0], 0)) + `"],"video":null,"condition_images":[["` + b64(file(t, "png", s.Media[1], 0)) + `"]]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := says(t, []byte(`{"rewards":[0.125]}`))
			one := *s
			one.Media = tt.media
			score, err := scorer(t, srv, options{"protocol": "flow_factory"}.with(tt.options)).Score(t.Context(), &one)
			require.NoError(t, err)
			assert.InDelta(t, 0.125, score.Value, 0)
			sent := srv.only(t)
			assert.Equal(t, "/compute", sent.path)
			assert.JSONEq(t, `{"prompt":["a red fox"],`+tt.want+`,"condition_videos":null,"kwargs":null}`, string(sent.body))
		})
	}
}

func TestSlimeTakesAnyNumberOrOneUnderAKey(t *testing.T) {
	t.Parallel()
	s := sample(t)
	s.Response, s.Media = "fox < dog & cat", nil
	srv := says(t, []byte(`0.5`))
	score, err := scorer(t, srv, options{"protocol": "slime", "headers": options{"X-Team": "red"}}).Score(t.Context(), s)
	require.NoError(t, err)
	assert.InDelta(t, 0.5, score.Value, 0)
	sent := srv.only(t)
	assert.JSONEq(t, `{"prompt":"a red fox","response":"fox < dog & cat","label":"the truth"}`, string(sent.body))
	assert.Equal(t, "red", sent.header.Get("X-Team"))

	s.GroundTruth = nil
	srv = says(t, []byte(`{"reward":{"score":2},"score":1,"acc":true,"pred":"dog"}`))
	o := options{"protocol": "slime", "reward_key": "score", "extras": []options{{"name": "acc", "kind": "bool"}, {"name": "pred", "kind": "string"}}}
	score, err = scorer(t, srv, o).Score(t.Context(), s)
	require.NoError(t, err)
	assert.InDelta(t, 1, score.Value, 0)
	assert.Equal(t, map[string]any{"acc": true, "pred": "dog"}, score.Extra)
	assert.JSONEq(t, `{"prompt":"a red fox","response":"fox < dog & cat","label":null}`, string(srv.only(t).body))

	for _, answer := range []string{`true`, `"1"`, `null`, `[1]`, `{"acc":1}`} {
		score, err = scorer(t, says(t, []byte(answer)), o).Score(t.Context(), s)
		requireFailure(t, rewards.InvalidScore, score, err)
	}
	score, err = scorer(t, says(t, nil), o).Score(t.Context(), sample(t))
	requireFailure(t, rewards.BadInput, score, err, "no text response")
}

func TestOpenRLHFSendsQueryPromptAndLabel(t *testing.T) {
	t.Parallel()
	s := sample(t)
	s.Response, s.Media, s.GroundTruth = " runs", nil, json.RawMessage(`{"a":[1]}`)
	srv := says(t, []byte(`{"rewards":[0.5],"scores":[9],"extra_logs":{"kl":[0.25],"odd":["x"]}}`))
	o := options{"url": srv.URL + "/get_reward", "protocol": "openrlhf", "extras": []options{{"name": "kl"}, {"name": "odd"}, {"name": "none"}}}
	score, err := scorer(t, srv, o).Score(t.Context(), s)
	require.NoError(t, err)
	assert.InDelta(t, 0.5, score.Value, 0)
	assert.Equal(t, map[string]any{"kl": 0.25}, score.Extra)
	sent := srv.only(t)
	assert.Equal(t, "/get_reward", sent.path, "an address with the path is as good as one without")
	assert.JSONEq(t, `{"query":["a red fox runs"],"prompts":["a red fox"],"labels":[{"a":[1]}]}`, string(sent.body))
}

func TestJSONFillsItsTemplateAndFindsTheNumber(t *testing.T) {
	t.Parallel()
	s := sample(t)
	s.Response = `say "hi"`
	s.GroundTruth = json.RawMessage(`{"n":2.50}`)
	png := b64(file(t, "png", s.Media[0], 0))
	srv := says(t, []byte(`{"out":[{"score":3,"why":"because"}]}`))
	o := options{
		"protocol": "json", "score_path": "out.0.score", "score_scale": 0.1, "score_bias": 1,
		"extras": []options{{"name": "why", "path": "out.0.why", "kind": "string"}},
		"request": options{
			"id": "{id}", "text": "Q: {prompt} A: {response} {{}}", "n": "{ground_truth.n}", "all": "{ground_truth}", "in": "is {ground_truth}",
			"deep": []any{"{extra_info.deep.k.1}", 7, true, nil}, "pic": "{image_b64}", "url": "{image_url}", "src": "{data_source}",
		},
	}
	score, err := scorer(t, srv, o).Score(t.Context(), s)
	require.NoError(t, err)
	assert.InDelta(t, 1.3, score.Value, 1e-15)
	assert.Equal(t, map[string]any{"why": "because"}, score.Extra)
	assert.JSONEq(t, `{"id":"s1","text":"Q: a red fox A: say \"hi\" {}","n":2.50,"all":{"n":2.50},"in":"is {\"n\":2.50}","deep":[2.5,7,true,null],
		"pic":"`+png+`","url":"data:image/png;base64,`+png+`","src":"src"}`, string(srv.only(t).body))
}

func TestJSONSendsTheFramesOfAVideo(t *testing.T) {
	t.Parallel()
	for _, m := range []*rewards.Media{video(t, 2), image(t, 1)} {
		srv := says(t, []byte(`[[0.5]]`))
		s := sample(t)
		s.Media = []*rewards.Media{m}
		o := options{"protocol": "json", "image_format": "jpeg", "score_path": "0.0", "request": options{"frames": "{frames_b64}"}}
		score, err := scorer(t, srv, o).Score(t.Context(), s)
		require.NoError(t, err)
		assert.InDelta(t, 0.5, score.Value, 0)
		var got struct {
			Frames []string `json:"frames"`
		}
		require.NoError(t, json.Unmarshal(srv.only(t).body, &got))
		px, err := m.Pixels(t.Context())
		require.NoError(t, err)
		require.Len(t, got.Frames, px.Count)
		for i, f := range got.Frames {
			assert.Equal(t, b64(file(t, "jpeg", m, i)), f)
		}
	}
}

func TestJSONFailsWhereTheAnswerHasNoNumberOrTheSampleNoValue(t *testing.T) {
	t.Parallel()
	o := options{"protocol": "json", "score_path": "a.1", "request": options{"p": "{prompt}"}}
	for answer, class := range map[string]rewards.Class{
		`{"a":[1]}`: rewards.InvalidScore, `{"a":[1,"2"]}`: rewards.InvalidScore, `{"a":{"1":NaN}}`: rewards.InvalidScore,
		`{"error":{"message":"quota"},"a":[1,2]}`: rewards.Internal, `no`: rewards.Unavailable,
	} {
		score, err := scorer(t, says(t, []byte(answer)), o).Score(t.Context(), sample(t))
		requireFailure(t, class, score, err)
	}
	srv := says(t, []byte(`1`))
	score, err := scorer(t, srv, options{"protocol": "json", "request": options{"p": "{extra_info.gone}"}}).Score(t.Context(), sample(t))
	requireFailure(t, rewards.BadInput, score, err, "no extra_info.gone")
	assert.Empty(t, srv.requests())
}

// f32 is a latent whose elements are its indices.
func f32(shape ...int) *rewards.Media {
	n := 1
	for _, d := range shape {
		n *= d
	}
	var data []byte
	for i := range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
	}
	return &rewards.Media{Kind: rewards.Latent, Encoding: rewards.Raw, DType: "F32", Shape: shape, Data: data}
}

// readSafetensors reads a request by the format's own description.
func readSafetensors(t *testing.T, body []byte) (entries map[string]tensorEntry, data []byte) {
	t.Helper()
	n := binary.LittleEndian.Uint64(body)
	require.Zero(t, n%8)
	require.NoError(t, json.Unmarshal(body[8:8+n], &entries))
	return entries, body[8+n:]
}

type tensorEntry struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

func latentSample() *rewards.Sample {
	half := f32(2, 3)
	half.DType, half.Data = "BF16", half.Data[:12]
	return &rewards.Sample{
		ID: "l", ExtraInfo: json.RawMessage(`{"rewardloop_tensors":["prompt_embeds","pooled_prompt_embeds"],"x":1}`),
		Media: []*rewards.Media{f32(16, 2, 2), half, f32(1, 5)},
	}
}

func TestLatentSendsDRMProtocol1(t *testing.T) {
	t.Parallel()
	srv := says(t, []byte(`{"protocol_version":"1","raw_scores":[2.5]}`))
	s := latentSample()
	score, err := scorer(t, srv, options{"protocol": "latent", "score_scale": 2, "score_bias": -1}).Score(t.Context(), s)
	require.NoError(t, err)
	assert.InDelta(t, 4, score.Value, 0)
	assert.Equal(t, map[string]any{"drm_raw_score": 2.5}, score.Extra)
	sent := srv.only(t)
	assert.Equal(t, "1", sent.header.Get("X-Drm-Protocol-Version"))
	assert.Equal(t, "application/octet-stream", sent.header.Get("Content-Type"))
	entries, data := readSafetensors(t, sent.body)
	want := map[string]tensorEntry{
		"seeds": {"I64", []int{1}, [2]int{0, 8}}, "latents": {"F32", []int{1, 16, 2, 2}, [2]int{8, 264}},
		"pooled_prompt_embeds": {"F32", []int{1, 5}, [2]int{264, 284}}, "u": {"F32", []int{1}, [2]int{284, 288}},
		"prompt_embeds": {"BF16", []int{1, 2, 3}, [2]int{288, 300}},
	}
	assert.Equal(t, want, entries)
	assert.Equal(t, s.Media[0].Data, data[8:264])
	assert.Equal(t, s.Media[1].Data, data[288:300])
	assert.Equal(t, s.Media[2].Data, data[264:284])
	assert.Equal(t, make([]byte, 8), data[:8], "seed 0")
	assert.Equal(t, math.Float32bits(0.4), binary.LittleEndian.Uint32(data[284:]))
	assert.Len(t, data, 300)
}

func TestLatentTakesLatentsCleanBeforeTheResponseAndLeavesOutANullSeed(t *testing.T) {
	t.Parallel()
	srv := says(t, []byte(`{"protocol_version":"1","raw_scores":[0]}`))
	s := latentSample()
	clean := f32(1, 16, 1, 1)
	s.Media = append([]*rewards.Media{image(t, 0)}, s.Media[1], clean, s.Media[2])
	s.ExtraInfo = json.RawMessage(`{"rewardloop_tensors":["prompt_embeds","latents_clean","pooled_prompt_embeds"]}`)
	score, err := scorer(t, srv, options{"protocol": "latent", "noise_seed": nil, "noise_level": 1}).Score(t.Context(), s)
	require.NoError(t, err)
	assert.InDelta(t, 0, score.Value, 0, "a true zero")
	entries, _ := readSafetensors(t, srv.only(t).body)
	assert.NotContains(t, entries, "seeds")
	assert.Equal(t, []int{1, 16, 1, 1}, entries["latents"].Shape)
}

func TestLatentWantsExactlyOneFiniteScoreAndDoesNotRepeatA400(t *testing.T) {
	t.Parallel()
	for answer, class := range map[string]rewards.Class{
		`{"protocol_version":"1","raw_scores":[]}`:      rewards.InvalidScore,
		`{"protocol_version":"1","raw_scores":[1,2]}`:   rewards.InvalidScore,
		`{"protocol_version":"1","raw_scores":["1"]}`:   rewards.InvalidScore,
		`{"protocol_version":"1","raw_scores":[NaN]}`:   rewards.InvalidScore,
		`{"protocol_version":"1","raw_scores":1}`:       rewards.InvalidScore,
		`{"protocol_version":"2","raw_scores":[1]}`:     rewards.Internal,
		`{"protocol_version":1,"raw_scores":[1]}`:       rewards.Internal,
		`{"raw_scores":[1]}`:                            rewards.Internal,
		`{"protocol_version":"1","raw_scores":[1e308]}`: rewards.InvalidScore,
	} {
		score, err := scorer(t, says(t, []byte(answer)), options{"protocol": "latent", "score_scale": 100}).Score(t.Context(), latentSample())
		requireFailure(t, class, score, err)
	}
	srv := serve(t, func(int, request) (int, []byte) {
		return http.StatusBadRequest, []byte("latents must have 16 channels")
	})
	score, err := scorer(t, srv, options{"protocol": "latent"}).Score(t.Context(), latentSample())
	requireFailure(t, rewards.BadInput, score, err, "16 channels")
}

func TestLatentRefusesASampleWhoseTensorsDoNotFit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*rewards.Sample)
		says   string
	}{
		"no latents":        {func(s *rewards.Sample) { s.Media = s.Media[1:] }, "no latent latents_clean"},
		"no embeddings":     {func(s *rewards.Sample) { s.ExtraInfo = nil; s.Media = s.Media[:1] }, "no latent prompt_embeds"},
		"more names":        {func(s *rewards.Sample) { s.Media = s.Media[:1] }, "names 2 tensors"},
		"names are no list": {func(s *rewards.Sample) { s.ExtraInfo = json.RawMessage(`{"rewardloop_tensors":7}`) }, "rewardloop_tensors"},
		"a batch of two":    {func(s *rewards.Sample) { s.Media[0] = f32(2, 16, 2, 2) }, "batch of 1"},
		"a wrong rank":      {func(s *rewards.Sample) { s.Media[2] = f32(5, 5, 5) }, "pooled_prompt_embeds has the shape"},
		"too few bytes":     {func(s *rewards.Sample) { s.Media[0].Data = s.Media[0].Data[:10] }, "has 10 bytes"},
		"an unknown dtype":  {func(s *rewards.Sample) { s.Media[0].DType = "Q4" }, "Q4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := says(t, nil)
			s := latentSample()
			tt.change(s)
			score, err := scorer(t, srv, options{"protocol": "latent"}).Score(t.Context(), s)
			requireFailure(t, rewards.BadInput, score, err, tt.says)
			assert.Empty(t, srv.requests())
		})
	}
}
