package main

import (
	"context"
	"slices"
	"strconv"
)

// lines that promise the figures.
const (
	lineCardLoop    = "CLIP-B and SmolVLM-sized random models, fused uint8 input, through the whole loop ≥ 95 % of a bare ONNX Runtime loop at the best batch on the same card; PP-OCR's models likewise"
	lineCardOutputs = "outputs within 1e-3 (fp32) and 2e-2 (fp16) of the CPU"
	lineCardMemory  = "memory flat over 10,000 runs"
	lineCardTwo     = "two models on one card ≥ 0.9 × (½ A alone + ½ B alone)"
	lineCardKill    = "kill -9 of the child under load: 0 lost or swapped"
)

// cardBatches are the sizes of the batches of the bare loop.
var cardBatches = []int{1, 2, 4, 8, 16, 32, 64} //nolint:gochecknoglobals // a table

// onCards is one card, or the CPU in its place (-device cpu): then the models are tiny, and what
// compares rates has no target, because around tiny models everything else is the load.
func onCards() Suite {
	s := Suite{
		Name: "gpu", Apart: true,
		About: "One card, or the CPU in its place, with models of random weights of the sizes of CLIP ViT-B/32 and SmolVLM-256M, and those " +
			"of PP-OCR (on the CPU: tiny ones, and small pictures). loop: the Go client, the gateway, a worker, the scorer, the pool and the card's child process, raw " +
			"pictures of noise, 128 samples in flight. bare: ONNX Runtime's Run of the same graphs in this process, on one thread, with ready " +
			"float tensors in batches of 1 to 64; the fastest batch size counts; s<b>_ms is the time of a batch of b. outputs: the largest difference from the CPU's output / max(1, " +
			"largest magnitude of the CPU's output). memory: growth from the end of the first tenth of the runs to the last run, with changing shapes. two: CLIP and the detector side by " +
			"side; the rate of each / its rate alone, both added. kill: samples in flight while the card's child is killed.",
	}
	for _, job := range cardJobs() {
		e := Experiment{
			Name: "card-" + job.name, GoesOn: true,
			Setup: func(ctx context.Context, o Options) (Trial, error) { return newCardTrial(ctx, o, job) },
		}
		row := Row{
			Name: "loop-vs-bare", Issue: lineCardLoop, Value: ratio("loop_per_s", "bare_per_s"), Target: atLeast(0.95), CardOnly: true,
			Beside: []string{"loop_per_s", "bare_per_s"},
		}
		for i, stage := range job.stages {
			row.Beside = append(row.Beside, stage+"_best_batch")
			for _, b := range cardBatches {
				row.Beside = append(row.Beside, curve(job.stages[i], b))
			}
		}
		e.Rows = []Row{row}
		s.Experiments = append(s.Experiments, e)
	}
	outputs := Experiment{Name: "card-outputs", GoesOn: true, Setup: newOutputsTrial}
	for _, c := range comparisons() {
		outputs.Rows = append(outputs.Rows, Row{Name: c.name, Issue: lineCardOutputs, Value: reading(c.name), Worst: true, Target: atMost(c.most)})
	}
	s.Experiments = append(s.Experiments, outputs,
		Experiment{Name: "card-memory", GoesOn: true, Setup: newCardMemoryTrial, Rows: []Row{
			{
				Name: "device", Issue: lineCardMemory, Unit: "MiB", Value: reading("device_growth"), Worst: true, Target: atMost(64), CardOnly: true,
				Beside: []string{"runs", "device_mib", "runs_per_s"},
			},
			{Name: "host", Issue: lineCardMemory, Unit: "MiB", Value: reading("host_growth"), Worst: true, Target: atMost(128), Beside: []string{"host_mib"}},
			{Name: "crashes", Issue: lineCardMemory, Value: reading("crashes"), Worst: true, Target: atMost(0)},
		}},
		Experiment{Name: "card-two", GoesOn: true, Setup: newTwoTrial, Rows: []Row{{
			Name: "shares", Issue: lineCardTwo, Value: reading("shares"), Target: atLeast(0.9), CardOnly: true,
			Beside: []string{"a_alone_per_s", "b_alone_per_s", "a_beside_per_s", "b_beside_per_s"},
		}}},
		Experiment{Name: "card-kill", GoesOn: true, Setup: newCardKillTrial, Rows: []Row{
			{Name: "lost", Issue: lineCardKill, Value: reading("lost"), Worst: true, Target: atMost(0), Beside: []string{"samples", "kills", "back_s"}},
			{Name: "swapped", Issue: lineCardKill, Value: reading("swapped"), Worst: true, Target: atMost(0)},
		}},
	)
	return s
}

// curve is the name of the reading of a stage's time for a batch.
func curve(stage string, batch int) string { return stage + "_s" + strconv.Itoa(batch) + "_ms" }

// withoutCard is a suite whose rows have no target that only a card can keep.
func withoutCard(s Suite) Suite {
	s.Experiments = slices.Clone(s.Experiments)
	for i, e := range s.Experiments {
		e.Rows = slices.Clone(e.Rows)
		for k := range e.Rows {
			if e.Rows[k].CardOnly {
				e.Rows[k].Target = nil
			}
		}
		s.Experiments[i] = e
	}
	return s
}
