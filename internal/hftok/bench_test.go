package hftok_test

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/hftok"
)

// benchPrompts are prompts as flow_grpo's OCR training has them: the file itself where it lies beside the
// repository, else ones like it.
func benchPrompts(tb testing.TB) []string {
	tb.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "data", "flow_grpo_ocr_test.txt"))
	if err == nil {
		defer f.Close()
		var lines []string
		for s := bufio.NewScanner(f); s.Scan(); {
			lines = append(lines, s.Text())
		}
		return lines
	}
	nouns := strings.Fields("lighthouse robot bakery notebook train billboard spaceship library sneaker whiteboard museum garden")
	words := strings.Fields("Adventure Grand Opening Quantum Fresh Bread Daily Future Explore Silence Please Danger Keep Welcome")
	lines := make([]string, 0, len(nouns)*len(words)*len(words))
	for i, a := range nouns {
		for k, b := range words {
			for j, c := range words {
				lines = append(lines, "A photorealistic "+a+" at dusk, with a weathered wooden sign that reads \""+b+" "+c+"\", number "+string(rune('0'+(i+j+k)%10))+"42, soft light and fine detail")
			}
		}
	}
	return lines
}

// BenchmarkEncode reports tokens per second on one core: "cold" forgets the cache of words before each
// round of the prompts, "warm" does not.
func BenchmarkEncode(b *testing.B) {
	prompts := benchPrompts(b)
	for _, name := range []string{"clip", "qwen2style", "smolvlmstyle", "bert", "unigram", "gpt2", "llama2style"} {
		path := filepath.Join("..", "..", "..", "shared", "data", "tokenizers", name+".json")
		tok, err := hftok.Load(path)
		if err != nil {
			b.Run(name, func(b *testing.B) { b.Skip(err) })
			continue
		}
		for _, cold := range []bool{true, false} {
			mode := map[bool]string{true: "/cold", false: "/warm"}[cold]
			b.Run(name+mode, func(b *testing.B) {
				tokens := 0
				for b.Loop() {
					if cold {
						b.StopTimer()
						tok.ForgetWords()
						b.StartTimer()
					}
					for _, p := range prompts {
						ids, err := tok.Encode(p, true)
						require.NoError(b, err)
						tokens += len(ids)
					}
				}
				b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}

// BenchmarkEncodeEveryWordNew is Encode where no word was ever seen before: without a cache.
func BenchmarkEncodeEveryWordNew(b *testing.B) {
	prompts := benchPrompts(b)
	for _, name := range []string{"clip", "qwen2style", "smolvlmstyle", "bert", "unigram"} {
		tok, err := hftok.Load(filepath.Join("..", "..", "..", "shared", "data", "tokenizers", name+".json"))
		if err != nil {
			b.Run(name, func(b *testing.B) { b.Skip(err) })
			continue
		}
		tok.RememberNothing()
		b.Run(name, func(b *testing.B) {
			tokens := 0
			for b.Loop() {
				for _, p := range prompts {
					ids, err := tok.Encode(p, true)
					require.NoError(b, err)
					tokens += len(ids)
				}
			}
			b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"clip", "qwen2style", "unigram"} {
		path := filepath.Join("..", "..", "..", "shared", "data", "tokenizers", name+".json")
		if _, err := os.Stat(path); err != nil {
			b.Skip(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, err := hftok.Load(path)
				require.NoError(b, err)
			}
		})
	}
}
