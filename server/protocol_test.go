package server_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
)

// says requires an answer in JSON, byte for byte.
func (r reply) says(t *testing.T, body string) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.StatusCode, "%s", r.body)
	assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
	assert.Equal(t, body+"\n", string(r.body))
}

// unirlBody asks for rewards of one picture.
func unirlBody(prompt, picture string, names ...string) string {
	list := strings.ReplaceAll(fmt.Sprintf("%q", names), `" "`, `", "`)
	return fmt.Sprintf(`{"history": [{"text": %q, "image_b64": %q, "video_b64": null, "video_path": null}], "required_rewards": %s, "metadata": null}`, prompt, picture, list)
}

func TestUniRLGetsEveryRewardOfEveryRequestByName(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	pics := jpegs(2)
	s.post("/score", fmt.Appendf(nil, `{"requests": [%s, %s]}`, unirlBody("a", b64(pics[0]), "picky", "extras"), unirlBody("fail", b64(pics[1]), "picky", "extras", "picky"))).
		says(t, `{"results":[{"picky":{"score":1.0,"acc":1.0},"extras":{"score":0.0,"alpha":3.0,"zeta":2.5}},{"extras":{"score":0.0,"alpha":3.0,"zeta":2.5}}],`+
			`"errors":[{},{"picky":"main: bad_input: asked to fail"}]}`)
	s.post("/score", []byte(`{"requests": []}`)).says(t, `{"results":[],"errors":[]}`)
	s.post("/score", fmt.Appendf(nil, `{"requests": [%s]}`, unirlBody("a", b64(pics[0])))).says(t, `{"results":[{}],"errors":[{}]}`)
}

func TestUniRLGetsItsIdentitiesAndVersionBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	const identity = `"request_id": "r1", "sample_id": "s", "group_id": null, "source_rank": 0, "policy_version": null, "scorer_version": null, "idempotency_key": "k"`
	body := strings.TrimSuffix(unirlBody("a", b64(jpegs(1)[0]), "picky"), "}") + ", " + identity + "}"
	s.post("/score", fmt.Appendf(nil, `{"protocol_version": "1", "requests": [%s]}`, body)).
		says(t, `{"results":[{"picky":{"score":1.0,"acc":1.0}}],"errors":[{}],"identities":[{"request_id":"r1","sample_id":"s","group_id":null,`+
			`"source_rank":0,"policy_version":null,"scorer_version":null,"idempotency_key":"k"}],"protocol_version":"1"}`)
}

func TestUniRLsTurnsAndMetadataBecomeASample(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	pics := jpegs(3)
	r := s.post("/score", fmt.Appendf(nil, `{"requests": [{"required_rewards": ["looks"],
		"metadata": {"lang": "en", "ground_truth": {"k": [1]}, "n\u0061me": 1.50},
		"history": [{"text": "make it red", "image_b64": "%s"}, {"text": "now redder", "image_b64": "%s"}]}]}`, b64(pics[0]), b64(pics[1])))
	r.says(t, `{"results":[{"looks":{"score":0.25,"acc":0.25}}],"errors":[{}]}`)
	sample := s.byPrompt("now redder")
	assert.JSONEq(t, `{"k": [1]}`, string(sample.GroundTruth))
	assert.JSONEq(t, `{"lang": "en", "name": 1.5}`, string(sample.ExtraInfo))
	assert.Equal(t, []string{fmt.Sprintf(`image jpeg  U8 [13] [%q]; image jpeg  U8 [13] [%q]`, pics[1], pics[0])}, s.looks, "the edited picture comes first")

	s.post("/score", fmt.Appendf(nil, `{"requests": [{"required_rewards": ["looks"], "history": [{"text": "v", "video_b64": ["%s", "%s"]}]}]}`, b64(pics[0]), b64(pics[2]))).
		says(t, `{"results":[{"looks":{"score":0.25,"acc":0.25}}],"errors":[{}]}`)
	assert.Equal(t, fmt.Sprintf(`video frames  U8 [] ["" %q %q]`, pics[0], pics[2]), s.looks[1])
}

