package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// othersCores is the reading that says how many cores other processes kept busy
// during a repetition, at the worst.
const othersCores = "others_cores"

// maxOthers is how many cores others may use: beyond it throughput is shared and a
// tail of latencies is theirs. On two cores a compiler beside us made a p99 of 10 ms
// one of 500 ms.
const maxOthers = 0.2

// calmWait is how long a repetition waits for the others to be done.
const calmWait = 20 * time.Second

// calm waits until others leave the machine alone, or calmWait has passed.
func calm(ctx context.Context) {
	const look = 250 * time.Millisecond
	for end := time.Now().Add(calmWait); time.Now().Before(end) && ctx.Err() == nil; {
		own, all, start := cpuTime(), machineCPU(), time.Now()
		select {
		case <-time.After(look):
		case <-ctx.Done():
		}
		o := outcome{took: time.Since(start), used: usage{cpu: cpuTime() - own, machine: machineCPU() - all}}
		if o.others() <= maxOthers {
			return
		}
	}
}

// machineCPU is what all processes have computed so far, in user code and in the
// system; 0 where the system does not tell.
func machineCPU() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	d, err := parseStat(string(text))
	if err != nil {
		return 0
	}
	return d
}

// parseStat adds user, nice and system of the first line, in hundredths of a second
// (proc_stat(5); USER_HZ is 100 on every platform Go runs on).
func parseStat(text string) (time.Duration, error) {
	fields := strings.Fields(text)
	if len(fields) < 4 || fields[0] != "cpu" {
		return 0, fmt.Errorf("no line of all processors in %.40q", text)
	}
	var sum time.Duration
	for _, f := range fields[1:4] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum, nil
}
