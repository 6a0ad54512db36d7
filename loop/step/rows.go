package step

import (
	"math"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// assembly is one step's rows.
type assembly struct {
	rows    []*Row // in order of arrival
	byID    map[string]*Row
	groups  map[string]*rowGroup // by uid; the latest of that name
	byIndex map[int64]*rowGroup
	left    []*rowGroup // not handed out, in order of arrival
	ready   []*rowGroup // likewise, and complete, in order of completion
	next    int64       // the lowest index that was not handed out in order of index
	given   map[int64]bool
	chunks  []*chunk
	bytes   int64
	touched time.Time // latest arrival, result or reading
}

// rowGroup is what is handed out as a whole: a prompt group, or a sample without one.
type rowGroup struct {
	uid      string
	size     int // members that are to come, as far as is known
	rows     []*Row
	final    int
	complete bool
	given    bool
}

// lowest is the group's lowest row, for the order by index; one without comes last.
func (g *rowGroup) lowest() int64 {
	low := int64(math.MaxInt64)
	for _, r := range g.rows {
		if r.index != nil {
			low = min(low, *r.index)
		}
	}
	return low
}

// chunk is what was handed out under one number.
type chunk struct {
	rows   []*Row
	groups int
	done   bool
}

func newAssembly() *assembly {
	return &assembly{byID: map[string]*Row{}, groups: map[string]*rowGroup{}, byIndex: map[int64]*rowGroup{}, given: map[int64]bool{}}
}

// Arrival is an arrived sample.
type Arrival struct {
	ID       string
	Index    *int64    // index in the trainer's batch; nil: no index
	UID      string    // prompt group; "": no group
	Size     int       // number of members of the prompt group
	Received time.Time // time of the first byte
	Arrived  time.Time // time at which the sample was complete
	// Flight is the sample until it has its result. It is nil for a sample that did not arrive over
	// a websocket; such a sample gets no row.
	Flight Flight
}

// assemble makes the row of a sample that has arrived, where somebody may ask for the
// step as a whole.
func (b *Book) assemble(st *Step, a Arrival) *Row {
	if a.Flight == nil || st.forgotten != "" {
		return nil
	}
	if st.assembly == nil {
		st.assembly = newAssembly()
	}
	if a.Received.Before(st.first) {
		st.first = a.Received
	}
	before := st.assembly.bytes
	r := st.assembly.add(a)
	b.count(st, st.assembly.bytes-before)
	return r
}

// rowBytes is what a row costs beside its names and its columns: itself, a group, an attempt,
// and its places in the maps of a step, as measured with 20,000 rows.
const rowBytes = 1024

// add makes the row of a sample that has arrived.
func (a *assembly) add(s Arrival) *Row {
	r := &Row{id: s.ID, index: s.Index, flight: s.Flight, received: s.Received, queued: s.Arrived}
	size := 1
	name := "\x00" + r.id // a uid holds no NUL from a client that means well; one that does not hurts itself
	if s.UID != "" {
		r.uid, size, name = s.UID, s.Size, s.UID
	}
	g := a.groups[name]
	if g == nil || g.complete || g.given { // a latecomer is a group of its own, and so is what comes when the others were handed out
		if g != nil {
			size = 1
		}
		g = &rowGroup{uid: r.uid}
		a.groups[name] = g
		a.left = append(a.left, g)
	}
	g.size = max(g.size, size)
	g.rows = append(g.rows, r)
	a.rows = append(a.rows, r)
	a.byID[r.id] = r
	if r.index != nil {
		a.byIndex[*r.index] = g
	}
	r.group = g
	a.bytes += rowBytes + int64(2*len(r.id)+len(r.uid))
	a.touched = s.Arrived
	return r
}

// finish takes in that a row is final, and reports whether that completed its group.
func (a *assembly) finish(now time.Time, r *Row) bool {
	a.touched = now
	g := r.group
	if g.final++; g.final < len(g.rows) || g.final < g.size || g.complete {
		return false
	}
	g.complete = true
	if !g.given {
		a.ready = append(a.ready, g)
	}
	return true
}

// findAbsent makes rows of the samples that never came, as far as they are known: by
// their declared ids, else by the rows that nobody has filled, where these are no more
// than maxNames.
func (b *Book) findAbsent(now time.Time, st *Step) {
	missing := st.expected - st.arrived
	if missing <= 0 || st.forgotten != "" {
		return
	}
	a := st.assembly
	if a == nil {
		a = newAssembly()
		a.touched = now
		st.assembly = a
	}
	placed := len(st.names) == st.expected // the ids were declared in the order of the batch
	for _, r := range a.rows {
		if at, known := st.names[r.id]; !known || r.index == nil || *r.index != int64(at) {
			placed = false
		}
	}
	if len(st.names) > 0 {
		for id, at := range st.names {
			if a.byID[id] != nil {
				continue
			}
			r := &Row{id: id, outcome: rewards.OutcomeExpired, atDeadline: true}
			if placed {
				r.index = new(int64(at))
			}
			st.absent = append(st.absent, r)
		}
	} else if len(a.byIndex) == len(a.rows) && st.expected <= maxNames {
		for i := range int64(st.expected) {
			if a.byIndex[i] == nil && len(st.absent) < missing {
				st.absent = append(st.absent, &Row{index: new(i), outcome: rewards.OutcomeExpired, atDeadline: true})
			}
		}
	}
	slices.SortFunc(st.absent, byRow)
	size := int64(len(st.absent)) * rowBytes
	a.bytes += size
	b.count(st, size)
}
