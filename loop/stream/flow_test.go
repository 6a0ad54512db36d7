package stream_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/wire"
)

// side is a client as the test keeps account of it.
type side struct {
	*stream.Session

	link    *peer
	keeping bool              // it never hands credit back
	needs   int64             // bytes that it hands back less
	sent    wire.CreditTotals // since its welcome, with what it has handed back
	credit  wire.CreditTotals // the latest that it was told
	yielded int64             // bytes
	asked   int               // reclaims that it has answered
	frames  []int64
	waiting []int64 // frames of samples that wait for their group
}

// told reads what has come over the connection: totals never fall. A client that is asked
// for credit that it does not need hands it back.
func (c *side) told(t *testing.T, f *stream.Flow, now time.Time) {
	t.Helper()
	last := wire.Credit(got[*wire.Welcome](c.link)[0].Credit)
	for _, total := range got[*wire.Credit](c.link) {
		require.GreaterOrEqual(t, total.Samples, last.Samples)
		require.GreaterOrEqual(t, total.Bytes, last.Bytes)
		last = *total
	}
	c.credit = wire.CreditTotals(last)
	if asked := len(got[*wire.Reclaim](c.link)); !c.keeping && asked > c.asked {
		c.asked = asked
		more := max(c.credit.Bytes-c.sent.Bytes-c.needs, 0)
		c.sent.Bytes += more
		c.yielded += more
		f.Yield(now, c.Session, wire.Yield{Bytes: c.yielded}).Send()
	}
}

func (c *side) attach(t *testing.T, f *stream.Flow) {
	t.Helper()
	c.link, c.sent, c.asked, c.yielded = &peer{}, wire.CreditTotals{}, 0, 0
	f.Attach(c.Session, c.link, greeting(false))
	c.told(t, f, time.Time{})
}

// window is what a client has in flight and may send.
func (c *side) window() (bytes int64) {
	for _, n := range c.frames {
		bytes += n
	}
	return bytes + c.Unused().Bytes
}

// spend has a sample come over a session.
func spend(f *stream.Flow, now time.Time, s *stream.Session, size int64) bool {
	grants, taken := f.Spend(now, s, size)
	grants.Send()
	return taken
}

// begin is when the clock of a test begins.
var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newFlow divides so many bytes among sessions of any profile.
func newFlow(size, each int64, full wire.CreditTotals) *stream.Flow {
	return stream.NewFlow(size, each, always(full), func() {})
}

