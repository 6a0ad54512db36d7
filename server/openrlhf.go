package server

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// openRLHF is POST /get_reward and /get_reward/{name}, the protocol of OpenRLHF's
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
func (s *Server) openRLHF() protocol {
	return protocol{run: "_openrlhf", read: func(req *request) (*batch, *fault) {
		p, f := s.profile(req.profile)
		if f != nil {
			return nil, f
		}
		plans, err := s.readQueries(req, p)
		if err != nil {
			return nil, asFault(err)
		}
		return &batch{plans: plans, whole: true, answer: allOrNone(func(scores []decimal, results []*wire.Result) any {
			return pairs{{"rewards", scores}, {"scores", scores}, {"extra_logs", extraLogs(results)}}
		})}, nil
	}}
}

func (s *Server) readQueries(req *request, p *Profile) ([]plan, error) {
	t, err := parseJSON(req.body.data)
	if err != nil {
		return nil, err
	}
	var queries, prompts, labels jsonText
	if err := t.object(func(key string, v jsonText) error {
		switch key {
		case "query":
			queries = v
		case "prompts":
			prompts = v
		case "labels":
			labels = v
		default:
			return errUnknownKey
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if queries == nil || queries.null() {
		return nil, errors.New(`no "query"`)
	}
	n, err := queries.length(s.cfg.BatchSamples)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	if n > s.cfg.BatchSamples {
		return nil, s.tooMany()
	}
	plans := make([]plan, n)
	for i := range plans {
		plans[i] = newPlan(req, p.Name, i)
	}
	if err := prompts.each(n, "queries", func(i int, v jsonText) (err error) {
		if !v.null() {
			plans[i].sample.Prompt, err = v.str()
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("prompts: %w", err)
	}
	if err := labels.each(n, "queries", func(i int, v jsonText) error {
		plans[i].sample.GroundTruth = v.raw()
		return nil
	}); err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	if err := queries.each(n, "queries", func(i int, v jsonText) error {
		text, err := v.str()
		plans[i].sample.Response = strings.TrimPrefix(text, plans[i].sample.Prompt)
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
