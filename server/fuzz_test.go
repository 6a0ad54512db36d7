package server_test

import (
	"encoding/json"
	"testing"

	"github.com/rewardloop/rewardloop/server"
)

// FuzzParseSamples holds that the reader of /v1/score never panics, and never takes
// what encoding/json does not.
func FuzzParseSamples(f *testing.F) {
	for _, seed := range []string{
		`{"samples": [{"id": "a", "images": [{"b64": "/9j/4A=="}]}], "deadline_ms": 5}`,
		`{"prompt": "x\u00e9\"", "extra_info": {"a": [1, {"b": "]"}]}, "ground_truth": null}`,
		`{"videos": [{"frames": [{"b64": ""}], "fps": 1e3}], "uid": "g", "group_size": 1}`,
		` { } `, `{"a":{}}`, `[`, `"\ud800"`, `{"images": [{"encoding": "raw", "shape": [1, 2], "b64": "AA=="}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := server.ParseSamples(text)
		if err == nil && n == 0 {
			t.Fatalf("no sample and no error: %q", text)
		}
		var v map[string]any
		if err == nil && json.Unmarshal(text, &v) != nil {
			t.Fatalf("taken, but not a JSON object: %q", text)
		}
	})
}

// fuzzProtocol holds that a protocol's reader never panics, takes nothing that
// encoding/json does not, and that whatever it takes is answered in JSON.
func fuzzProtocol(f *testing.F, path string, seeds ...string) {
	f.Helper()
	for _, seed := range seeds {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, fail bool) {
		_, out, err := server.ReadProtocol(path, text, fail)
		if err != nil {
			return
		}
		if !json.Valid(out) {
			t.Fatalf("the answer is not JSON: %q", out)
		}
		if path != "latent" && !json.Valid(text) {
			t.Fatalf("taken, but not JSON: %q", text)
		}
	})
}

func FuzzUniRL(f *testing.F) {
	fuzzProtocol(f, "score",
		`{"requests": [{"history": [{"text": "a", "image_b64": "/9j/4A=="}, {"text": "b", "video_b64": ["/9j/4A==", "AAAA"]}], "required_rewards": ["ocr", ""],
			"metadata": {"ground_truth": [1], "x": {}}, "request_id": "r", "source_rank": 0}], "protocol_version": "1", "grad_mode": false, "call_id": null}`,
		`{"requests": []}`, `{"requests": [{"history": [{}], "required_rewards": []}]}`, `{"requests": [{"history": [{"text": "", "video_path": "x"}]}]}`)
}

func FuzzOpenRLHF(f *testing.F) {
	fuzzProtocol(f, "get_reward", `{"query": ["ab", "c"], "prompts": ["a", null], "labels": [{"x": 1e9}, null]}`, `{"query": []}`, `{"query": null}`)
}

func FuzzSlime(f *testing.F) {
	fuzzProtocol(f, "rm", `{"prompt": "a", "response": "b", "label": null}`, `[]`,
		`[{"prompt": [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "response": "b", "label": 3}]`)
}

func FuzzFlowFactory(f *testing.F) {
	fuzzProtocol(f, "compute", `{"prompt": ["a"], "image": ["/9j/4A=="], "video": [["/9j/4A=="]], "condition_images": [null], "condition_videos": [[["/9j/4A=="]]], "kwargs": {"ground_truth": 1, "b": 2}}`,
		`{"image": ["AAAA"]}`, `{"prompt": [], "extra": {}}`)
}

func FuzzLatent(f *testing.F) {
	fuzzProtocol(f, "latent",
		string(tensors("latents", "F32", []int{1, 1, 1, 1}, floats(1, 1), "seeds", "I64", []int{1}, make([]byte, 8), "u", "BF16", []int{1, 1}, make([]byte, 2))),
		string(tensors("latents", "F16", []int{2, 1, 1, 2}, floats(1, 2))), "\x02\x00\x00\x00\x00\x00\x00\x00{}")
}

// FuzzRoutedCall holds that what is forwarded is a JSON object without a stream.
func FuzzRoutedCall(f *testing.F) {
	for _, seed := range []string{`{"stream": false}`, `{"stream": true}`, `{"messages": [{"stream": 1}]}`, `[]`, ` {} `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if server.CheckCall(text) != nil {
			return
		}
		var v map[string]any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatalf("taken, but not an object: %q", text)
		}
		if v["stream"] != nil && v["stream"] != false {
			t.Fatalf("taken with a stream: %q", text)
		}
	})
}
