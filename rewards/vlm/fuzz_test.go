package vlm_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rewardloop/rewardloop/rewards/vlm"
)

// FuzzConfigs reads files of Hugging Face's and the sidecar: none may panic, and what is
// taken must be within its bounds.
func FuzzConfigs(f *testing.F) {
	for _, name := range []string{"config.json", "tokenizer_config.json", "generation_config.json", "judge.json"} {
		for _, model := range tinies() {
			if data, err := os.ReadFile(filepath.Join(models(), model, name)); err == nil && len(data) < 4096 {
				f.Add(data)
			}
		}
	}
	f.Add([]byte(`{"format": 1, "dtype": {"decoder": "q4"}, "longest_edge": 512, "max_pixels": 401408}`))
	f.Add([]byte(`{"max_position_embeddings": -2048, "text_config": {"max_position_embeddings": 0}}`))
	f.Add([]byte(`{"eos_token_id": [1, null], "bos_token": {"content": "<s>"}, "chat_template": [{"name": "default", "template": "x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := vlm.ParseConfigs(data); err != nil && strings.Contains(err.Error(), "beyond its bound") {
			t.Fatal(err)
		}
		s, err := vlm.ParseSidecar(data)
		if err == nil && (s.Format != 1 || s.LongestEdge < 0 || s.LongestEdge > 8192 || s.MaxPixels < 0 || s.MaxPixels > 1<<26) {
			t.Fatalf("%+v", s)
		}
	})
}

// FuzzTemplate reads chat templates: a bad one is an error.
func FuzzTemplate(f *testing.F) {
	f.Add(smolTemplate)
	f.Add("{% for m in messages %}{{ m.role }}{% endfor %}")
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 400 {
			return // the engine knows no bound on its work
		}
		_, _ = vlm.Own(vlm.SmolVLM(), source, "")
	})
}

// FuzzExtract looks for scores in answers: what is found is a number.
func FuzzExtract(f *testing.F) {
	f.Add("<score>3</score>")
	f.Add("</think><score>-1e9</score><SCORE>\n.5</SCORE>")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := vlm.Extract("", "", "last", text)
		if err == nil && (math.IsNaN(got) || math.IsInf(got, 0)) {
			t.Fatalf("%q: %v", text, got)
		}
	})
}
