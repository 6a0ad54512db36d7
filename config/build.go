package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
)

// BuildManagers makes the reward manager of every profile, by its name. Scorers
// come from reg, one for each term. If anything is wrong the error is a FaultsError
// with all of it, and what was built is closed again.
func BuildManagers(c *Config, reg *rewards.Registry) (map[string]*rewards.Manager, error) {
	var faults FaultsError
	managers := map[string]*rewards.Manager{}
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		m, wrong := buildManager(c.Profiles[name], c.Loop, reg)
		if len(wrong) > 0 {
			faults = append(faults, wrong...)
			continue
		}
		managers[name] = m
	}
	if err := faults.sorted(); err != nil {
		for _, m := range managers {
			err = errors.Join(err, m.Close())
		}
		return nil, err
	}
	return managers, nil
}

func buildManager(p *Profile, l Loop, reg *rewards.Registry) (*rewards.Manager, FaultsError) {
	cfg := rewards.ManagerConfig{
		Single:          p.Single,
		Aggregation:     p.Aggregation,
		OnSampleFailure: p.OnSampleFailure,
		Timeout:         l.TermTimeout,
	}
	var faults FaultsError
	for _, t := range p.Terms {
		scorer, err := reg.Build(t.Scorer, t.scorerOptions())
		if err != nil {
			message := err.Error()
			if errors.Is(err, rewards.ErrUnknownScorer) {
				message += nearest(t.Scorer, reg.Names())
			}
			faults = append(faults, Fault{t.Place, p.key(t), message})
			continue
		}
		cfg.Terms = append(cfg.Terms, rewards.Term{
			Key: t.Key, Weight: t.Weight, Required: t.Required, Scorer: scorer, OnFailure: t.OnFailure,
			Timeout: t.Timeout, Retries: t.Retries, InvalidValues: t.InvalidValues,
		})
	}
	if len(faults) == 0 {
		m, err := rewards.NewManager(cfg)
		if err == nil {
			return m, nil
		}
		faults = append(faults, Fault{p.Place, p.section(), err.Error()})
	}
	for _, t := range cfg.Terms {
		if c, ok := t.Scorer.(rewards.Closer); ok {
			if err := c.Close(); err != nil {
				faults = append(faults, Fault{p.Place, p.section(), fmt.Sprintf("closing %s: %v", t.Key, err)})
			}
		}
	}
	return nil, faults
}

// section is where the profile stands in a file.
func (p *Profile) section() string {
	if p.Name == DefaultProfile {
		return "reward"
	}
	return "rewards." + p.Name
}

// key is where a term of the profile stands.
func (p *Profile) key(t TermConfig) string {
	if p.Single {
		return p.section() + ".custom_reward_function"
	}
	return p.section() + ".reward_functions." + t.Key
}
