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
	sent    wire.CreditTotals // since its welcome
	credit  wire.CreditTotals // the latest that it was told
	frames  []int64
	waiting []int64 // frames of samples that wait for their group
}

// told reads what has come over the connection: totals never fall.
func (c *side) told(t *testing.T) {
	t.Helper()
	last := wire.Credit(got[*wire.Welcome](c.link)[0].Credit)
	for _, total := range got[*wire.Credit](c.link) {
		require.GreaterOrEqual(t, total.Samples, last.Samples)
		require.GreaterOrEqual(t, total.Bytes, last.Bytes)
		last = *total
	}
	c.credit = wire.CreditTotals(last)
}

func (c *side) attach(t *testing.T, f *stream.Flow) {
	t.Helper()
	c.link, c.sent = &peer{}, wire.CreditTotals{}
	f.Attach(c.Session, c.link, greeting(false))
	c.told(t)
}

// In any history the totals never fall, a client that keeps to its credit is never refused,
// and what is held and what may come fit into memory.
func TestCreditNeverFallsAndNeverExceedsTheMemory(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same in every run
		full := wire.CreditTotals{Samples: int64(1 + rng.IntN(8)), Bytes: int64(100 + rng.IntN(2000))}
		size := int64(1000 + rng.IntN(9000))
		f := stream.NewFlow(size, size, always(full))
		var clients []*side
		for i := range 1 + rng.IntN(4) {
			c := &side{Session: session(fmt.Sprint(i))}
			c.attach(t, f)
			clients = append(clients, c)
		}
		for range 300 {
			c := clients[rng.IntN(len(clients))]
			switch n := int64(1 + rng.IntN(400)); rng.IntN(6) {
			case 0, 1, 2:
				if !c.Live() || c.sent.Samples == c.credit.Samples || c.sent.Bytes+n > c.credit.Bytes {
					continue
				}
				require.True(t, f.Spend(c.Session, n, false), "it was told that it may")
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
				if grants, left := f.Detach(c.Session, c.link, time.Now()); left {
					grants.Send()
				} else {
					c.attach(t, f)
				}
			}
			var unused, held int64
			for _, c := range clients {
				c.told(t)
				unused += c.Unused().Bytes
				for _, n := range slices.Concat(c.frames, c.waiting) {
					held += n
				}
				require.LessOrEqual(t, c.Unused().Samples, full.Samples, "no more than the window is ever open")
				require.LessOrEqual(t, c.Unused().Bytes, full.Bytes)
			}
			h, granted := f.Bytes()
			require.Equal(t, held, h)
			require.Equal(t, unused, granted)
			require.LessOrEqual(t, h+granted, size-size/4, "a quarter is for samples from inside the process")
		}
	}
}

// With nothing in flight a client may send one sample whatever the credit: a message
// larger than the window would otherwise never go.
func TestWithNothingInFlightOneSampleMayAlwaysBeSent(t *testing.T) {
	t.Parallel()
	f := stream.NewFlow(1<<20, 1<<20, always(wire.CreditTotals{Samples: 256, Bytes: 1000}))
	c := session("a")
	f.Attach(c, &peer{}, greeting(false))
	for range 3 {
		require.True(t, f.Spend(c, 30_000, false))
		c.Expects(1)
		require.False(t, f.Spend(c, 30_000, false), "another one is in flight")
		require.True(t, f.Spend(c, 30_000, true), "a sample that is known is sent again")
		f.Release(c, 30_000)
		c.Expects(-1)
		f.Release(c, 30_000)
	}
	held, _ := f.Bytes()
	require.Zero(t, held)
}

func TestCreditOfAClientThatLeftGoesToTheOthers(t *testing.T) {
	t.Parallel()
	f := stream.NewFlow(40_000, 40_000, always(wire.CreditTotals{Samples: 256, Bytes: 30_000}))
	a, b := &side{Session: session("a")}, &side{Session: session("b")}
	a.attach(t, f)
	b.attach(t, f)
	require.EqualValues(t, 30_000, a.credit.Bytes, "three quarters of the memory")
	require.Zero(t, b.credit.Bytes)
	require.True(t, f.Reserve("", 3000), "idle streams leave a quarter to samples from inside")
	require.False(t, f.Reserve("", 9000))
	grants, left := f.Detach(a.Session, &peer{}, time.Now())
	require.False(t, left, "a connection that was replaced before says nothing")
	require.Empty(t, grants)
	grants, left = f.Detach(a.Session, a.link, time.Now())
	require.True(t, left)
	grants.Send()
	b.told(t)
	require.EqualValues(t, 27_000, b.credit.Bytes)
	require.Equal(t, []*stream.Session{b.Session}, f.Sessions())
}

// A grant is for one connection: its totals would be wrong on the next one.
func TestAGrantIsNotToldOverTheConnectionThatCameAfterIt(t *testing.T) {
	t.Parallel()
	f := stream.NewFlow(1<<20, 1<<20, always(wire.CreditTotals{Samples: 1, Bytes: 1000}))
	c := &side{Session: session("a")}
	c.attach(t, f)
	require.True(t, f.Spend(c.Session, 10, false))
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
	f := stream.NewFlow(4000, 4000, always(wire.CreditTotals{Samples: 8, Bytes: 1500}))
	each := wire.CreditTotals{Samples: 1, Bytes: 500}
	var clients []*stream.Session
	for i := range 2 {
		c := session(fmt.Sprint(i))
		f.Attach(c, &peer{}, greeting(false))
		clients = append(clients, c)
	}
	for i := range 6 {
		c := clients[i%2]
		require.True(t, f.Spend(c, each.Bytes, false))
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
	f := stream.NewFlow(size, size/2, always(wire.CreditTotals{Samples: 256, Bytes: 30_000}))
	attach := func(client, reward string) (*stream.Session, *peer) {
		s, link := session(client), &peer{}
		hello := greeting(false)
		hello.Booked = reward
		f.Attach(s, link, hello)
		return s, link
	}
	held := int64(0)
	for i := range 10 {
		s, _ := attach(fmt.Sprint("stuck", i), "stuck")
		for s.Unused().Bytes >= 1000 && s.Unused().Samples > 0 {
			require.True(t, f.Spend(s, 1000, false))
			s.Expects(1)
			held += 1000
		}
	}
	require.LessOrEqual(t, held, int64(size/2))
	require.Greater(t, held, int64(size/2-1000))
	s, _ := attach("sound", "sound")
	require.Equal(t, int64(size-size/4-size/2), s.Unused().Bytes, "what connections get, less the other profile's half")
	require.True(t, f.Spend(s, 1000, false))
	f.Release(s, 1000)
}

// A client that comes back may ask for another profile: what it holds moves with it.
func TestAClientThatComesBackForAnotherProfileIsBookedThere(t *testing.T) {
	t.Parallel()
	f := stream.NewFlow(10_000, 5000, always(wire.CreditTotals{Samples: 256, Bytes: 4000}))
	s, link := session("c"), &peer{}
	hello := greeting(false)
	hello.Booked = "a"
	f.Attach(s, link, hello)
	require.True(t, f.Spend(s, 3000, false))
	hello.Booked = "b"
	f.Displace(s)
	f.Attach(s, &peer{}, hello)
	other := session("d")
	hello.Booked = "a"
	f.Attach(other, &peer{}, hello)
	require.Equal(t, int64(10_000-10_000/4-3000)-s.Unused().Bytes, other.Unused().Bytes, "profile a holds nothing any more")
	f.Release(s, 3000)
	held, _ := f.Bytes()
	require.Zero(t, held)
}