func TestUniRLsBodiesAreRefusedByName(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Config.BatchSamples = 4 }})
	pic := b64(jpegs(1)[0])
	turn := func(fields string) string {
		return `{"requests": [{"history": [{"text": "a"` + fields + `}], "required_rewards": ["picky"]}]}`
	}
	two := unirlBody("a", pic, "picky", "looks")
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{}`:                                  {400, `no "requests"`},
		`[]`:                                  {400, "want an object"},
		`{"requests": [{}]}`:                  {400, "history and required_rewards"},
		`{"requests": {}}`:                    {400, "want an array"},
		`{"requests": [], "x": 1}`:            {400, "unknown key"},
		`{"requests": [], "call_id": "c"}`:    {400, "does not return gradients"},
		`{"requests": [], "grad_mode": true}`: {400, "does not return gradients"},
		`{"requests": [], "protocol_version": "2"}`:                                           {400, `want "1"`},
		`{"requests": [` + unirlBody("a", pic, "nobody") + `]}`:                               {400, "picky"},
		`{"requests": [` + unirlBody("a", "!!!", "picky") + `]}`:                              {400, "base64"},
		`{"requests": [{"history": [], "required_rewards": []}]}`:                             {400, "no turn"},
		`{"requests": [{"history": [{"image_b64": "` + pic + `"}], "required_rewards": []}]}`: {400, `no "text"`},
		`{"requests": [{"history": [], "required_rewards": [], "metadata": []}]}`:             {400, "metadata"},
		`{"requests": [{"history": [], "required_rewards": [], "scorer_version": "v"}]}`:      {400, "no versions"},
		`{"requests": [{"history": [], "required_rewards": [], "sample_id": ["x"]}]}`:         {400, "sample_id"},
		turn(``):                              {422, "no image_b64 and no video_b64"},
		turn(`, "image_b64": null`):           {422, "no image_b64 and no video_b64"},
		turn(`, "video_b64": "AAAA"`):         {422, "send the frames"},
		turn(`, "video_b64": []`):             {400, "needs frames"},
		turn(`, "video_path": "/etc/passwd"`): {422, "not read"},
		turn(`, "image_ipc": "x"`):            {422, "GPU"},
		turn(`, "audio_b64": "x"`):            {400, "unknown key"},
		`{"requests": [{"history": [{}, {}, {}], "required_rewards": ["picky"]}]}`: {422, "3 turns"},
		`{"requests": [` + two + `,` + two + `,` + two + `]}`:                      {413, "more than 4"},
	} {
		_, message := s.post("/score", []byte(body)).jsonError(t, want.status)
		assert.Contains(t, message, want.text, body)
	}
	s.post("/score?reward=picky", []byte(`{"requests": []}`)).jsonError(t, 400)
	assert.Zero(t, s.called("picky"), "nothing was scored")
}

func TestOnePictureOfUniRLsThatIsNoneHurtsOnlyItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	s.post("/score", fmt.Appendf(nil, `{"requests": [%s, %s]}`, unirlBody("a", b64([]byte("GIF89a")), "picky"), unirlBody("b", b64(jpegs(1)[0]), "picky"))).
		says(t, `{"results":[{},{"picky":{"score":1.0,"acc":1.0}}],"errors":[{"picky":"bad_input: a picture is neither JPEG nor PNG nor WebP"},{}]}`)
}

func TestUniRLsFailuresThatMayPassAreNotRememberedAndFallbacksAreSaid(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{loop: oneAttempt(), policies: map[string]rewards.SamplePolicy{"picky": {Policy: rewards.PolicyValue, Value: -1}}})
	body := fmt.Appendf(nil, `{"requests": [%s]}`, unirlBody("fail", b64(jpegs(1)[0]), "fail-timeout", "picky"))
	for range 2 {
		s.post("/score", body).says(t, `{"results":[{"picky":{"score":-1.0}}],"errors":[{"fail-timeout":"main: timeout: on purpose",`+
			`"picky":"main: bad_input: asked to fail; the score is the reward's fallback, value"}]}`)
	}
	assert.Equal(t, 2, s.called("fail-timeout"))
}

func TestTheRosterTellsClientsWhatIsServedAndWhetherNow(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	require.Eventually(t, func() bool { return s.get("/health").StatusCode == http.StatusOK }, patience, time.Millisecond)
	var got struct {
		Status  string
		Rewards map[string][]string
	}
	for _, path := range []string{"/health", "/scorers/picky/health"} {
		require.NoError(t, json.Unmarshal(s.get(path).body, &got))
		assert.Equal(t, "ok", got.Status)
		assert.Equal(t, []string{"ready"}, got.Rewards["picky"])
		assert.NotContains(t, got.Rewards, "", "the default one has no name to ask for")
	}
	s.get("/scorers/nobody/health").jsonError(t, http.StatusNotFound)
	assert.Equal(t, http.StatusOK, s.do(s.request(t.Context(), http.MethodHead, "/health", nil)).StatusCode)
	var names struct{ Rewards []string }
	require.NoError(t, json.Unmarshal(s.get("/rewards").body, &names))
	assert.Contains(t, names.Rewards, "picky")
	assert.IsIncreasing(t, names.Rewards)

	require.NoError(t, s.Drain(t.Context()))
	r := s.get("/health")
	assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
	assert.NotEmpty(t, r.Header.Get("Retry-After"))
	assert.Contains(t, string(r.body), `{"status":"draining","rewards":{`)

	empty := newSite(t, siteOptions{workers: -1})
	assert.Contains(t, string(empty.get("/health").body), `"status":"no worker is ready"`)
	assert.Contains(t, string(empty.get("/health").body), `"picky":[]`)
}

func TestOpenRLHFGetsRewardsScoresAndLogs(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	body := []byte(`{"query": ["user: 1+1?\nassistant: 2", "no prompt", "q3"], "prompts": ["user: 1+1?\n", "other", null], "labels": ["2", null, {"a": 1}]}`)
	for _, path := range []string{"/get_reward?reward=extras", "/get_reward/extras", "/get_reward/extras?reward=extras", "//get_reward/extras/"} {
		s.post(path, body).says(t, `{"rewards":[12.0,9.0,2.0],"scores":[12.0,9.0,2.0],"extra_logs":{"alpha":[3.0,3.0,3.0],"flag":[1.0,1.0,1.0],"zeta":[2.5,2.5,2.5]}}`)
	}
	first := s.byPrompt("user: 1+1?\n")
	assert.Equal(t, "assistant: 2", first.Response, "the prompt is cut off")
	assert.JSONEq(t, `"2"`, string(first.GroundTruth))
	assert.Equal(t, "no prompt", s.byPrompt("other").Response)
	assert.Empty(t, s.byPrompt("other").GroundTruth)
	assert.JSONEq(t, `{"a": 1}`, string(s.byPrompt("").GroundTruth))

	// Its client sends nothing to all but the first of several servers, and counts on an answer.
	s.post("/get_reward", []byte(`{"query": [], "prompts": [], "labels": []}`)).says(t, `{"rewards":[],"scores":[],"extra_logs":{}}`)
	s.post("/get_reward/looks", []byte(`{"query": ["a"]}`)).says(t, `{"rewards":[0.25],"scores":[0.25],"extra_logs":{"acc":[0.25]}}`)
	for body, want := range map[string]string{
		`{}`: `no "query"`, `{"query": null}`: `no "query"`, `{"query": "x"}`: "query: want an array", `{"query": [1]}`: "want a string",
		`{"query": ["a"], "prompts": []}`: "0 entries for 1", `{"query": [], "labels": ["a"]}`: "1 entries for 0", `{"queries": []}`: "unknown key",
		`{"query": ["a"], "prompts": [3]}`: "prompts: [0]: want a string",
	} {
		_, message := s.post("/get_reward", []byte(body)).jsonError(t, 400)
		assert.Contains(t, message, want, body)
	}
}

func TestSlimeGetsANumberOrAListOfThem(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	s.post("/rm/extras", []byte(`{"prompt": "p", "response": "four", "label": "l"}`)).says(t, `4.0`)
	assert.JSONEq(t, `"l"`, string(s.byPrompt("p").GroundTruth))
	s.post("/rm?reward=extras", []byte(`[{"prompt": "x", "response": "a", "label": null}, {"prompt": "y", "response": "bc", "label": 3}]`)).says(t, `[1.0,2.0]`)
	s.post("/rm", []byte(`[]`)).says(t, `[]`)
	s.post("/rm/picky", []byte(`{"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "tw"}, {"type": "image"}, {"type": "text", "text": "o"}]},
		{"role": "assistant", "content": null}], "response": "r", "label": null}`)).says(t, `1.0`)
	assert.Equal(t, "r", s.byPrompt("two").Response)
	for body, want := range map[string]string{
		`{"prompt": "p"}`: `want {"prompt"`, `3`: "want an object", `[3]`: "want an object", `{"prompt": 3}`: "want a string",
		`{"prompt": "p", "response": "r", "x": 1}`: "unknown key", `{"prompt": [3], "response": "r"}`: "list of messages",
		`{"prompt": [{"role": "user", "content": {"a": 1}}], "response": "r"}`: "message 0",
	} {
		_, message := s.post("/rm", []byte(body)).jsonError(t, 400)
		assert.Contains(t, message, want, body)
	}
}

func TestFlowFactoryGetsARewardForEveryPrompt(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	pics := jpegs(4)
	for i, p := range pics {
		pics[i] = append([]byte("\x89PNG\r\n\x1a\n"), p...)
	}
	body := fmt.Appendf(nil, `{"prompt": ["a", "b"], "image": ["%s", "%s"], "video": null, "condition_images": null, "condition_videos": null}`, b64(pics[0]), b64(pics[1]))
	want := fmt.Sprintf(`{"rewards":[%v,%v]}`, expected("a", pics[0]), expected("b", pics[1]))
	for _, path := range []string{"/compute", "/compute/", "//compute"} {
		s.post(path, body).says(t, want)
	}
	for _, path := range []string{"/scorers/picky/compute", "/compute/picky", "/compute?reward=picky", "/scorers/picky//compute/"} {
		s.post(path, body).says(t, `{"rewards":[1.0,1.0]}`)
	}
	s.post("/scorers/looks/compute", fmt.Appendf(nil, `{"prompt": ["k"], "video": [["%s", "%s"]], "condition_images": [["%s"]], "condition_videos": [[["%s"]]],
		"kwargs": {"ground_truth": "t", "style": "x"}}`, b64(pics[0]), b64(pics[1]), b64(pics[2]), b64(pics[3]))).says(t, `{"rewards":[0.25]}`)
	assert.Equal(t, []string{fmt.Sprintf(`video frames  U8 [] ["" %q %q]; image png  U8 [%d] [%q]; video frames  U8 [] ["" %q]`, pics[0], pics[1], len(pics[2]), pics[2], pics[3])}, s.looks)
	assert.JSONEq(t, `"t"`, string(s.byPrompt("k").GroundTruth))
	assert.JSONEq(t, `{"style": "x"}`, string(s.byPrompt("k").ExtraInfo))
	s.post("/compute", []byte(`{"prompt": []}`)).says(t, `{"rewards":[]}`)
	s.post("/compute/picky", fmt.Appendf(nil, `{"image": ["%s"]}`, b64(pics[0]))).says(t, `{"rewards":[1.0]}`)

	for body, want := range map[string]string{
		`{}`: `no "prompt", "image" or "video"`, `{"prompt": "x"}`: "want an array", `{"prompt": ["x"], "image": []}`: "0 entries for 1", `{"prompt": ["x"], "image": ["!"]}`: "base64",
		`{"prompt": [3]}`: "want a string", `{"prompt": ["x"], "video": [[]]}`: "needs frames", `{"prompts": ["x"]}`: "unknown key",
		`{"prompt": ["x"], "kwargs": 3}`: "want an object", `{"prompt": [], "kwargs": {}, "extra": {}}`: "send only one",
	} {
		_, message := s.post("/compute", []byte(body)).jsonError(t, 400)
		assert.Contains(t, message, want, body)
	}
	r := s.post("/compute/picky", fmt.Appendf(nil, `{"prompt": ["a", "b"], "image": ["%s", "%s"]}`, b64(pics[0]), b64([]byte("GIF"))))
	_, message := r.jsonError(t, 422)
	assert.Contains(t, message, "[1]")
	assert.Contains(t, string(r.body), `"failed":[1]`)
}

// tensors makes a safetensors body of {name, dtype, shape, data, …}.
func tensors(kv ...any) []byte {
	var head strings.Builder
	var data []byte
	head.WriteString(`{"__metadata__":{"format":"pt"}`)
	for i := 0; i < len(kv); i += 4 {
		b := kv[i+3].([]byte) //nolint:forcetypeassert // fails the test
		fmt.Fprintf(&head, `,%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, kv[i], kv[i+1], strings.ReplaceAll(fmt.Sprint(kv[i+2]), " ", ","), len(data), len(data)+len(b))
		data = append(data, b...)
	}
	head.WriteString("}   ")
	out := binary.LittleEndian.AppendUint64(nil, uint64(head.Len()))
	return append(append(out, head.String()...), data...)
}

