package fair

import (
	"math"
	"slices"
	"time"
)

// Tenant identifies a tenant and its weight.
type Tenant struct {
	Profile, Run string
	// Weight is the tenant's share relative to other tenants. If it is not above 0 and finite, it
	// is 1; it is limited to 1e-6 … 1e6.
	Weight float64
	// Contended, if not nil, is called at each Begin for the tenant while an account of another
	// profile is held, or was held since the previous Begin. It is called with the owner's lock
	// held.
	Contended func()
}

// The bounds of a weight: beyond them a tenant would get everything or nothing.
const minWeight, maxWeight = 1e-6, 1e6

func (t Tenant) weight() float64 {
	if !(t.Weight > 0) || math.IsInf(t.Weight, 1) {
		return 1
	}
	return min(max(t.Weight, minWeight), maxWeight)
}

type name struct{ profile, run string }

// maxResting bounds the accounts that are kept for their debts alone. Beyond it the one with
// the least debt is forgotten.
const maxResting = 4096

// Book contains the accounts of the tenants of one resource. T is the owner's data for each
// account. The zero Book is empty. A Book is not safe for concurrent use.
type Book[T any] struct {
	accounts map[name]*Account[T]
	resting  heap[*Account[T]] // those that nobody holds, by their debt
	kept     *Account[T]       // the last that was held, while nobody holds any
	held     int               // accounts that somebody holds
	weights  float64           // the sum of theirs
	clock    float64           // the account of whoever was served last, when that began
	epoch    time.Time         // the first moment; times are seconds since
	profiles map[string]int    // of the accounts that somebody holds
	left     bool              // the last account of a profile, of several, was dropped since the last Begin
}

// Account is the usage of a resource by a tenant.
type Account[T any] struct {
	// Data is the owner's data.
	Data T

	name    name
	weight  float64
	tag     float64 // what it has had, seconds over weight, without the calls that run
	running float64 // executors that it has
	since   float64 // the sum of running times the moment at which each began
	charged float64 // the sum of the estimates of what runs, seconds
	holds   int
	told    func()      // Tenant.Contended of the newest
	places  []*Place[T] // where it waits
	index   int         // in resting
}

// Use is the use of a part of a resource by a tenant, from Begin to End.
type Use struct{ share, began, estimate float64 }

// seconds since the book's first moment.
func (b *Book[T]) seconds(now time.Time) float64 {
	if b.epoch.IsZero() {
		b.epoch = now
	}
	return now.Sub(b.epoch).Seconds()
}

// Hold returns a tenant's account, creates it if necessary, and keeps it until the same number of
// calls of Drop. The latest weight counts.
func (b *Book[T]) Hold(t Tenant, now time.Time) *Account[T] {
	k := name{t.Profile, t.Run}
	kept := b.kept
	if b.kept = nil; kept != nil && kept.name != k {
		delete(b.accounts, kept.name)
	}
	a := b.accounts[k]
	if a == nil {
		if b.accounts == nil {
			b.accounts = make(map[name]*Account[T])
		}
		a = &Account[T]{name: k, weight: t.weight()}
		b.accounts[k] = a
	} else if a.holds == 0 && a != kept {
		b.resting.remove(a)
	}
	if a.holds == 0 {
		b.held++
		b.came(k.profile)
		a.tag = max(a.tag, b.clock)
	} else {
		b.weights -= a.weight
	}
	a.holds++
	a.told = t.Contended
	if w := t.weight(); w != a.weight {
		a.weight = w
		b.settle(a, now)
	}
	b.weights += a.weight
	return a
}

// came notes that an account of a profile is held, went that one no longer is.
func (b *Book[T]) came(profile string) {
	if b.profiles == nil {
		b.profiles = make(map[string]int, 1)
	}
	b.profiles[profile]++
}