// In any history the totals never fall, a client that keeps to its credit and hands back what
// it does not need is never refused, and what is held and what may come fit into memory.
func TestCreditNeverFallsAndNeverExceedsTheMemory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same in every run
		full := wire.CreditTotals{Samples: int64(1 + rng.IntN(8)), Bytes: int64(100 + rng.IntN(2000))}
		size := int64(1000 + rng.IntN(9000))
		f := newFlow(size, size, full)
		now, most := begin, int64(0)
		var clients []*side
		for i := range 1 + rng.IntN(6) {
			c := &side{Session: session(fmt.Sprint(i)), keeping: rng.IntN(4) == 0}
			c.attach(t, f)
			clients = append(clients, c)
		}
		for range 500 {
			c := clients[rng.IntN(len(clients))]
			now = now.Add(time.Duration(rng.IntN(100)) * time.Millisecond)
			switch n := int64(1 + rng.IntN(400)); rng.IntN(8) {
			case 0, 1, 2:
				within := c.sent.Samples < c.credit.Samples && c.sent.Bytes+n <= c.credit.Bytes
				if !c.Live() || !within && rng.IntN(4) > 0 {
					continue
				}
				grants, taken := f.Spend(now, c.Session, n)
				grants.Send()
				require.True(t, taken || !within || c.keeping, "it was told that it may")
				if !taken {
					continue
				}
				most = max(most, n)
				c.Expects(1)
				c.sent.Samples++
				c.sent.Bytes += n
				c.frames = append(c.frames, n)
			case 3:
				if len(c.frames) == 0 {
					continue
				}
				c.Expects(-1)
				n, c.frames = c.frames[0], c.frames[1:]
				f.Release(c.Session, n).Send()
			case 4:
				if len(c.frames) == 0 { // the groups of all of them end
					for _, n := range c.waiting {
						c.Parks(false, wire.CreditTotals{Samples: 1, Bytes: n})
					}
					c.frames, c.waiting = c.waiting, nil
					continue
				}
				n, c.frames = c.frames[0], c.frames[1:]
				c.waiting = append(c.waiting, n)
				c.Parks(true, wire.CreditTotals{Samples: 1, Bytes: n})
				f.TopUp().Send()
			case 5:
				if grants, left := f.Detach(c.Session, c.link, now); left {
					grants.Send()
				} else {
					c.attach(t, f)
				}
			case 6:
				if c.Live() && !c.keeping {
					f.Want(now, c.Session, wire.Want{Samples: 1, Bytes: 10 * n}).Send()
				}
			case 7:
				grants, _ := f.Tick(now)
				grants.Send()
			}
			var unused, held int64
			for _, c := range clients {
				c.told(t, f, now)
			}
			for _, c := range clients {
				unused += c.Unused().Bytes
				for _, n := range slices.Concat(c.frames, c.waiting) {
					held += n
				}
				require.LessOrEqual(t, c.Unused().Samples, full.Samples, "no more than the window is ever open")
				require.LessOrEqual(t, c.Unused().Bytes, full.Bytes)
				require.GreaterOrEqual(t, c.Unused().Bytes, int64(0))
			}
			h, granted := f.Bytes()
			require.Equal(t, held, h)
			require.Equal(t, unused, granted)
			require.LessOrEqual(t, h+granted, size-size/4+most, "a quarter is for samples from inside the process, one message for the reserve")
		}
	}
}

// Memory is shared max-min fair: who wants little has it, all others the same.
func TestConnectionsThatWantMoreThanThereIsHaveTheSame(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	const unit = 1 << 20
	f := newFlow(160*unit, 160*unit, wire.CreditTotals{Samples: 1 << 20, Bytes: 100 * unit}) // 120 of it for connections
	var all []*side
	for i := range 4 {
		c := &side{Session: session(fmt.Sprint(i))}
		c.attach(t, f)
		all = append(all, c)
	}
	for i, n := range []int64{100, 10, 100, 30} {
		all[i].needs = n * unit
		f.Want(begin, all[i].Session, wire.Want{Bytes: n * unit}).Send()
	}
	require.Greater(t, all[0].window(), 100*int64(unit)-1, "the first one has all it wants while nobody else wants it")
	for i := range 100 {
		now := begin.Add(time.Duration(i+1) * 100 * time.Millisecond)
		for _, c := range all {
			for c.Unused().Bytes > unit/4 && spend(f, now, c.Session, unit/8) {
				c.frames = append(c.frames, unit/8)
				c.sent.Bytes += unit / 8
			}
		}
		for _, c := range all {
			for _, n := range c.frames {
				f.Release(c.Session, n).Send()
			}
			c.frames = nil
		}
		grants, _ := f.Tick(now)
		grants.Send()
		for _, c := range all {
			c.told(t, f, now)
		}
	}
	for i, n := range []int64{40, 10, 40, 30} {
		require.InDelta(t, n*unit, all[i].window(), unit*1.5, "connection %d", i)
	}
}

