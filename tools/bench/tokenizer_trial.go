package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/hftok"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// tokenizers are those of the shared data.
var tokenizers = []string{"clip", "gpt2", "qwen2style", "smolvlmstyle", "bert", "unigram", "llama2style"} //nolint:gochecknoglobals // a table

// tokenizerTrial tokenises prompts with every tokenizer.
type tokenizerTrial struct {
	folder  string
	warm    map[string]*hftok.Tokenizer
	prompts []string
}

func newTokenizerTrial(context.Context, Options) (Trial, error) {
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	t := &tokenizerTrial{
		folder: cmp.Or(os.Getenv("REWARDLOOP_TOKENIZERS"), filepath.Join(root, "..", "shared", "data", "tokenizers")),
		warm:   map[string]*hftok.Tokenizer{},
	}
	if t.prompts, err = prompts(filepath.Join(t.folder, "..", "flow_grpo_ocr_test.txt")); err != nil {
		return nil, err
	}
	for _, name := range tokenizers {
		if t.warm[name], err = hftok.Load(filepath.Join(t.folder, name+".json")); err != nil {
			return nil, err
		}
		if _, _, err := t.run(t.warm[name]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func prompts(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("prompts to tokenise: %w", err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out, nil
}

// run tokenises all prompts on this goroutine.
func (t *tokenizerTrial) run(tok *hftok.Tokenizer) (tokens int, took time.Duration, err error) {
	start := time.Now()
	for _, p := range t.prompts {
		ids, err := tok.Encode(p, true)
		if err != nil {
			return 0, 0, err
		}
		tokens += len(ids)
	}
	return tokens, time.Since(start), nil
}

// Measure implements Trial.
func (t *tokenizerTrial) Measure(context.Context, int) (Readings, error) {
	r := Readings{}
	for _, name := range tokenizers {
		cold, err := hftok.Load(filepath.Join(t.folder, name+".json"))
		if err != nil {
			return nil, err
		}
		runtime.GC() // what loading left is not the run's
		for key, tok := range map[string]*hftok.Tokenizer{name: t.warm[name], name + "_cold": cold} {
			tokens, took, err := t.run(tok)
			if err != nil {
				return nil, err
			}
			r[key] = float64(tokens) / took.Seconds()
		}
	}
	return r, nil
}

// Close implements Trial.
func (t *tokenizerTrial) Close() error { return nil }
