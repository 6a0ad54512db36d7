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
