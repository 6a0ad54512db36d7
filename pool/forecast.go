package pool

import "time"

// forecast is what a device expects of an item that it does not have yet.
type forecast struct {
	slots int
	ahead float64 // seconds that its slots still need for what runs, and for what other batch queues have queued
	items int     // of the item's own batch queue that wait, the item among them
	size  int     // of that batch queue's batches
	a, c  float64 // S(b) = a + c·b of that batch queue; both 0: not measured
}

// forecast looks at all that waits, whosever turn it is.
func (p *policy) forecast(a *account, key string, now time.Time) forecast {
	f := forecast{slots: max(1, p.slots), items: 1 + p.full, size: 1}
	for _, b := range p.runs {
		f.ahead += b.left(now).Seconds()
	}
	for k, l := range p.batchQueues {
		if l.n == 0 && l.open == 0 && k.account != a {
			continue
		}
		if k.account == a && k.key == key {
			f.items, f.size = f.items+l.n, l.size()
			if l.fit.solid > 0 { // a single run may have been the first, which sets things up
				f.a, f.c = l.fit.a, l.fit.c
			}
		} else if c := l.fit.c; l.fit.a+c > 0 {
			f.ahead += seconds(l.n, l.size(), l.fit.a, c)
		} else {
			f.ahead += seconds(l.n, 1, 0, unknown)
		}
		f.ahead += float64(l.open-l.running) * max(l.fit.seconds(1), unknown) // batches to be run again
	}
	return f
}

// left is how long a batch that runs will still do so. One that is late is expected to need as
// long again as it is late: the longer a device hangs, the less is sent there.
func (b *batch) left(now time.Time) time.Duration {
	left := b.cost - now.Sub(b.began)
	return max(left, -left)
}

// seconds is what n items cost in batches of a size.
func seconds(n, size int, a, c float64) float64 {
	full := n / max(1, size)
	sum := float64(full) * (a + c*float64(size))
	if rest := n - full*size; rest > 0 {
		sum += a + c*float64(rest)
	}
	return sum
}

// end is in how many seconds the item would be over.
func (f forecast) end(a, c float64) float64 {
	own := a + c*float64(min(f.items, f.size))
	return max(own, (f.ahead+seconds(f.items, f.size, a, c))/float64(f.slots))
}

// idle reports whether the device has nothing to do.
func (f forecast) idle() bool { return f.ahead == 0 && f.items == 1 }

// tie is the part by which a device must be sooner than another to be preferred to one whose
// turn it is: two measurements of equal cards differ by as much.
const tie = 0.01

// soonest is the forecast of the device where an item ends first; of those that tie, the
// first from turn on. A batch queue that one device has not measured yet is taken to cost there what
// it costs where that is least.
func soonest(all []forecast, turn int) int {
	var a, c float64
	for _, f := range all {
		if one := f.a + f.c; one > 0 && (a+c == 0 || one < a+c) {
			a, c = f.a, f.c
		}
	}
	if a+c == 0 {
		c = unknown
	}
	best, first := -1, 0.0
	for i := range all {
		k := (turn + i) % len(all)
		f := all[k]
		if f.a+f.c == 0 {
			f.a, f.c = a, c
		}
		if end := f.end(f.a, f.c); best < 0 || end < first*(1-tie) {
			best, first = k, end
		}
	}
	return best
}
