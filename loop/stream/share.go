package stream

import (
	"math"
	"slices"
	"time"
)

// How connections share the memory for frames: max-min fair by what each can use, within the
// bound of its profile; first between the names of tokens, then between the connections of a
// name, so that nobody has more by opening more of them. A connection with nothing to send keeps a floor, so that its first
// samples need not wait; what it has beyond that is asked back when another one is short.

const (
	// firstGrant is the most that an idle connection keeps: a few raw pictures of 512², or
	// forty JPEG ones. All idle connections together keep a sixteenth of the memory.
	firstGrant = 1 << 20
	idlePart   = 16
	// idleAfter is how long nothing has come over a connection whose credit is asked back, and
	// askEvery how long after an answer it is asked again.
	idleAfter = 100 * time.Millisecond
	askEvery  = time.Second
	// lookEvery is how often shares are worked out anew while memory is short.
	lookEvery = 100 * time.Millisecond
	// yieldTimeout is how long a client has to hand idle credit back, and to send the message
	// that the reserve was kept for.
	yieldTimeout = 2 * time.Second
)

// floor is what every connection has as credit, whatever the others want.
func (f *Flow) floor() int64 {
	return min(firstGrant, f.budget.quota()/idlePart/int64(max(len(f.sessions), 1)))
}

// share is how much a connection should have, in flight and as credit.
func (f *Flow) share(w *window) int64 {
	most := f.wants(w)
	if level, bound := f.levels[w.party()]; bound {
		most = min(most, max(level, f.floor()))
	}
	return most
}

// wants is how much a connection can use, in flight and as credit.
func (f *Flow) wants(w *window) int64 {
	return min(max(w.demand, f.floor()), f.full(w.profile).Bytes)
}

// lacks reports whether a connection has less than it can use.
func (f *Flow) lacks(w *window) bool { return w.window() < f.wants(w) }

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// party is a name's connections for one profile.
type party struct{ profile, client string }

func (w *window) party() party { return party{w.profile, w.client} }

// divide works the shares out: as much for each as it can use, and where that is too much
// for its profile or for the memory, the same for all that can use it.
func (f *Flow) divide() {
	b := &f.budget
	room, own := b.quota()-b.held, map[string]int64{}
	profiles, all := map[string]map[party][]int64{}, map[string][]int64{}
	for _, s := range f.sessions {
		w := &s.credit
		busy := w.busy().Bytes
		if b.lent == w {
			busy -= b.size
		}
		room += busy // it counts within the share
		own[w.profile] += busy + w.unused().Bytes
		if profiles[w.profile] == nil {
			profiles[w.profile] = map[party][]int64{}
		}
		profiles[w.profile][w.party()] = append(profiles[w.profile][w.party()], f.wants(w))
	}
	f.levels = map[party]int64{}
	for profile, wants := range profiles {
		levels := levelsOf(wants, b.each-(b.of[profile]-own[profile]))
		for p, list := range wants {
			f.levels[p] = levels[p]
			for _, n := range list {
				all[p.client] = append(all[p.client], min(n, levels[p]))
			}
		}
	}
	most, bound := levelsOf(all, room), false
	for p := range f.levels {
		f.levels[p] = min(f.levels[p], most[p.client])
		bound = bound || f.levels[p] < math.MaxInt64
	}
	if !bound {
		f.levels = nil
	}
}

// levelsOf divides room between groups, and what each has between those in it, and returns
// the level of each group.
func levelsOf[K comparable](wants map[K][]int64, room int64) map[K]int64 {
	var sums []int64
	sum := map[K]int64{}
	for k, list := range wants {
		for _, n := range list {
			sum[k] += n
		}
		sums = append(sums, sum[k])
	}
	most, levels := level(sums, room), map[K]int64{}
	for k, list := range wants {
		levels[k] = math.MaxInt64
		if sum[k] > most {
			levels[k] = level(list, most)
		}
	}
	return levels
}

// level is the largest share of max-min fairness: those that want less have what they want,
// all others the same. It sorts what they want.
func level(wants []int64, room int64) int64 {
	slices.Sort(wants)
	room = max(room, 0)
	for i, n := range wants {
		if left := int64(len(wants) - i); n > room/left {
			return room / left
		}
		room -= n
	}
	return math.MaxInt64
}

// Due returns the time at which Tick must be called, or zero if no session waits for memory.
func (f *Flow) Due() time.Time {
	if !f.waiting() {
		return time.Time{}
	}
	return f.next
}

// waiting reports whether anybody waits for memory, or the gateway for credit that it has
// asked for.
func (f *Flow) waiting() bool {
	return f.short || f.levels != nil || len(f.line) > 0 || slices.ContainsFunc(f.sessions, func(s *Session) bool { return !s.credit.asked.IsZero() })
}

// Tick recomputes the shares while connections can use more memory than there is, asks idle clients
// to return credit, and takes it from those that do not answer within 2 s. short reports whether
// memory is short.
func (f *Flow) Tick(now time.Time) (grants Grants, short bool) {
	if !f.waiting() || now.Before(f.next) {
		return nil, false
	}
	f.next = now.Add(lookEvery)
	for _, s := range f.sessions {
		if w := &s.credit; !w.asked.IsZero() && now.Sub(w.asked) >= yieldTimeout {
			w.force(&f.budget)
		}
	}
	f.divide()
	f.pass(now)
	grants = f.TopUp()
	if f.levels == nil {
		return grants, f.short
	}
	floor, lacking := f.floor(), 0
	for _, s := range f.sessions {
		lacking += one(f.lacks(&s.credit))
	}
	for _, s := range f.sessions {
		w := &s.credit
		if lacking == one(f.lacks(w)) {
			continue // nobody else would have it
		}
		idle := now.Sub(w.used) >= idleAfter || w.window() > f.share(w)
		if idle && w.asked.IsZero() && w.unused().Bytes > floor && now.Sub(w.answered) >= askEvery {
			w.asked = now
			grants = append(grants, grant{session: s, conn: s.connection(), reclaim: true})
		}
	}
	return grants, f.short
}

// queue puts a session in line for the reserve.
func (f *Flow) queue(s *Session) {
	if slices.Contains(f.line, s) {
		return
	}
	f.line = append(f.line, s)
	f.wake()
}

// unqueue takes a session out of the line.
func (f *Flow) unqueue(s *Session) {
	if i := slices.Index(f.line, s); i >= 0 {
		f.line = slices.Delete(f.line, i, i+1)
	}
	s.credit.called, s.credit.turn = false, time.Time{}
}

// pass lets the next in line have the reserve where the first does not come for it.
func (f *Flow) pass(now time.Time) {
	if len(f.line) == 0 || f.budget.lent != nil {
		return
	}
	w := &f.line[0].credit
	switch {
	case !w.called:
	case w.turn.IsZero():
		w.turn = now
	case now.Sub(w.turn) >= yieldTimeout:
		f.unqueue(f.line[0])
	}
}