// The memory is divided between the names of tokens first: who opens ten connections has no
// more of it than who opens one.
func TestConnectionsOfOneTokenShareAsOne(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	const unit = 1 << 20
	f := newFlow(160*unit, 160*unit, wire.CreditTotals{Samples: 1 << 20, Bytes: 100 * unit}) // 120 of it for connections
	var all []*side
	for i := range 11 {
		c := &side{Session: session(fmt.Sprint(i)), link: &peer{}, needs: 100 * unit}
		hi := greeting(false)
		if hi.Client = "many"; i == 10 {
			hi.Client = "one"
		}
		f.Attach(c.Session, c.link, hi)
		c.told(t, f, begin)
		all = append(all, c)
		f.Want(begin, c.Session, wire.Want{Bytes: 100 * unit}).Send()
	}
	shared := func() (many, one int64) {
		for _, c := range all[:10] {
			many += c.window()
		}
		return many, all[10].window()
	}
	for i := range 60 {
		now := begin.Add(time.Duration(i+1) * 100 * time.Millisecond)
		for _, c := range all {
			for c.Unused().Bytes > unit/4 && spend(f, now, c.Session, unit/8) {
				c.frames = append(c.frames, unit/8)
				c.sent.Bytes += unit / 8
			}
		}
		for _, c := range all {
			for _, n := range c.frames {
				f.Release(c.Session, n).Send()
			}
			c.frames = nil
		}
		grants, _ := f.Tick(now)
		grants.Send()
		for _, c := range all {
			c.told(t, f, now)
		}
	}
	many, one := shared()
	require.InDelta(t, 60*unit, one, 10*unit, "it has half")
	require.InDelta(t, 60*unit, many, 10*unit, "and the ten have the other half")
}

// Of 1,000 connections 990 have been busy once and are idle: the ten that have something to
// send get what they would get alone, whether the idle ones answer or not.
func TestIdleConnectionsDoNotStarveTheBusyOnes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	const full = 64 << 20
	windows := func(idle int) (ten []int64) {
		f := newFlow(768<<20, 768<<20, wire.CreditTotals{Samples: 256, Bytes: full})
		now := begin
		var all, busy []*side
		pass := func() {
			now = now.Add(100 * time.Millisecond)
			grants, _ := f.Tick(now)
			grants.Send()
			for _, c := range all {
				c.told(t, f, now)
			}
		}
		for i := range idle {
			c := &side{Session: session(fmt.Sprint("idle", i)), keeping: i%2 == 0}
			c.attach(t, f)
			all = append(all, c)
			if i < 20 {
				f.Want(now, c.Session, wire.Want{Samples: 256, Bytes: full}).Send()
			}
		}
		for range 20 {
			pass()
		}
		for i := range 10 {
			c := &side{Session: session(fmt.Sprint("busy", i)), needs: full}
			c.attach(t, f)
			all, busy = append(all, c), append(busy, c)
			f.Want(now, c.Session, wire.Want{Samples: 256, Bytes: full}).Send()
		}
		for range 50 {
			for _, c := range busy { // what came in the last pass has been scored
				for _, n := range c.frames {
					f.Release(c.Session, n).Send()
				}
				c.frames = nil
			}
			for _, c := range busy {
				for c.Unused().Bytes >= 1<<20 && c.Unused().Samples > 0 {
					require.True(t, spend(f, now, c.Session, 1<<20))
					c.sent.Bytes += 1 << 20
					c.frames = append(c.frames, 1<<20)
				}
				f.Want(now, c.Session, wire.Want{Samples: 256, Bytes: full}).Send()
			}
			pass()
		}
		for _, c := range busy {
			ten = append(ten, c.window())
		}
		return ten
	}
	alone, beside := slices.Min(windows(0)), slices.Min(windows(990))
	require.Greater(t, alone, int64(50<<20))
	require.GreaterOrEqual(t, float64(beside), 0.9*float64(alone))
}