// floats are n values of F32.
func floats(first float32, n int) []byte {
	var out []byte
	for i := range n {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(first+float32(i)))
	}
	return out
}

const drm = "x-drm-protocol-version"

func TestLatentsBecomeTheMediaThatTheVerlPluginSends(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	seeds := binary.LittleEndian.AppendUint64(nil, math.MaxUint64) // -1
	body := tensors(
		"seeds", "I64", []int{1}, seeds, "prompt_embeds", "F32", []int{1, 2, 1}, floats(20, 2), "u", "F32", []int{1}, floats(0.5, 1),
		"latents", "F16", []int{1, 2, 1, 1}, []byte("abcd"), "pooled_prompt_embeds", "BF16", []int{1, 2}, []byte("efgh"),
	)
	for _, path := range []string{"/latent/looks", "/latent?reward=looks"} {
		s.post(path, body, drm, "1", "Content-Type", "application/octet-stream").says(t, `{"protocol_version":"1","raw_scores":[0.25]}`)
	}
	require.Len(t, s.looks, 1, "both paths ask for the same: it is scored once")
	assert.Equal(t, fmt.Sprintf(`latent raw CHW F16 [2 1 1] ["abcd"]; latent raw LD F32 [2 1] [%q]; latent raw L F32 [1] [%q]; latent raw L BF16 [2] ["efgh"]`,
		floats(20, 2), floats(0.5, 1)), s.looks[0])
	assert.JSONEq(t, `{"rewardloop_tensors": ["prompt_embeds", "u", "pooled_prompt_embeds"], "seeds": [-1]}`, string(s.byPrompt("").ExtraInfo))

	// Rows are samples of their own.
	s.post("/latent/looks", tensors("latents", "F32", []int{2, 1, 1, 1}, floats(1, 2), "n", "I32", []int{2, 1}, []byte("\x01\x00\x00\x00\x02\x00\x00\x00")), drm, "1").
		says(t, `{"protocol_version":"1","raw_scores":[0.25,0.25]}`)
	assert.ElementsMatch(t, []string{fmt.Sprintf(`latent raw CHW F32 [1 1 1] [%q]`, floats(1, 1)), fmt.Sprintf(`latent raw CHW F32 [1 1 1] [%q]`, floats(2, 1))}, s.looks[1:])
}