func (b *Book[T]) went(profile string) {
	if b.profiles[profile]--; b.profiles[profile] > 0 {
		return
	}
	delete(b.profiles, profile)
	b.left = b.left || len(b.profiles) > 0
}

// Keep holds an account once more that is already held.
func (b *Book[T]) Keep(a *Account[T]) { a.holds++ }

// Drop ends a Hold or a Keep. The last Drop deletes the account, unless it has used more than the
// others. When no account is held, all debts are cancelled, and only the last account is kept,
// because its tenant is usually the next one.
func (b *Book[T]) Drop(a *Account[T]) {
	if a.holds--; a.holds > 0 {
		return
	}
	b.went(a.name.profile)
	b.weights -= a.weight
	if b.held--; b.held == 0 {
		if len(b.accounts) > 1 {
			clear(b.accounts)
			b.accounts[a.name] = a
		}
		a.tag, b.kept, b.resting, b.clock, b.weights, b.epoch, b.left = 0, a, nil, 0, 0, time.Time{}, false
		return
	}
	b.resting.push(a)
	b.forget()
}

// forget drops the accounts without debt.
func (b *Book[T]) forget() {
	for len(b.resting) > 0 && (b.resting[0].tag <= b.clock || len(b.resting) > maxResting) {
		a := b.resting[0]
		b.resting.remove(a)
		delete(b.accounts, a.name)
	}
}

// Turn records that it is a's turn: later tenants begin at the current value of a.
func (b *Book[T]) Turn(a *Account[T], now time.Time) {
	b.clock = max(b.clock, a.due(b.seconds(now)))
	b.forget()
}

// Begin charges an account, which must be held until End, for a part of the resource. share is the
// number of executors, less than 1 for a part of a batch. estimate is the estimated cost in
// seconds.
func (b *Book[T]) Begin(a *Account[T], share, estimate float64, now time.Time) Use {
	u := Use{share, b.seconds(now), estimate}
	a.running += u.share
	a.since += u.share * u.began
	a.charged += u.estimate
	if contended := len(b.profiles) > 1 || b.left; contended && a.told != nil {
		a.told()
	}
	b.left = false
	return u
}

// End replaces the estimate of a use by its real cost in seconds.
func (b *Book[T]) End(a *Account[T], u Use, cost float64, now time.Time) {
	a.running -= u.share
	a.since -= u.share * u.began
	a.charged -= u.estimate
	if a.running < 1e-9 { // the rest of adding and subtracting parts
		a.running, a.since, a.charged = 0, 0, 0
	}
	b.Charge(a, cost, now)
}

// Charge adds a cost to an account, in seconds or in another unit of the resource.
func (b *Book[T]) Charge(a *Account[T], cost float64, now time.Time) {
	a.tag += max(0, cost) / a.weight
	b.settle(a, now)
}

// due is where the account stands: what it has had, what the calls that run have cost so
// far, and their estimates, as if each had all of it before it. It grows with time, and falls
// when a call ends.
func (a *Account[T]) due(now float64) float64 {
	return a.tag + (a.charged+a.running*now-a.since)/a.weight
}

// served reports whether one more of so many executors would be more than the account's share.
func (b *Book[T]) served(a *Account[T], executors float64) bool {
	return a.running+1 > executors*a.weight/b.weights*(1+1e-9)
}

// settle puts an account whose charge may have fallen where it belongs in its lines.
func (b *Book[T]) settle(a *Account[T], now time.Time) {
	for _, p := range a.places {
		p.due = a.due(b.seconds(now))
		p.line.waiting.fix(p)
	}
}

// less and at are what a heap needs.
func (a *Account[T]) less(o *Account[T]) bool { return a.tag < o.tag }
func (a *Account[T]) at() *int                { return &a.index }

// leave forgets that an account waits somewhere.
func (a *Account[T]) leave(p *Place[T]) {
	a.places = slices.DeleteFunc(a.places, func(o *Place[T]) bool { return o == p })
}
