package loop

import "github.com/prometheus/client_golang/prometheus"

// StatsOf describes a column that was given these values, after and before a look.
func StatsOf(values ...float64) ColumnStats {
	var s stepStats
	c := s.column(stepKey{"train", 1}, rewardColumn)
	for _, v := range values {
		c.add(v, false)
		if c.all.n == 3000 { // to look changes nothing
			early := c.describe(rewardColumn, nil)
			early.finish()
		}
	}
	d := c.describe(rewardColumn, nil)
	d.finish()
	return d
}

// KeptValues returns how many values the steps of a run keep, by step.
func (m *Manager) KeptValues(run string) map[int64]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := map[int64]int{}
	for _, st := range m.core.runs[run].stepLog {
		for _, c := range st.stats.columns {
			kept[st.key.step] += cap(c.values)
		}
	}
	return kept
}

// RewardGauges are those that a manager registers.
func RewardGauges(m *Manager) prometheus.Collector { return newRewardGauges(m) }

// Cancel takes samples of a session back.
func Cancel(s *Session, ids ...string) { s.m.cancel(s, ids) }
