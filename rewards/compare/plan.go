package compare

import (
	"cmp"
	"slices"
)

// contest is the comparison of two participants, a and b by their place in a list.
type contest struct {
	a, b int
	// outcome is what both orders say of a and b, Unknown where one has no answer.
	outcome outcome
	// cause says why it is Unknown.
	cause error
	// same says that both show the same: a tie that nobody was asked about.
	same bool
	// biased says that the two orders disagreed: a tie, too.
	biased  bool
	answers []said
}

// plan lists who is compared with whom: all with all, or each member with about perMember
// others, drawn by the keys. The reference is compared with every member. Equal groups
// get equal plans.
//
// Drawn are a ring of the members in the order of their keys, in which each is compared
// with its nearest neighbours: everybody has the same number of comparisons (one has one
// more where both numbers are odd), and nobody is cut off from the rest.
func plan(people []*participant, perMember int) []contest {
	var members []int
	var contests []contest
	for i, p := range people {
		if p.member != asReference {
			members = append(members, i)
		}
	}
	slices.SortFunc(members, func(a, b int) int {
		return cmp.Or(cmp.Compare(people[a].key, people[b].key), cmp.Compare(people[a].id, people[b].id))
	})
	n := len(members)
	if perMember == 0 || perMember >= n {
		perMember = n - 1
	}
	meet := func(a, b int) { contests = append(contests, contest{a: members[a%n], b: members[b%n]}) }
	for step := 1; step <= perMember/2; step++ {
		for i := range n {
			meet(i, i+step)
		}
	}
	if perMember%2 == 1 { // half a step more: those who stand opposite
		for i := range (n + 1) / 2 {
			meet(i, i+n/2)
		}
	}
	for i, p := range people {
		if p.member == asReference {
			for _, m := range members {
				contests = append(contests, contest{a: m, b: i})
			}
		}
	}
	return contests
}

// swapped draws which of two is shown first where only one order is asked for.
func swapped(a, b *participant) bool {
	return (a.key < b.key) == (pairKey(a.key, b.key)&1 == 0)
}
