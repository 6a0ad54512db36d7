package demo

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// Config says how the demo runs. The zero value of a field takes its default.
type Config struct {
	// Samples is how many of the pictures take part, from the first on. Defaults to all.
	Samples int
	// GPUs is how many rollout GPUs are simulated. Defaults to 4.
	GPUs int
	// Places is how many pictures are read at once, one worker and one child
	// process each. Defaults to the CPUs of the machine, at most 8.
	Places int
	// Reader is who reads: "auto" (default), "ppocr" or "tesseract"; see ocr.ReaderOptions.
	Reader string
	// Load is the share of the pool that the rollout is to keep busy. Defaults to
	// 0.85: busy, and just able to keep up.
	Load float64
	// MaxRollout bounds the simulated rollout, and with it the demo, where reading is
	// slow; the load is then higher. Defaults to 25 s.
	MaxRollout time.Duration
	// Seed draws the rollout. Defaults to 1.
	Seed uint64
	// Version is that of the program; it goes into the record.
	Version string
	// Progress shows how far it is; nil: not at all.
	Progress *Progress
	// Log takes what the node says; nil: discarded.
	Log *slog.Logger
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.GPUs = cmp.Or(c.GPUs, 4)
	c.Places = cmp.Or(c.Places, min(8, runtime.NumCPU()))
	c.Reader = cmp.Or(c.Reader, ocr.ReaderAuto)
	c.Load = cmp.Or(c.Load, 0.85)
	c.MaxRollout = cmp.Or(c.MaxRollout, 25*time.Second)
	c.Seed = cmp.Or(c.Seed, 1)
	return c
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.Samples < 0 {
		errs = append(errs, fmt.Errorf("%d samples, must not be negative", c.Samples))
	}
	if c.GPUs < 1 || c.GPUs > 1024 {
		errs = append(errs, fmt.Errorf("%d GPUs, must be 1…1024", c.GPUs))
	}
	if c.Places < 1 || c.Places > 64 {
		errs = append(errs, fmt.Errorf("%d places, must be 1…64", c.Places))
	}
	if !(c.Load > 0 && c.Load <= 10) { // also refuses NaN
		errs = append(errs, fmt.Errorf("load is %v, must be above 0 and at most 10", c.Load))
	}
	if c.MaxRollout <= 0 {
		errs = append(errs, fmt.Errorf("the time limit of the rollout is %v, must be positive", c.MaxRollout))
	}
	return errors.Join(errs...)
}

// node is the configuration of the server: the OCR reward alone, and one worker per
// place with one place each, so that a worker is a server in the sense of package sim.
func (c Config) node() (*config.Config, error) {
	places := strconv.Itoa(c.Places)
	return config.Load("", []string{
		"reward.custom_reward_function.path=builtin://ocr", "+reward.custom_reward_function.reward_kwargs.reader=" + c.Reader,
		"reward.num_workers=" + places, "reward.concurrency=" + places, "pool.tesseract.slots=" + places, "pool.onnx.slots=" + places,
		"server.listen=127.0.0.1:0",
	}, nil)
}
