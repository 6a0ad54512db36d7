package compat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// readOpenRLHF reads POST /get_reward and /get_reward/{name}, the protocol of OpenRLHF's
// remote reward models (openrlhf/utils/agent.py, openrlhf/cli/serve_rm.py):
//
//	{"query": [str], "prompts": [str], "labels": [any]}
//
// A query is prompt and response in one; the response is what is left of it when the
// prompt it begins with is cut off. A label is the sample's ground_truth.
//
//	200 {"rewards": [float], "scores": [float], "extra_logs": {"acc": [float]}}
//
// rewards and scores are the same list. extra_logs has what the reward reports as
// numbers (a bool is 0 or 1) for every sample of the request: an absent number has no
// place in a list of floats. Lists may be empty, because the client sends empty ones
// to all but the first of several servers.
func readOpenRLHF(req *Request) (*Batch, *Fault) {
	p, f := req.reward()
	if f != nil {
		return nil, f
	}
	plans, err := readQueries(req, p)
	if err != nil {
		return nil, AsFault(err)
	}
	return &Batch{Plans: plans, Whole: true, Answer: allOrNone(func(scores []decimal, results []*wire.Result) any {
		return pairs{{"rewards", scores}, {"scores", scores}, {"extra_logs", extraLogs(results)}}
	})}, nil
}

func readQueries(req *Request, p *Reward) ([]Plan, error) {
	t, err := strictjson.Parse(req.Body)
	if err != nil {
		return nil, err
	}
	keys, err := t.Fields("query", "prompts", "labels")
	if err != nil {
		return nil, err
	}
	queries := keys["query"]
	if queries == nil || queries.Null() {
		return nil, errors.New(`no "query"`)
	}
	n, err := queries.Length(req.Limits.Samples)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	if n > req.Limits.Samples {
		return nil, req.tooMany()
	}
	plans := make([]Plan, n)
	for i := range plans {
		plans[i] = newPlan(req, p.Name, i)
	}
	if err := keys["prompts"].Each(n, "queries", func(i int, v strictjson.Text) (err error) {
		if !v.Null() {
			plans[i].Sample.Prompt, err = v.Str()
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("prompts: %w", err)
	}
	if err := keys["labels"].Each(n, "queries", func(i int, v strictjson.Text) error {
		plans[i].Sample.GroundTruth = v.Raw()
		return nil
	}); err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	if err := queries.Each(n, "queries", func(i int, v strictjson.Text) error {
		text, err := v.Str()
		plans[i].Sample.Response = strings.TrimPrefix(text, plans[i].Sample.Prompt)
		return err
	}); err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	return plans, nil
}

// extraLogs are the numbers that every sample has, by name.
func extraLogs(results []*wire.Result) map[string][]decimal {
	logs := map[string][]decimal{}
	if len(results) == 0 {
		return logs
	}
	for key := range results[0].ExtraInfo {
		list := make([]decimal, 0, len(results))
		for _, r := range results {
			if n, ok := number(r.ExtraInfo[key]); ok && r.Outcome == rewards.Scored {
				list = append(list, decimal(n))
			}
		}
		if len(list) == len(results) && key != scoreColumn && !ownColumn(key) {
			logs[key] = list
		}
	}
	return logs
}
