package compat_test

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
	"github.com/rewardloop/rewardloop/wire"
)

// fuzzProtocol holds that a protocol's reader never panics, makes samples that can be sent
// on, takes no JSON that encoding/json does not, and that whatever it takes is answered in
// the protocol's form: n samples that all got the score 0.5 or, where fail, none.
func fuzzProtocol(f *testing.F, path string, seeds ...string) {
	f.Helper()
	for _, seed := range seeds {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	p, _, found := compat.Find(path)
	if !found {
		f.Fatalf("no protocol is at %s", path)
	}
	f.Fuzz(func(t *testing.T, body []byte, fail bool) {
		limits := compat.Limits{Samples: 8, PickleBytes: 64 << 20, JSONBytes: 256 << 20}
		b, refused := p.Read(&compat.Request{ID: "r", Body: body, Limits: limits, Rewards: []compat.Reward{
			{Extra: []wire.ExtraKey{{Name: "strict_reward", Kind: rewards.Number}, {Name: "answer", Kind: rewards.String}}}, {Name: "ocr"},
		}})
		if refused != nil {
			return
		}
		results := make([]*wire.Result, len(b.Plans))
		for i, pl := range b.Plans {
			half := 0.5
			results[i] = &wire.Result{Outcome: rewards.Scored, RewardScore: &half, ExtraInfo: map[string]any{"acc": half, "strict_reward": half, "answer": "yes"}}
			if fail || pl.Refused != nil {
				results[i] = &wire.Result{Outcome: rewards.Rejected, Errors: []rewards.ComponentError{{Class: rewards.BadInput, Message: "no picture"}}}
			}
			if !isJSON(pl.Sample.GroundTruth) || !isJSON(pl.Sample.ExtraInfo) {
				t.Fatalf("sample %d: %q %q", i, pl.Sample.GroundTruth, pl.Sample.ExtraInfo)
			}
			_, _ = wire.Encode(pl.Sample, wire.Options{}) // must not panic
		}
		a, fault := b.Answer(results)
		if fault != nil {
			a = p.Form.Refusal(fault)
		}
		if p.Form == compat.Pickle {
			if _, err := pickle.Decode(a.Body, pickle.Limits{}); err != nil {
				t.Fatalf("the answer is no pickle: %v", err)
			}
			return
		}
		if !json.Valid(a.Body) {
			t.Fatalf("the answer is not JSON: %q", a.Body)
		}
		if path != "/latent" && !json.Valid(body) {
			t.Fatalf("taken, but not JSON: %q", body)
		}
	})
}

func isJSON(text json.RawMessage) bool { return text == nil || json.Valid(text) }

func FuzzPickle(f *testing.F) {
	picture := []any{[]byte("\xff\xd8\xff\xe0")}
	var seeds []string
	for _, items := range [][]pickle.Pair{
		{{Key: "images", Value: picture}, {Key: "prompts", Value: []string{"a"}}, {Key: "metadata", Value: &pickle.Dict{}}},
		{{Key: "images", Value: picture}, {Key: "meta_datas", Value: []any{&pickle.Dict{Items: []pickle.Pair{{Key: "tag", Value: "colors"}}}}}},
		{{Key: "images", Value: picture}, {Key: "queries", Value: []any{[]string{"q"}}}},
	} {
		body, err := pickle.Encode(&pickle.Dict{Items: items})
		if err != nil {
			f.Fatal(err)
		}
		seeds = append(seeds, string(body))
	}
	fuzzProtocol(f, "/", seeds...)
}

func FuzzUniRL(f *testing.F) {
	fuzzProtocol(f, "/score",
		`{"requests": [{"history": [{"text": "a", "image_b64": "/9j/4A=="}, {"text": "b", "video_b64": ["/9j/4A==", "AAAA"]}], "required_rewards": ["ocr", ""],
			"metadata": {"ground_truth": [1], "x": {}}, "request_id": "r", "source_rank": 0}], "protocol_version": "1", "grad_mode": false, "call_id": null}`,
		`{"requests": []}`, `{"requests": [{"history": [{}], "required_rewards": []}]}`, `{"requests": [{"history": [{"text": "", "video_path": "x"}]}]}`)
}

func FuzzOpenRLHF(f *testing.F) {
	fuzzProtocol(f, "/get_reward", `{"query": ["ab", "c"], "prompts": ["a", null], "labels": [{"x": 1e9}, null]}`, `{"query": []}`, `{"query": null}`)
}

func FuzzSlime(f *testing.F) {
	fuzzProtocol(f, "/rm", `{"prompt": "a", "response": "b", "label": null}`, `[]`,
		`[{"prompt": [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "response": "b", "label": 3}]`)
}

func FuzzFlowFactory(f *testing.F) {
	fuzzProtocol(f, "/compute", `{"prompt": ["a"], "image": ["/9j/4A=="], "video": [["/9j/4A=="]], "condition_images": [null], "condition_videos": [[["/9j/4A=="]]], "kwargs": {"ground_truth": 1, "b": 2}}`,
		`{"image": ["AAAA"]}`, `{"prompt": [], "extra": {}}`)
}

func FuzzLatent(f *testing.F) {
	safetensors := func(header string, data int) string {
		return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + strings.Repeat("\x00", data)
	}
	fuzzProtocol(f, "/latent",
		safetensors(`{"latents":{"dtype":"F32","shape":[1,1,1,1],"data_offsets":[0,4]},"seeds":{"dtype":"I64","shape":[1],"data_offsets":[4,12]},`+
			`"u":{"dtype":"BF16","shape":[1,1],"data_offsets":[12,14]}}`, 14),
		safetensors(`{"latents":{"dtype":"F16","shape":[2,1,1,2],"data_offsets":[0,8]}}`, 8), safetensors("{}", 0))
}

// FuzzPaths holds that every path has a form, and that one with a protocol is refused in its form.
func FuzzPaths(f *testing.F) {
	for _, p := range compat.Protocols() {
		for _, path := range p.Paths {
			f.Add(path)
		}
	}
	f.Fuzz(func(t *testing.T, path string) {
		p, _, ok := compat.Find(path)
		if ok && (p.Method != http.MethodPost || p.Form != compat.FormOf(path)) {
			t.Fatalf("%q is %s's and refused in another form", path, p.System)
		}
	})
}
