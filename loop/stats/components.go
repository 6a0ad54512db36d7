package stats

import (
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// component is what a result says of one component: a value, a failure, or, of one that was
// skipped, neither.
type component struct {
	name   string
	value  *float64
	failed bool
}

// components reads the columns of the components out of a result, by name. A component is known
// by the flag beside its value that says whether it was imputed (package rewards).
func components(res *wire.Result) []component {
	const (
		prefix = "reward/"
		flag   = "/imputed"
		single = "rewardloop/imputed"
	)
	var all []component
	for key, v := range res.ExtraInfo {
		name, found := strings.CutSuffix(key, flag)
		imputed, _ := v.(bool)
		switch {
		case !found:
		case key == single:
			for _, name := range []string{"acc", "score"} {
				if value, there := res.ExtraInfo[name]; there {
					all = append(all, componentOf(name, value, imputed, res.RewardScore == nil))
				}
			}
		case strings.HasPrefix(name, prefix):
			broken := slices.ContainsFunc(res.Errors, func(e rewards.ComponentError) bool { return e.Component == name[len(prefix):] })
			all = append(all, componentOf(name, res.ExtraInfo[name], imputed, broken))
		}
	}
	slices.SortFunc(all, func(a, b component) int { return strings.Compare(a.name, b.name) })
	return all
}

func componentOf(name string, value any, imputed, broken bool) component {
	c := component{name: name, failed: imputed || broken}
	if imputed {
		return c
	}
	if x, isNumber := numeric(value); isNumber {
		c.value = number(x)
	}
	if right, isBool := value.(bool); isBool { // an acc that says right or wrong
		c.value = new(float64)
		if right {
			*c.value = 1
		}
	}
	return c
}

// numeric is the number of a column; a scorer that counts gives whole ones.
func numeric(v any) (x float64, isNumber bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case int64:
		return float64(n), true
	}
	return 0, false
}
