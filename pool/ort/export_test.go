package ort

import (
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
)

// EveryoneHas reports whether every process of a runner has a model.
func EveryoneHas(r pool.Runner, m infer.Model) bool { return r.(*runner).everyoneHas(m) }