func TestLatentBodiesAreRefusedByName(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Config.BatchSamples = 4 }})
	good := tensors("latents", "F32", []int{1, 1, 1, 1}, floats(1, 1))
	header := func(text string, data int) []byte {
		return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), make([]byte, data)...)
	}
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"nothing":            {nil, "too few"},
		"no safetensors":     {[]byte(`{"latents": 1}`), "a header of"},
		"no object":          {header(`[]`, 0), "begin with"},
		"no JSON":            {header(`{`, 0), "not JSON"},
		"a byte too few":     {good[:len(good)-1], "data_offsets"},
		"a byte too many":    {append(append([]byte{}, good...), 0), "the data 5"},
		"no latents":         {tensors("u", "F32", []int{1}, floats(1, 1)), `no tensor "latents"`},
		"flat latents":       {tensors("latents", "F32", []int{1, 1}, floats(1, 1)), "[N, C, H, W]"},
		"whole numbers":      {tensors("latents", "I32", []int{1, 1, 1, 1}, floats(1, 1)), "latents is I32"},
		"doubles":            {tensors("latents", "F64", []int{1, 1, 1, 1}, make([]byte, 8)), `"F64"`},
		"another batch":      {tensors("latents", "F32", []int{1, 1, 1, 1}, floats(1, 1), "u", "F32", []int{2}, floats(1, 2)), "the first axis"},
		"a number":           {tensors("latents", "F32", []int{1, 1, 1, 1}, floats(1, 1), "u", "F32", []int{}, floats(1, 1)), "the first axis"},
		"axes":               {tensors("latents", "F32", []int{1, 1, 1, 1}, floats(1, 1), "x", "F32", []int{1, 1, 1, 1, 1, 1}, floats(1, 1)), "too many axes"},
		"an empty axis":      {tensors("latents", "F32", []int{1, 0, 1, 1}, []byte{}), "integer from 1"},
		"a huge shape":       {header(`{"latents":{"dtype":"F32","shape":[2147483647,2147483647,2147483647,2147483647],"data_offsets":[0,4]}}`, 4), "does not have"},
		"an overlap":         {header(`{"latents":{"dtype":"F16","shape":[1,1,1,1],"data_offsets":[0,2]},"b":{"dtype":"F16","shape":[1],"data_offsets":[1,3]}}`, 3), "begins at 1"},
		"two of one name":    {header(`{"latents":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"latents":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}`, 2), "duplicate name"},
		"an unknown field":   {header(`{"latents":{"dtype":"F16","shape":[1],"data_offsets":[0,2],"x":1}}`, 2), "unknown key"},
		"three offsets":      {header(`{"latents":{"dtype":"F16","shape":[1],"data_offsets":[0,1,2]}}`, 2), "want two numbers"},
		"a field too few":    {header(`{"latents":{"dtype":"F16","shape":[1]}}`, 2), "needs dtype"},
		"the names' own":     {tensors("latents", "F32", []int{1, 1, 1, 1}, floats(1, 1), "rewardloop_tensors", "I32", []int{1}, floats(1, 1)), "cannot be named"},
		"many whole numbers": {tensors("latents", "F32", []int{1, 1, 1, 1}, floats(1, 1), "x", "I32", []int{1, 5000}, floats(1, 5000)), "limit is 4096"},
	} {
		_, message := s.post("/latent/looks", c.body, drm, "1").jsonError(t, 400)
		assert.Contains(t, message, c.want, name)
	}
	s.post("/latent/looks", tensors("latents", "F32", []int{5, 1, 1, 1}, floats(1, 5)), drm, "1").jsonError(t, 413)

	// The version is looked at before an answer to the same body is remembered.
	s.post("/latent/looks", good, drm, "1").says(t, `{"protocol_version":"1","raw_scores":[0.25]}`)
	for _, version := range []string{"", "2", "1.0"} {
		_, message := s.post("/latent/looks", good, drm, version).jsonError(t, 400)
		assert.Contains(t, message, "want 1")
	}
	s.post("/latent/looks", good).jsonError(t, 400)
}

