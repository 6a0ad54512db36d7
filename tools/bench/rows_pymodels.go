package main

import (
	"fmt"
	"time"
)

// The issue's lines.
const (
	lineSleeping = "A model that costs 40 ms + 2 ms a sample (sleeps, counts) on one device: 512 samples at once ≥ 0.9 of the best static batch and ≥ 8 × one by one"
	lineTrickle  = "the same model at 5 samples/s: median latency ≤ 1.2 × single"
	lineTorch    = "A real torch CLIP-sized model on the CPU through the loop ≥ 0.95 of a bare Python loop at its best batch, interleaved"
)

// Sizes of the suite.
const (
	burstSamples  = 512
	burstSingles  = 64 // of them are scored one by one
	burstMost     = 512
	trickleRate   = 5 // samples a second
	trickleSingle = 25
	visionSamples = 64
	visionSize    = 224 // pixels
	visionMost    = 32
)

// pythonModels is what models in Python cost in batches.
func pythonModels() Suite {
	burst := func(name string, most int) Experiment {
		return Experiment{
			Name: name, GoesOn: true, Setup: newBurstTrial(most),
			Rows: []Row{
				{
					Name: "vs-static", Issue: lineSleeping, Value: ratio("ours_per_s", "static_per_s"), Target: atLeast(0.9),
					Beside: []string{"ours_per_s", "static_per_s", "static_batch", "ours_batches", "first_per_s", "first_batches", othersCores},
				},
				{
					Name: "vs-one-by-one", Issue: lineSleeping, Value: ratio("ours_per_s", "single_per_s"), Target: atLeast(8), Beside: []string{"single_per_s"},
				},
			},
		}
	}
	return Suite{
		Name: "pymodels", Apart: true,
		About: fmt.Sprintf("The program rewardloop as it runs, embedded, with a model in Python on one device and the Go client. sleeping is a model that sleeps %v for a batch and %v for each sample: "+
			"%d small samples at once with max_batch_size: %d, or with the default (sleeping32). static is the same class alone in a Python loop, with all samples there, in batches of each power of two from 8 on, of which the fastest "+
			"counts; single is the same entry with max_batch_size: 1, and %d samples. ours is measured when the server has seen such a step; first is the first one, when it knows nothing of the model's cost. "+
			"trickle are samples that come %d a second at random moments (Poisson, the same each time), beside the class alone in batches of 1. vision is CLIP ViT-B/32's vision tower with random weights in torch on the CPU: %d raw pictures of %d × %d at once, "+
			"and the class alone with the same picture as a tensor, at the batch from 1 to %d that was fastest before the measurement; both have as many threads as there are cores.",
			40*time.Millisecond, 2*time.Millisecond, burstSamples, burstMost, burstSingles, trickleRate, visionSamples, visionSize, visionSize, visionMost),
		Experiments: []Experiment{
			burst("sleeping", burstMost),
			burst("sleeping32", 32),
			{
				Name: "trickle", GoesOn: true, Setup: newTrickleTrial,
				Rows: []Row{{
					Name: "median", Issue: lineTrickle, Value: ratio("median_ms", "single_ms"), Target: atMost(1.2),
					Beside: []string{"median_ms", "single_ms", "p99_ms", "samples", othersCores},
				}},
			},
			{
				Name: "vision", GoesOn: true, Setup: newVisionTrial,
				Rows: []Row{{
					Name: "vs-bare", Issue: lineTorch, Value: ratio("ours_per_s", "bare_per_s"), Target: atLeast(0.95),
					Beside: []string{"ours_per_s", "bare_per_s", "bare_batch", "ours_batch", "bare_cpu_ms", "threads", othersCores},
				}},
			},
		},
	}
}
