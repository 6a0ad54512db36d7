package demo

import (
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Demo is the complete result of a demo: its Record, and the result of every sample in the
// streaming run, in the order of the batch.
type Demo struct {
	Record Record
	Scores []Score
}

// Record is the content of out/demo/trace.json: the recorded data of the two runs.
type Record struct {
	About About `json:"about"`
	// Streaming and Batch are the two runs of the same rollout with the same pool.
	Streaming trace.Trace `json:"streaming"`
	Batch     trace.Trace `json:"batch"`
	// Samples are in the order of the batch, like the spans of the traces.
	Samples []Sample `json:"samples"`
	// Groups are the statistics that the server sent for each prompt group of the streaming run, in
	// the order of the groups' first samples.
	Groups []wire.GroupStats `json:"groups"`
}

// About describes the conditions of the demo.
type About struct {
	Version string `json:"version"`
	// Reader is the text reader; Places is the number of pictures that it read at the same time.
	Reader string `json:"reader"`
	Places int    `json:"places"`
	GPUs   int    `json:"gpus"`
	Seed   uint64 `json:"seed"`
}

// Sample describes one sample, with its score in each run.
type Sample struct {
	ID       string `json:"id"`
	UID      string `json:"uid"`
	Index    int    `json:"index"`
	GPU      int    `json:"gpu"`
	Target   string `json:"target"`
	Rendered string `json:"rendered"`
	// Streaming and Batch are null if the sample got no score.
	Streaming *float64 `json:"streaming_score"`
	Batch     *float64 `json:"batch_score"`
}

// Score is a line of out/demo/scores.jsonl, in the form of the command score with the index of the
// sample added.
type Score struct {
	ID          string                   `json:"id"`
	Index       int                      `json:"index"`
	UID         string                   `json:"uid"`
	Outcome     rewards.Outcome          `json:"outcome"`
	RewardScore *float64                 `json:"reward_score"`
	ExtraInfo   map[string]any           `json:"reward_extra_info"`
	Details     map[string]any           `json:"details"`
	Errors      []rewards.ComponentError `json:"errors"`
	TimingMS    map[string]float64       `json:"timing_ms"`
	Worker      string                   `json:"worker"`
	Attempts    int                      `json:"attempts"`
}

func newRecord(about About, pictures []Picture, plan Plan, streaming, batch *played) *Demo {
	d := &Demo{Record: Record{About: about, Streaming: streaming.trace, Batch: batch.trace}}
	groups := map[string]*wire.GroupStats{}
	for i, p := range pictures {
		res := streaming.seen[i].res
		d.Record.Samples = append(d.Record.Samples, Sample{
			ID: p.ID, UID: p.UID, Index: i, GPU: plan.GPU[i], Target: p.Target, Rendered: p.Rendered,
			Streaming: res.RewardScore, Batch: batch.seen[i].res.RewardScore,
		})
		d.Scores = append(d.Scores, Score{
			ID: res.ID, Index: i, UID: p.UID, Outcome: res.Outcome, RewardScore: res.RewardScore, ExtraInfo: res.ExtraInfo,
			Details: res.Details, Errors: res.Errors, TimingMS: res.TimingMS, Worker: res.Worker, Attempts: res.Attempts,
		})
		if res.Group != nil {
			groups[p.UID] = res.Group
		}
	}
	for _, uid := range uniqueUIDs(d.Record.Samples) {
		if g := groups[uid]; g != nil {
			d.Record.Groups = append(d.Record.Groups, *g)
		}
	}
	return d
}

// uniqueUIDs lists the prompt groups in the order of their first samples.
func uniqueUIDs(samples []Sample) []string {
	var uids []string
	seen := map[string]bool{}
	for _, s := range samples {
		if !seen[s.UID] {
			seen[s.UID] = true
			uids = append(uids, s.UID)
		}
	}
	return uids
}
