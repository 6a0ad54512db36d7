package fabric

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

const (
	// pullGrace is how long after its expiry a pull is waited for: the server says
	// when it ends, unless the connection was cut.
	pullGrace = time.Second
	// pullRest is how long a hub rests whose pool has no consumer yet, or whose engine
	// has no leader; it is at least as long and less than twice.
	pullRest = 100 * time.Millisecond
	// calm is how many processes may ask as often as PullMin and PullMax say.
	calm = 16
	// longestPull bounds the life of a request where there are very many.
	longestPull = 5 * time.Second
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
			h.bus.cfg.Log.DebugContext(ctx, "tickets cannot be asked for; trying again", "consumer", h.consumer, "error", err)
		}
		t.Reset(wait)
	}
}

// file makes the open requests as many as the slots that want a ticket, once half of these
// have none, and returns when to look again, whatever the server says.
func (h *hub) file() (time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.After(h.until) {
		h.asked = 0
	}
	missing := h.wanted - h.asked
	switch {
	case 2*missing < h.wanted && h.asked > 0:
		// The requests that are open are enough for now: one for every slot that is freed
		// would have the engine look through hundreds of them for every ticket.
		return h.until.Sub(now) + time.Millisecond, nil
	case missing <= 0:
		return time.Hour, nil // until somebody wants more
	case h.rest.After(now):
		return h.rest.Sub(now), nil
	}
	processes := max(h.crowd()/max(len(h.sources), 1), 1)
	life := h.life(processes)
	body := fmt.Appendf(nil, `{"batch":%d,"expires":%d,"group":%q,"priority":%d}`, missing, life.Nanoseconds(), pullGroup, place(processes))
	subject := "$JS.API.CONSUMER.MSG.NEXT." + streamName + "." + h.consumer
	if err := h.bus.nc.PublishRequest(subject, h.inbox+"."+strconv.Itoa(missing), body); err != nil {
		return pullRest, err
	}
	h.asked += missing
	if until := now.Add(life + pullGrace); until.After(h.until) {
		h.until = until
	}
	return h.until.Sub(now) + time.Millisecond, nil
}

// life draws how long a request waits before it is filed again.
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