// A client that says nothing when its idle credit is asked for loses it after two seconds.
// What it sends of that is refused, and taken when there is credit again.
func TestCreditOfAClientThatDoesNotAnswerIsTakenBack(t *testing.T) {
	t.Parallel()
	f := newFlow(40_000, 40_000, wire.CreditTotals{Samples: 256, Bytes: 30_000})
	a, b := &side{Session: session("a"), keeping: true}, &side{Session: session("b")}
	a.attach(t, f)
	f.Want(begin, a.Session, wire.Want{Bytes: 30_000}).Send()
	a.told(t, f, begin)
	require.EqualValues(t, 30_000, a.credit.Bytes)
	b.attach(t, f)
	now := begin
	tick := func(after time.Duration) {
		now = now.Add(after)
		grants, _ := f.Tick(now)
		grants.Send()
		a.told(t, f, now)
		b.told(t, f, now)
	}
	require.True(t, spend(f, now, b.Session, 500), "there is room for one")
	b.Expects(1)
	f.Want(now, b.Session, wire.Want{Bytes: 20_000}).Send()
	tick(time.Second)
	require.Len(t, got[*wire.Reclaim](a.link), 1)
	tick(1900 * time.Millisecond)
	require.Less(t, b.credit.Bytes, int64(15_000))
	tick(200 * time.Millisecond)
	require.Less(t, a.Unused().Bytes, int64(1000), "what every connection keeps")
	require.Greater(t, b.credit.Bytes, int64(19_000))
	a.Expects(1) // something of it is in flight
	require.False(t, spend(f, now, a.Session, 1000))
	f.Yield(now, a.Session, wire.Yield{Bytes: 30_000}).Send() // too late: it counts once
	require.Less(t, a.Unused().Bytes, int64(1000))
	grants, left := f.Detach(b.Session, b.link, now)
	require.True(t, left)
	grants.Send()
	f.Release(b.Session, 500).Send()
	f.Want(now, a.Session, wire.Want{Bytes: 10_000}).Send()
	a.told(t, f, now)
	require.GreaterOrEqual(t, a.Unused().Bytes, int64(10_000))
	require.Equal(t, a.credit.Bytes-30_000, a.Unused().Bytes, "both sides agree again")
	require.True(t, spend(f, now, a.Session, 1000))
}

// What was taken back from a client that believes that it has it still is given back without
// a higher total: it would otherwise believe in twice as much.
func TestCreditThatWasTakenBackIsGivenAgainUnderTheSameTotal(t *testing.T) {
	t.Parallel()
	f := newFlow(40_000, 40_000, wire.CreditTotals{Samples: 256, Bytes: 30_000})
	a, b := &side{Session: session("a"), keeping: true}, &side{Session: session("b")}
	a.attach(t, f)
	f.Want(begin, a.Session, wire.Want{Bytes: 30_000}).Send()
	b.attach(t, f)
	f.Want(begin, b.Session, wire.Want{Bytes: 20_000}).Send()
	for i := range 40 {
		grants, _ := f.Tick(begin.Add(time.Duration(i) * 100 * time.Millisecond))
		grants.Send()
	}
	require.Less(t, a.Unused().Bytes, int64(1000), "what every connection keeps")
	grants, _ := f.Detach(b.Session, b.link, begin)
	grants.Send()
	f.Want(begin, a.Session, wire.Want{Bytes: 30_000}).Send()
	a.told(t, f, begin)
	require.EqualValues(t, 30_000, a.credit.Bytes)
	require.EqualValues(t, 30_000, a.Unused().Bytes)
}

// With nothing in flight a client may send one sample whatever the credit: a message larger
// than the window would otherwise never go. Where memory has no room for it, such messages
// come one after the other.
func TestMessagesForWhichThereIsNoRoomComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	const size, large = 1 << 20, 900_000
	f := newFlow(size, size, wire.CreditTotals{Samples: 256, Bytes: 1000})
	now := begin
	var all []*side
	for i := range 100 {
		c := &side{Session: session(fmt.Sprint(i))}
		c.attach(t, f)
		all = append(all, c)
	}
	send := func(c *side) bool {
		if !spend(f, now, c.Session, large) {
			return false
		}
		c.Expects(1)
		return true
	}
	taken := 0
	for _, c := range all {
		if send(c) {
			taken++
		}
	}
	require.Equal(t, 1, taken)
	calls := func(c *side) int { return len(got[*wire.Credit](c.link)) }
	require.Zero(t, calls(all[1]))
	end := func(c *side) {
		c.Expects(-1)
		f.Release(c.Session, large).Send()
	}
	end(all[0])
	require.Equal(t, 1, calls(all[1]), "it is told that it may try again")
	require.Zero(t, calls(all[2]))
	require.False(t, send(all[2]), "it is not its turn")
	require.True(t, send(all[1]))
	end(all[1])
	for range 2 { // number 2 has gone silent
		now = now.Add(2 * time.Second)
		grants, _ := f.Tick(now)
		grants.Send()
	}
	require.True(t, send(all[3]))
	grants, left := f.Detach(all[4].Session, all[4].link, now)
	require.True(t, left)
	grants.Send()
	end(all[3])
	require.True(t, send(all[5]), "a client that has left has no turn")
	end(all[5])
	held, _ := f.Bytes()
	require.Zero(t, held)
}

