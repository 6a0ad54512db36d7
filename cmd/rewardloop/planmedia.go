package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/loop"
)

// mediaPlan says what samples of a size ask of a gateway: its network and its memory.
type mediaPlan struct {
	Media string `json:"media"`
	// SampleBytes are those of one sample, StepBytes those of a step.
	SampleBytes int64 `json:"sample_bytes"`
	StepBytes   int64 `json:"step_bytes"`
	Processes   int   `json:"processes"`
	// BytesPerSecond come in on average over the rollout; as many go out to workers of other machines.
	BytesPerSecond float64 `json:"bytes_per_second"`
	// Ahead is how many samples of all processes may be under way with the default of loop.max_bytes.
	Ahead int64 `json:"samples_ahead"`
	// MaxBytes and MessageBytes are what loop.max_bytes and loop.message_bytes should be; MaxBytes lets each process have a sample under way.
	MaxBytes     int64 `json:"max_bytes"`
	MessageBytes int64 `json:"message_bytes"`

	samples int
	rollout float64 // seconds
}

// headerBytes is room for what is beside the media: prompt, response, targets.
const headerBytes = 1 << 20

// newMediaPlan reads --media: a size, or FRAMESxHEIGHTxWIDTH or HEIGHTxWIDTH of raw RGB.
func newMediaPlan(o planOptions) (*mediaPlan, error) {
	size, text, err := mediaSize(o.media)
	switch {
	case err != nil:
		return nil, err
	case o.processes < 1 || o.processes > 100_000:
		return nil, fmt.Errorf("--processes %d: want 1 to 100000", o.processes)
	case o.samples < 1 || o.samples > 1_000_000:
		return nil, fmt.Errorf("--samples %d: want 1 to 1000000", o.samples)
	case o.generation <= 0:
		return nil, fmt.Errorf("--generation %v: want a time above 0", o.generation)
	}
	var defaults loop.Config
	keys.Fill(&defaults)
	p := &mediaPlan{
		Media: text, SampleBytes: size, StepBytes: size * int64(o.samples), Processes: o.processes, samples: o.samples, rollout: o.generation.Seconds(),
	}
	p.BytesPerSecond = float64(p.StepBytes) / p.rollout
	whole := size + headerBytes
	p.MessageBytes = max(defaults.MessageBytes, roundUp(whole))
	p.MaxBytes = max(defaults.MaxBytes, p.MessageBytes, roundUp(whole*int64(o.processes)/3*4))
	p.Ahead = max(1, defaults.MaxBytes/4*3/whole)
	return p, nil
}

// mostMediaBytes is a size that no sample has: frames travel one by one long before.
const mostMediaBytes = 64 << 30

func mediaSize(given string) (size int64, text string, err error) {
	want := errors.New("--media " + strconv.Quote(given) + ": want FRAMESxHEIGHTxWIDTH or HEIGHTxWIDTH of raw RGB such as 81x480x832, or the size of a file such as 25KiB")
	sides := strings.Split(given, "x")
	if len(sides) == 1 {
		size, err = keys.ParseSize(given)
		if err != nil || size < 1 || size > mostMediaBytes {
			return 0, "", want
		}
		return size, "media of " + amount(float64(size)), nil
	}
	size = 3 // bytes of a pixel
	for _, side := range sides {
		n, err := strconv.ParseInt(side, 10, 32)
		if err != nil || n < 1 || size > mostMediaBytes/n {
			return 0, "", want
		}
		size *= n
	}
	switch len(sides) {
	case 2:
		return size, "pictures of " + strings.Join(sides, " × ") + ", raw RGB", nil
	case 3:
		return size, "videos of " + strings.Join(sides, " × ") + ", raw RGB", nil
	}
	return 0, "", want
}

// roundUp is n in whole units that people write: the next power of two below 1 GiB, the next GiB above.
func roundUp(n int64) int64 {
	const gib = 1 << 30
	if n > gib {
		return (n + gib - 1) / gib * gib
	}
	return 1 << int64(math.Ceil(math.Log2(float64(n))))
}

// amount is a number of bytes for people, in powers of ten as networks are measured.
func amount(bytes float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}} {
		if bytes >= u.size {
			return fmt.Sprintf("%.3g %s", bytes/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.0f bytes", bytes)
}

// String is the answer for people.
func (p *mediaPlan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "samples    %s: %s each, %s for the %d of a step\n", p.Media, amount(float64(p.SampleBytes)), amount(float64(p.StepBytes)), p.samples)
	fmt.Fprintf(&b, "network    %s/s (%.3g Gbit/s) into the gateway on average over a rollout of %.4g s, and\n           as much out of it again to workers on other machines\n",
		amount(p.BytesPerSecond), p.BytesPerSecond*8/1e9, p.rollout)
	fmt.Fprintf(&b, "burst      %s where all %d processes send one at the same time\n", amount(float64(p.SampleBytes)*float64(p.Processes)), p.Processes)
	if p.Ahead >= int64(p.Processes) {
		fmt.Fprintf(&b, "memory     the default loop.max_bytes lets %d samples be under way at a time, enough for one\n           of each process\n", p.Ahead)
	} else {
		fmt.Fprintf(&b, "memory     loop.max_bytes=%s lets each process have a sample under way; with the default\n           %d are, and the other processes wait for their turn\n", keys.FormatSize(p.MaxBytes), p.Ahead)
	}
	fmt.Fprintf(&b, "message    loop.message_bytes=%s is enough for a sample\n", keys.FormatSize(p.MessageBytes))
	return b.String()
}