func TestEveryProtocolAnswersFailuresWithTheStatusThatItsClientsNeed(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{loop: oneAttempt()})
	good := tensors("latents", "F32", []int{1, 1, 1, 1}, floats(1, 1))
	for path, body := range map[string][]byte{
		"/latent/": good, "/get_reward/": []byte(`{"query": ["a"]}`), "/compute/": []byte(`{"prompt": ["a"]}`), "/rm/": []byte(`{"prompt": "a", "response": "b"}`),
	} {
		for class, want := range map[string]int{
			"fail-bad_input": 422, "fail-invalid_score": 422, "fail-internal": 422, "panic": 422, "fail-permanent": 422,
			"fail-timeout": 503, "fail-crashed": 503, "fail-unavailable": 503, "nobody": 422,
		} {
			r := s.post(path+class, body, drm, "1")
			_, message := r.jsonError(t, want)
			assert.NotEmpty(t, message)
			if class != "nobody" {
				assert.Contains(t, string(r.body), `"failed":[0]`, "%s%s", path, class)
			}
			s.succeed()
		}
		s.post(path+"looks?reward=picky", body, drm, "1").jsonError(t, 400)
	}
	assert.Equal(t, http.StatusMethodNotAllowed, s.get("/compute").StatusCode)
	assert.Equal(t, http.StatusUnsupportedMediaType, s.post("/rm", []byte(`[]`), "Content-Encoding", "gzip").StatusCode)
	require.NoError(t, s.Drain(t.Context()))
	for _, path := range []string{"/score", "/latent", "/get_reward", "/compute", "/rm"} {
		s.post(path, []byte(`{}`), drm, "1").jsonError(t, 503)
	}
}

