package main

import (
	"context"
)

// lines that promise the figures.
const (
	lineCLIP      = "CLIP-B/32-sized random model, images/s ≥ 1.5× transformers + torch CPU and ≥ 1.2× Python onnxruntime with PIL preprocessing"
	lineOverhead  = "own overhead ≤ 10 % of ORT time"
	lineTokenizer = "tokenizer ≥ 300k tokens/s per core"
)

// The load of the CLIP experiments: groups of 16 with one prompt each, as GRPO has them.
const (
	clipPictures = 64
	clipGroup    = 16
	clipRunning  = 32 // samples under way, two groups
	// clipRounds are how often the sides take turns in one repetition. A round is some 6 s a
	// side: the speed of a shared machine moves by a third within minutes.
	clipRounds = 3
)

// onnxModels are ONNX reward models beside what Python makes of the same ones.
func onnxModels() Suite {
	clip := func(name string, size int) Experiment {
		return Experiment{
			Name:  name,
			Setup: func(ctx context.Context, o Options) (Trial, error) { return newCLIPTrial(ctx, o, size) },
			Rows: []Row{
				{
					Name: "vs-transformers", Issue: lineCLIP, Value: ratio("ours_per_s", "transformers_per_s"), Target: atLeast(1.5),
					Beside: []string{"ours_per_s", "transformers_per_s", "transformers_cpu_ms", othersCores},
				},
				{
					Name: "vs-onnxruntime", Issue: lineCLIP, Value: ratio("ours_per_s", "onnxruntime_per_s"), Target: atLeast(1.2),
					Beside: []string{"onnxruntime_per_s", "onnxruntime_cpu_ms"},
				},
				{
					Name: "overhead", Issue: lineOverhead, Target: atMost(0.10), Beside: []string{"ours_cpu_ms", "bare_cpu_ms"},
					Value: func(r Readings) float64 { return lookup(r, "ours_cpu_ms")/lookup(r, "bare_cpu_ms") - 1 },
				},
			},
		}
	}
	tokens := Experiment{
		Name: "tokenizer", Setup: newTokenizerTrial,
	}
	for _, name := range tokenizers {
		tokens.Rows = append(tokens.Rows, Row{
			Name: name, Issue: lineTokenizer, Unit: "/s", Value: reading(name), Target: atLeast(300_000), Beside: []string{name + "_cold"},
		})
	}
	return Suite{
		Name: "onnx", Apart: true,
		About: "A random CLIP of ViT-B/32's size scores 64 raw pictures of noise, 16 to a prompt, on two cores: builtin://clipscore in its " +
			"child processes; transformers with torch as flow_grpo's PickScore calls it (two threads, sdpa, batches of 16 with a prompt " +
			"of some 25 tokens for each picture, Pillow); ONNX Runtime in Python (two threads, batches of 16, one prompt for all, Pillow). Overhead is the CPU time of all our processes / " +
			"that of the bare graphs: ONNX Runtime's Run of " +
			"both towers on ready tensors, batches of 1, a thread a core. Tokens a second of CPU time on prompts of 8 to 40 words, words mostly " +
			"met before, and beside it all of them for the first time.",
		Experiments: []Experiment{clip("clip512", 512), clip("clip1024", 1024), tokens},
	}
}
