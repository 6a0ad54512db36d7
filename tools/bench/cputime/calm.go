package cputime

import (
	"context"
	"time"
)

// MostOthers is how many cores others may use for the machine to count as calm: beyond it
// throughput is shared and a tail of latencies is theirs. On two cores a compiler beside us
// made a p99 of 10 ms one of 500 ms.
const MostOthers = 0.2

// calmWait is how long a measurement waits for the others to be done.
const calmWait = 20 * time.Second

// Calm waits until others leave the machine alone, or 20 s have passed.
func Calm(ctx context.Context) {
	const look = 250 * time.Millisecond
	for end := time.Now().Add(calmWait); time.Now().Before(end) && ctx.Err() == nil; {
		before, start := Machine()-Own(), time.Now()
		select {
		case <-time.After(look):
		case <-ctx.Done():
		}
		if (Machine()-Own()-before).Seconds()/time.Since(start).Seconds() <= MostOthers {
			return
		}
	}
}