func TestOneFailedSampleFailsAWholeBatchUnlessThereIsAFallback(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	body := []byte(`{"query": ["x", "y"], "prompts": ["ok", "fail"]}`)
	r := s.post("/get_reward/picky", body)
	r.jsonError(t, 422)
	assert.Contains(t, string(r.body), `"failed":[1]`)
	s = newSite(t, siteOptions{policies: map[string]rewards.SamplePolicy{"picky": {Policy: rewards.PolicyValue, Value: -1}}})
	s.post("/get_reward/picky", body).says(t, `{"rewards":[1.0,-1.0],"scores":[1.0,-1.0],"extra_logs":{}}`)
}

func TestComputeIsAnsweredBeforeItsClientGivesUp(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{workers: -1, server: func(o *server.Options) { o.Config.ComputeTimeout = 50 * time.Millisecond }})
	_, message := s.post("/compute", []byte(`{"prompt": ["a"]}`)).jsonError(t, 503)
	assert.Contains(t, message, "no worker serves")
	assert.Equal(t, 55*time.Second, server.Config{}.WithDefaults().ComputeTimeout)
	require.ErrorContains(t, server.Config{ComputeTimeout: -1, RouterTimeout: -1, RouterBytes: -1}.WithDefaults().Validate(), "compute_timeout")
}

