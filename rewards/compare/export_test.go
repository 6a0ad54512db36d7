package compare

// What the tests of single steps reach for.

// ReadOutcome and ReadOrder read answers.
var (
	ReadOutcome = readOutcome
	ReadOrder   = readOrder
)

// Plan returns who of n members (and a reference, as number n) meets whom.
func Plan(ids []string, perMember int, reference bool) [][2]int {
	var people []*participant
	for i, id := range ids {
		people = append(people, &participant{member: i, id: id, key: keyOf("g", "\x00"+id)})
	}
	if reference {
		people = append(people, &participant{member: asReference, id: referenceID})
	}
	var pairs [][2]int
	for _, c := range plan(people, perMember) {
		pairs = append(pairs, [2]int{c.a, c.b})
	}
	return pairs
}

// For the tests of the package alone.
type (
	Comparison = comparison
	Outcome    = outcome
	Table      = table
	Tally      = tally
)

const (
	ABetter = aBetter
	BBetter = bBetter
	Tie     = tie
)

var (
	Copeland        = copeland
	DGR             = dgr
	Elo             = elo
	MinMax          = minMax
	NewTable        = newTable
	RankFlowFactory = rankFlowFactory
	RankUnit        = rankUnit
	Ranks           = ranks
	Tournament      = tournament
	WinRate         = winRate
	ZScore          = zScore
)
