package queue

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// pullGrace is how long after its expiry a fast pull is waited for: the server says
	// when it ends, unless the connection was cut.
	pullGrace = time.Second
	// pullRest is how long a hub rests whose queue has no consumer yet, or whose NATS
	// has no leader; it is at least as long and less than twice, and doubles with each
	// time in a row up to longestRest.
	pullRest    = 100 * time.Millisecond
	longestRest = 5 * time.Second
	// calm is how many processes may ask as often as PullMin and PullMax say.
	calm = 16
	// longestPull bounds the life of a fast pull where there are very many.
	longestPull = 5 * time.Second

	// A slow pull ends at a moment of the wall clock that is the queue's: the same for all
	// processes, 20 s after another. Of the moments that are 20 to 40 s away one is drawn. For
	// each pull that comes and each that ends the server walks over all that are open: with
	// 100 processes and 100 queues a broker used 17 to 28 % of a core where pulls came one
	// by one, and 3 to 7 % where those of a queue come together, every 5 to 10 s. A request
	// that is open brings a ticket at once: longer costs nothing but, where a server forgets
	// it without a word, the time until the next word of a gateway.
	slowEvery  = 20 * time.Second
	slowPhases = 10
	slowSlack  = 50 * time.Millisecond
	earlyOneIn = 4 // where two moments are, the first one is drawn one time in so many
	// The server prefers fast pulls, of places 0 and 1, to slow ones, of places 2 to 9, so
	// that a slow pull which is still open does not bring a ticket to a busy process while
	// an idle one asks.
	slowPlace, lastPlace = 2, 9
)

// run files the pulls. What several workers want at the same time goes into one.
func (h *hub) run(ctx context.Context) {
	defer close(h.ended)
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.work:
		case <-t.C:
		}
		wait, err := h.file()
		if err != nil {
			h.bus.cfg.Log.DebugContext(ctx, "the request for tickets was not sent; retrying", "queue", h.queue, "error", err)
		}
		t.Reset(wait)
	}
}

// file opens the pulls that are missing, and returns when to look again, whatever the server
// says.
func (h *hub) file() (time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.After(h.until) {
		h.asked = 0
	}
	switch {
	case h.wanted == 0:
		return time.Hour, nil // until somebody wants more
	case h.rest.After(now):
		return h.rest.Sub(now), nil
	case now.Before(h.lively):
		return h.fileFast(now)
	}
	return h.fileSlow(now)
}

// fileFast makes the fast pulls as many as the places that want a ticket, once half of these
// have none. The caller holds mu.
func (h *hub) fileFast(now time.Time) (time.Duration, error) {
	missing := h.wanted - h.asked
	if now.Before(h.slow) {
		// The slow pull that is still open would do for one place. But the server serves it after
		// all fast ones, those of other processes among them.
		if h.processes() == 1 {
			missing--
		} else {
			h.extra = true
		}
	}
	switch {
	case h.enough(missing):
		return h.until.Sub(now) + time.Millisecond, nil
	case missing <= 0:
		return h.slow.Sub(now), nil
	}
	processes := h.processes()
	life := h.life(processes)
	if err := h.pull(h.bus.fast, missing, life, place(processes)); err != nil {
		return pullRest, err
	}
	h.asked += missing
	if until := now.Add(life + pullGrace); until.After(h.until) {
		h.until = until
	}
	return h.until.Sub(now) + time.Millisecond, nil
}

// enough reports whether the requests that are open are enough for now: one for every place
// that is freed would have NATS look through hundreds of them for every ticket. The
// caller holds mu.
func (h *hub) enough(missing int) bool { return h.asked > 0 && 2*missing < h.wanted }

// fileSlow keeps one pull for one ticket open, which brings the fast ones back. The caller
// holds mu.
func (h *hub) fileSlow(now time.Time) (time.Duration, error) {
	switch {
	case h.asked > 0: // they end soon
		return h.until.Sub(now) + time.Millisecond, nil
	case now.Before(h.slow):
		return h.slow.Sub(now), nil
	}
	life := slowLife(now, h.queue)
	if err := h.pull(h.bus.slow, 1, life, slowPlace+rand.IntN(lastPlace-slowPlace+1)); err != nil { //nolint:gosec // order needs no secret randomness
		return pullRest, err
	}
	h.slow, h.extra = now.Add(life), false
	return life, nil
}