func TestProtocolsJoinAndCancelAsTheOthersDo(t *testing.T) {
	t.Parallel()
	pic := b64(jpegs(1)[0])
	latents := tensors("latents", "F32", []int{1, 1, 1, 1}, floats(1, 1))
	for name, c := range map[string]struct {
		path string
		body []byte
	}{
		"unirl":       {"/score", fmt.Appendf(nil, `{"requests": [%s]}`, unirlBody("a", pic, "slow"))},
		"latent":      {"/latent/slow", latents},
		"openrlhf":    {"/get_reward/slow", []byte(`{"query": ["a"]}`)},
		"flowfactory": {"/scorers/slow/compute", []byte(`{"prompt": ["a"]}`)},
		"slime":       {"/rm/slow", []byte(`{"prompt": "a", "response": "b"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, siteOptions{})
			send := func(ctx context.Context) <-chan *reply {
				done := make(chan *reply, 1)
				req := s.request(ctx, http.MethodPost, c.path, c.body, drm, "1")
				go func() { // ends with the request
					resp, err := s.client.Do(req)
					if err != nil {
						done <- nil
						return
					}
					defer resp.Body.Close()
					b, _ := io.ReadAll(resp.Body)
					done <- &reply{resp, b}
				}()
				return done
			}
			ctx, cancel := context.WithCancel(t.Context())
			left := send(ctx)
			receive(t, s.started, "the slow scorer")
			cancel()
			assert.Nil(t, answerOf(t, left))
			receive(t, s.cancelled, "the sample to be cancelled")

			first := send(t.Context())
			receive(t, s.started, "the slow scorer, again")
			second := send(t.Context())
			require.Eventually(t, func() bool {
				return strings.Contains(string(s.get("/metrics").body), "rewardloop_http_requests_in_flight 2")
			}, patience, 5*time.Millisecond)
			close(s.release)
			for _, got := range []*reply{answerOf(t, first), answerOf(t, second)} {
				require.Equal(t, http.StatusOK, got.StatusCode, "%s", got.body)
				assert.Contains(t, string(got.body), "7")
			}
			assert.Equal(t, 2, s.called("slow"))
		})
	}
}

func TestQuestionsOfDDPOAreAnsweredWhereARewardHasText(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	pics := jpegs(2)
	queries := []any{[]string{"q1", "q2"}, []string{"q3"}}
	get := func(d *pickle.Dict, key string) any {
		v, ok := d.Get(key)
		require.True(t, ok, key)
		plain, err := pickle.Plain(v)
		require.NoError(t, err)
		return plain
	}
	d := s.post("/scorers/llava", pickled(t, "images", pics, "queries", queries)).dict(t)
	assert.Equal(t, []any{[]any{"to q1", "to q2"}, []any{"to q3"}}, get(d, "outputs"))
	assert.Equal(t, []any{[]any{0.5, 0.5}, []any{0.5}}, get(d, "scores"))
	assert.Len(t, d.Items, 2)

	d = s.post("/scorers/llava", pickled(t, "images", pics, "queries", queries, "answers", []any{[]string{"a", "ab"}, []string{"abc"}})).dict(t)
	assert.Equal(t, []any{[]any{1.0, 2.0}, []any{3.0}}, get(d, "recall"))
	assert.Equal(t, []any{[]any{0.125, 0.125}, []any{0.125}}, get(d, "precision"))
	assert.Equal(t, []any{[]any{0.75, 0.75}, []any{0.75}}, get(d, "f1"))

	for name, body := range map[string][]byte{
		"a query too few":  pickled(t, "images", pics, "queries", queries[:1]),
		"no list":          pickled(t, "images", pics, "queries", "q"),
		"no strings":       pickled(t, "images", pics, "queries", []any{[]any{1}, []any{2}}),
		"answers too few":  pickled(t, "images", pics, "queries", queries, "answers", []any{[]string{"a"}, []string{"b"}}),
		"with prompts":     pickled(t, "images", pics, "queries", queries, "prompts", []string{"a", "b"}),
		"answers and none": pickled(t, "images", pics, "answers", queries),
	} {
		message, _ := s.post("/scorers/llava", body).refused(t, http.StatusBadRequest)
		assert.NotEmpty(t, message, name)
	}
	s.post("/scorers/brief", pickled(t, "images", pics, "queries", queries)).dict(t)
	message, _ := s.post("/scorers/brief", pickled(t, "images", pics, "queries", queries, "answers", queries)).refused(t, http.StatusUnprocessableEntity)
	assert.Contains(t, message, "recall")
	many := make([]string, 1025)
	s.post("/scorers/llava", pickled(t, "images", pics[:1], "queries", []any{many})).refused(t, http.StatusRequestEntityTooLarge)
}
