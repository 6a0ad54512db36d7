package outbound

import (
	"math"
	"slices"
	"time"
)

const (
	// equally is the part of a limit that is divided without regard to what processes
	// want: of n processes each has a tenth of an nth at least, to start with.
	equally = 0.1
	// idle is the part of the limit that is added to what all processes together want, so
	// that all have the same while nobody wants anything, and a call now and then takes
	// little from the others.
	idle = 0.2
	// hungry is how long a process must have used all places it may before it wants more: until
	// others have spoken who began in the same moment.
	hungry = 2 * FleetPeriod
)

// wish is what one process brings to the division of a limit.
type wish struct {
	wants float64
	used  float64 // Requests in flight; 0 where the limit is a rate.
	full  int64   // Report.Full
	guest bool    // Report.Guest
}

// weights are those of a rate. They sum to 1.
func weights(limit float64, wishes []wish) []float64 {
	n := float64(len(wishes))
	sum := limit * idle
	for _, w := range wishes {
		sum += w.wants
	}
	out := make([]float64, len(wishes))
	for i, w := range wishes {
		out[i] = equally/n + (1-equally)*(w.wants+limit*idle/n)/sum
	}
	return out
}

// divide returns the shares of a rate.
func divide(limit float64, wishes []wish) []float64 {
	out := weights(limit, wishes)
	for i := range out {
		out[i] *= limit
	}
	return out
}

// placeWeights are those of a number of places. They sum to 1. Where processes want more than
// there are, each has by what it wants. Where they want less, each has what it wants, and who
// wants less than others has as much as they as far as that goes, but for guests: when a burst
// comes the one that speaks first must not take from the others what they are about to use.
func placeWeights(limit float64, wishes []wish) []float64 {
	out := make([]float64, len(wishes))
	sum, hosts := 0.0, 0
	for i, w := range wishes {
		out[i] = w.wants
		if sum += w.wants; !w.guest {
			hosts++
		}
	}
	if sum < limit {
		level := level(limit, wishes, hosts == 0)
		for i, w := range wishes {
			if hosts == 0 || !w.guest {
				out[i] = max(out[i], level)
			}
		}
		sum = limit
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// level is to how many places those are raised that want less, so that all have the limit
// together. It is more than all of them want.
func level(limit float64, wishes []wish, guests bool) float64 {
	room, n := limit, 0
	wants := make([]float64, 0, len(wishes))
	for _, w := range wishes {
		if room -= w.wants; guests || !w.guest {
			wants = append(wants, w.wants)
		}
	}
	slices.Sort(wants)
	level := 0.0
	for n < len(wants) {
		up := math.Inf(1)
		if n+1 < len(wants) {
			up = wants[n+1]
		}
		level = wants[n]
		n++
		if need := (up - level) * float64(n); need < room {
			room -= need
			continue
		}
		return level + room/float64(n)
	}
	return level
}

// divideWhole returns the shares of a number of places, which sum to the limit; each is
// 1 at least, even where there are more processes than places.
//
// One that goes on to use all it may could use more, nobody knows how many: workers take no more
// samples than they have places for. It wants all, and from then on so does every other that
// uses all it may: were that told by each for itself, the first to speak would have the others'
// places for the 3 s in which a share does not grow.
//
// A process that has more in flight than its share begins nothing new. What it has
// beyond its share is missing to the others until it ends.
func divideWhole(limit int, wishes []wish) []int {
	if slices.ContainsFunc(wishes, func(w wish) bool { return w.full >= hungry.Milliseconds() }) {
		wishes = slices.Clone(wishes)
		for i := range wishes {
			if w := &wishes[i]; w.full > 0 {
				w.wants = max(w.wants, float64(limit))
			}
		}
	}
	shares := make([]int, len(wishes))
	over := make([]bool, len(wishes))
	for again := true; again; {
		room := limit
		var rest []int
		for i := range wishes {
			if over[i] {
				room -= int(wishes[i].used)
			} else {
				rest = append(rest, i)
			}
		}
		spread(room, wishes, rest, shares)
		again = false
		for _, i := range rest {
			if wishes[i].used > float64(shares[i]) {
				over[i], again = true, true
			}
		}
	}
	return shares
}

// spread gives each of some processes one place, and the others by weight. It rounds
// the running sum, so that nothing is lost.
func spread(room int, wishes []wish, some []int, shares []int) {
	mine := make([]wish, len(some))
	for i, at := range some {
		mine[i] = wishes[at]
	}
	free := float64(max(0, room-len(some)))
	sum, given := 0.0, 0
	for i, w := range placeWeights(max(float64(room), 1), mine) {
		sum += w * free
		upto := int(math.Floor(sum + slack))
		shares[some[i]] = 1 + upto - given
		given = upto
	}
}

// window remembers the shares of the last shareHold and allows the least of them: a
// smaller share holds at once, a larger one when everybody else knows of it.
//
// All processes derive the shares from the same reports in the same order, but some hear
// them later than others. Let p be the place in that order of the one that is last. It
// has heard back a report of its own that is no older than shareHold, so that everybody
// has come past p within that time, if not earlier. Each allows itself no more than its
// share at p, and these sum to the limit.
type window struct {
	past []held // Rising; the last one is in force.
}

type held struct {
	share float64
	until time.Time // Zero: it still holds.
}

func (w *window) set(now time.Time, share float64) {
	if n := len(w.past); n > 0 {
		last := &w.past[n-1]
		if last.share == share {
			return
		}
		last.until = now
		for n > 0 && w.past[n-1].share >= share {
			n--
		}
		w.past = w.past[:n]
	}
	w.past = append(w.past, held{share: share})
}

func (w *window) least(now time.Time) float64 {
	n := 0
	for n < len(w.past)-1 && now.Sub(w.past[n].until) >= shareHold {
		n++
	}
	w.past = w.past[n:]
	return w.past[0].share
}

// demand smooths what a process wants of a rate.
type demand struct {
	rate float64 // Arrivals a minute, over the last seconds.
	said float64
}

const (
	// smoothing is the time over which arrivals are averaged.
	smoothing = 5 * time.Second
	// deadBand is by how much a wish must change before it is told: a window remembers
	// the least share, so that noise would cost a part of it.
	deadBand = 0.2
)

// of returns the wish to be told. Calls that wait count as if they were to be sent
// within a second: shares then tend to what makes all wait equally long, as they would
// for one bucket.
func (d *demand) of(arrived, waiting float64, since time.Duration) float64 {
	if since > 0 {
		d.rate += (arrived/since.Minutes() - d.rate) * -math.Expm1(-since.Seconds()/smoothing.Seconds())
	}
	return d.tell(d.rate + 60*waiting)
}

func (d *demand) tell(wants float64) float64 {
	if math.Abs(wants-d.said) > deadBand*max(wants, d.said) || wants == 0 {
		d.said = wants
	}
	return d.said
}

// sane is a number that another process sent.
func sane(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, 1e12)
}