// pull asks the server for n tickets. What is said about the pull comes to a token of the
// inbox that names the queue and n; the server looks up who listens there at every turn.
func (h *hub) pull(to answers, n int, life time.Duration, place int) error {
	body := fmt.Appendf(nil, `{"batch":%d,"expires":%d,"group":%q,"priority":%d}`, n, life.Nanoseconds(), pullGroup, place)
	return h.bus.nc.PublishRequest(pullSubject+consumerOf(h.queue), to.inbox+"."+h.queue+":"+strconv.Itoa(n), body)
}

// life draws how long a fast pull waits before it is filed again.
func (h *hub) life(processes int) time.Duration {
	c := h.bus.cfg
	life := c.PullMin + rand.N(c.PullMax-c.PullMin) //nolint:gosec // order needs no secret randomness
	if processes > calm {
		life = min(life*time.Duration(processes)/calm, longestPull)
	}
	return life
}

// place says where a request goes in the queue of waiting ones: to the front (0) one
// time in as many as there are processes, else to the back (1). At the back alone the
// process that was served last is always served last again.
func place(processes int) int {
	if processes > 1 && rand.IntN(processes) > 0 { //nolint:gosec // order needs no secret randomness
		return 1
	}
	return 0
}

// slowLife is how long from now a slow pull of the queue lives.
func slowLife(now time.Time, queue string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(queue)) // never fails
	end := now.Truncate(slowEvery).Add(slowEvery / slowPhases * time.Duration(h.Sum32()%slowPhases))
	for end.Sub(now) < slowEvery-slowSlack {
		end = end.Add(slowEvery)
	}
	if next := end.Add(slowEvery); next.Sub(now) <= 2*slowEvery+slowSlack && rand.IntN(earlyOneIn) > 0 { //nolint:gosec // order needs no secret randomness
		end = next
	}
	return end.Sub(now)
}

// pullEnded takes the server's word that a pull has ended, and how many tickets it still lacked.
func (h *hub) pullEnded(m *nats.Msg, slow bool, n string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	expired := m.Header.Get("Status") == "408" // else 404, 409 or 503
	switch {
	case slow && expired: // it is filed again when its time is over here, together with those of others
	case slow:
		h.slow, h.extra = time.Time{}, false
	default:
		lacks, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
		if err != nil { // refused as a whole
			lacks, _ = strconv.Atoi(n)
		}
		h.asked = max(h.asked-lacks, 0)
	}
	if expired {
		h.refused = 0
	} else { // to ask again at once would be to ask all the time
		pause := min(pullRest<<min(h.refused, 8), longestRest)
		h.refused++
		h.rest = time.Now().Add(pause + rand.N(pause)) //nolint:gosec // a pause needs no secret randomness
	}
	h.wake()
}

// read gives the hubs their mail.
func (b *bus) read(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-b.mail:
			b.deliver(m)
			for range len(b.mail) {
				b.deliver(<-b.mail)
			}
		}
	}
}

// deliver gives a message to its hub: a gateway's word that tickets come, the server's that a
// pull has ended, or a ticket, whose subject names its queue whichever pull has brought it.
func (b *bus) deliver(m *nats.Msg) {
	slow := m.Sub == b.slow.sub
	switch {
	case !slow && m.Sub != b.fast.sub:
		crowd, err := strconv.Atoi(string(m.Data))
		if h := b.hub(strings.TrimPrefix(m.Subject, wakeSubject)); h != nil && err == nil && !foreign(m, wakeSubject) {
			h.rouse(crowd)
		}
	case len(m.Data) == 0 && m.Header.Get("Status") != "":
		queue, n, _ := strings.Cut(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], ":")
		if h := b.hub(queue); h != nil {
			h.pullEnded(m, slow, n)
		}
	default:
		if h := b.hub(strings.TrimPrefix(m.Subject, ticketSubjects)); h != nil {
			h.receive(m, slow)
			return
		}
		_ = m.Nak() // its last worker has gone; without an answer it lapses
	}
}

// hub is that of a queue; nil: no worker of this process takes from it.
func (b *bus) hub(queue string) *hub {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hubs[queue]
}