// A sample that is known is compared and takes no memory.
func TestASampleThatIsSentAgainTakesNoMemory(t *testing.T) {
	t.Parallel()
	f := newFlow(4000, 4000, wire.CreditTotals{Samples: 256, Bytes: 1000})
	c := session("a")
	f.Attach(c, &peer{}, greeting(false))
	require.True(t, spend(f, begin, c, 1000))
	c.Expects(1)
	for range 100 {
		f.Skip(begin, c, 3000)
	}
	held, _ := f.Bytes()
	require.EqualValues(t, 1000, held)
}

func TestCreditOfAClientThatLeftGoesToTheOthers(t *testing.T) {
	t.Parallel()
	f := newFlow(40_000, 40_000, wire.CreditTotals{Samples: 256, Bytes: 30_000})
	a, b := &side{Session: session("a")}, &side{Session: session("b")}
	a.attach(t, f)
	f.Want(begin, a.Session, wire.Want{Bytes: 30_000}).Send()
	a.told(t, f, begin)
	require.EqualValues(t, 30_000, a.credit.Bytes, "three quarters of the memory")
	b.attach(t, f)
	require.Zero(t, b.credit.Bytes)
	f.Want(begin, b.Session, wire.Want{Bytes: 40_000}).Send()
	require.True(t, f.Reserve("", 3000), "idle streams leave a quarter to samples from inside")
	require.False(t, f.Reserve("", 9000))
	grants, left := f.Detach(a.Session, &peer{}, time.Now())
	require.False(t, left, "a connection that was replaced before says nothing")
	require.Empty(t, grants)
	grants, left = f.Detach(a.Session, a.link, time.Now())
	require.True(t, left)
	grants.Send()
	b.told(t, f, begin)
	require.EqualValues(t, 27_000, b.credit.Bytes)
	require.Equal(t, []*stream.Session{b.Session}, f.Sessions())
}

// A grant is for one connection: its totals would be wrong on the next one.
func TestAGrantIsNotToldOverTheConnectionThatCameAfterIt(t *testing.T) {
	t.Parallel()
	f := newFlow(1<<20, 1<<20, wire.CreditTotals{Samples: 1, Bytes: 1000})
	c := &side{Session: session("a")}
	c.attach(t, f)
	require.True(t, spend(f, begin, c.Session, 10))
	grants := f.Release(c.Session, 10)
	require.NotEmpty(t, grants)
	require.Same(t, c.link, f.Displace(c.Session))
	old := c.link
	c.attach(t, f)
	grants.Send()
	require.Empty(t, got[*wire.Credit](old))
	require.Empty(t, got[*wire.Credit](c.link))
}

// Memory is full of samples that wait for their groups. What is ended for one client may
// be enough for the next.
func TestOnlySessionsThatCannotGoOnAreStuck(t *testing.T) {
	t.Parallel()
	f := newFlow(4000, 4000, wire.CreditTotals{Samples: 8, Bytes: 1500})
	each := wire.CreditTotals{Samples: 1, Bytes: 500}
	var clients []*stream.Session
	for i := range 2 {
		c := session(fmt.Sprint(i))
		f.Attach(c, &peer{}, greeting(false))
		f.Want(begin, c, wire.Want{Bytes: 1500})
		clients = append(clients, c)
	}
	for i := range 6 {
		c := clients[i%2]
		require.True(t, spend(f, begin, c, each.Bytes))
		c.Expects(1)
		require.NotContains(t, slices.Collect(f.Stuck()), c, "somebody works on its sample")
		c.Parks(true, each)
	}
	f.TopUp()
	stuck := func(end func(*stream.Session)) (ids []string) {
		for c := range f.Stuck() {
			ids = append(ids, c.ID().Client)
			end(c)
		}
		return ids
	}
	require.Equal(t, []string{"0", "1"}, stuck(func(*stream.Session) {}))
	require.Equal(t, []string{"0"}, stuck(func(*stream.Session) {
		clients[1].Parks(false, each) // of the same group
	}))
}

