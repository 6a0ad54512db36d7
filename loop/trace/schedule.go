package trace

import (
	"strconv"

	"github.com/rewardloop/rewardloop/internal/sim"
)

// FromSchedule writes a schedule down as a run would have recorded it.
func FromSchedule(s sim.Schedule) Trace {
	t := Trace{Servers: s.Servers, Spans: make([]Span, len(s.Released))}
	for i := range t.Spans {
		t.Spans[i] = Span{
			ID:        strconv.Itoa(i),
			Generated: s.Released[i],
			Started:   new(s.Started[i]),
			Scored:    new(s.Finished[i]),
			Worker:    strconv.Itoa(s.Server[i]),
		}
		if s.Attempts != nil {
			t.Spans[i].Attempts = s.Attempts[i]
		}
	}
	return t
}
