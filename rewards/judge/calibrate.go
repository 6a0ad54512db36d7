package judge

import (
	"errors"
	"fmt"
	"sort"

	"github.com/rewardloop/rewardloop/rewards"
)

// calibration makes a reward of a score.
type calibration struct {
	// Scale and Offset: score·scale + offset. 1 and 0.
	Scale  float64 `json:"scale"`
	Offset float64 `json:"offset"`
	// Table has points [score, reward], the scores ascending and the rewards never
	// descending, or never ascending; between them it is a straight line, beyond
	// them flat. It excludes Scale and Offset.
	Table [][2]float64 `json:"table"`
}

const maxTable = 1000

func (c *calibration) validate() error {
	var errs rewards.Faults
	errs.Add(!finite(c.Scale) || !finite(c.Offset) || c.Scale == 0, "scale and offset: %v and %v, want finite numbers, and a scale that is not 0", c.Scale, c.Offset)
	if c.Table == nil {
		return errors.Join(errs...)
	}
	errs.Add(c.Scale != 1 || c.Offset != 0, "table: excludes scale and offset")
	errs.Add(len(c.Table) < 2 || len(c.Table) > maxTable, "table: has %d points, want 2 to %d", len(c.Table), maxTable)
	rises, falls := false, false
	for i, p := range c.Table[min(1, len(c.Table)):] {
		before := c.Table[i]
		if p[0] <= before[0] {
			errs = append(errs, fmt.Errorf("table: the score %v does not follow %v: want rising scores", p[0], before[0]))
		}
		rises, falls = rises || p[1] > before[1], falls || p[1] < before[1]
	}
	errs.Add(rises && falls, "table: the rewards rise and fall; want rewards that only rise, or only fall, with the score")
	return errors.Join(errs...)
}

// of returns the reward of a score.
func (c *calibration) of(v float64) float64 {
	if len(c.Table) == 0 {
		return v*c.Scale + c.Offset
	}
	first, last := c.Table[0], c.Table[len(c.Table)-1]
	switch {
	case v <= first[0]:
		return first[1]
	case v >= last[0]:
		return last[1]
	}
	i := sort.Search(len(c.Table), func(i int) bool { return c.Table[i][0] > v })
	a, b := c.Table[i-1], c.Table[i]
	return a[1] + (b[1]-a[1])*(v-a[0])/(b[0]-a[0])
}