// always is the same window for every profile.
func always(full wire.CreditTotals) func(string) wire.CreditTotals {
	return func(string) wire.CreditTotals { return full }
}

// Frames of a profile whose samples are not scored stay. However many connections it has,
// another profile's first connection finds half of the memory that connections get.
func TestOneProfileLeavesHalfOfTheMemoryToTheOthers(t *testing.T) {
	t.Parallel()
	const size = 100_000
	f := newFlow(size, size/2, wire.CreditTotals{Samples: 256, Bytes: 30_000})
	attach := func(client, reward string) *stream.Session {
		s := session(client)
		hello := greeting(false)
		hello.Booked = reward
		f.Attach(s, &peer{}, hello)
		f.Want(begin, s, wire.Want{Bytes: 100_000})
		return s
	}
	held := int64(0)
	for i := range 10 {
		s := attach(fmt.Sprint("stuck", i), "stuck")
		for s.Unused().Bytes >= 1000 && s.Unused().Samples > 0 {
			require.True(t, spend(f, begin, s, 1000))
			s.Expects(1)
			held += 1000
		}
	}
	require.LessOrEqual(t, held, int64(size/2))
	require.Greater(t, held, int64(size/2-1000))
	s := attach("sound", "sound")
	require.Equal(t, int64(size-size/4-size/2), s.Unused().Bytes, "what connections get, less the other profile's half")
	require.True(t, spend(f, begin, s, 1000))
	f.Release(s, 1000)
}

// A client that comes back may ask for another profile: what it holds moves with it.
func TestAClientThatComesBackForAnotherProfileIsBookedThere(t *testing.T) {
	t.Parallel()
	f := newFlow(10_000, 5000, wire.CreditTotals{Samples: 256, Bytes: 4000})
	s, link := session("c"), &peer{}
	hello := greeting(false)
	hello.Booked = "a"
	f.Attach(s, link, hello)
	f.Want(begin, s, wire.Want{Bytes: 4000})
	require.True(t, spend(f, begin, s, 3000))
	hello.Booked = "b"
	f.Displace(s)
	f.Attach(s, &peer{}, hello)
	f.Want(begin, s, wire.Want{Bytes: 4000})
	other := session("d")
	hello.Booked = "a"
	f.Attach(other, &peer{}, hello)
	f.Want(begin, other, wire.Want{Bytes: 5000})
	require.Equal(t, int64(10_000-10_000/4-3000)-s.Unused().Bytes, other.Unused().Bytes, "profile a holds nothing any more")
	f.Release(s, 3000)
	held, _ := f.Bytes()
	require.Zero(t, held)
}

// A connection that sends little keeps what it needs of a large credit when others are short.
func TestAConnectionThatSendsLittleHandsBackWhatItDoesNotNeed(t *testing.T) {
	t.Parallel()
	const full = 64 << 20
	f := newFlow(96<<20, 96<<20, wire.CreditTotals{Samples: 1 << 20, Bytes: full}) // 72 of it for connections
	now := begin
	little, much := &side{Session: session("little")}, &side{Session: session("much"), needs: full}
	for _, c := range []*side{little, much} {
		c.attach(t, f)
		f.Want(now, c.Session, wire.Want{Samples: 256, Bytes: full}).Send()
	}
	require.Less(t, much.window(), int64(16<<20))
	for range 10 {
		now = now.Add(50 * time.Millisecond) // it is never idle
		require.True(t, spend(f, now, little.Session, 1000))
		little.sent.Bytes += 1000
		f.Release(little.Session, 1000).Send()
		grants, _ := f.Tick(now)
		grants.Send()
		little.told(t, f, now)
		much.told(t, f, now)
	}
	require.Greater(t, much.window(), int64(60<<20))
}
