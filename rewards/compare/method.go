package compare

import "fmt"

// The methods of pairwise.
const (
	methodWinRate    = "winrate"
	methodCopeland   = "copeland"
	methodDGR        = "dgr"
	methodElo        = "elo"
	methodTournament = "tournament"
)

// ranking is what a method made of a table.
type ranking struct {
	scores []float64
	group  map[string]any   // details of the group
	each   []map[string]any // details of each participant; nil: none
}

// rank applies a method to a table.
func rank(method string, t *table) (ranking, error) {
	switch method {
	case methodWinRate:
		return ranking{scores: winRate(t)}, nil
	case methodCopeland:
		return ranking{scores: copeland(t)}, nil
	case methodTournament:
		return ranking{scores: tournament(t)}, nil
	case methodElo:
		e := elo(t)
		r := ranking{scores: e.Scores, group: map[string]any{"passes": e.Passes}}
		for _, v := range e.Ratings {
			r.each = append(r.each, map[string]any{"rating": v})
		}
		return r, nil
	case methodDGR:
		d := dgr(t)
		r := ranking{scores: d.Scores, group: map[string]any{"removed": len(d.Removed), "exact": d.Exact}}
		for _, v := range d.Net {
			r.each = append(r.each, map[string]any{"net_wins": v})
		}
		return r, nil
	}
	return ranking{}, fmt.Errorf("method: %q is unknown", method)
}
