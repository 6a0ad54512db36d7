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

// Config configures the demo. A field with the zero value gets its default.
type Config struct {
	// Samples is the number of pictures to use, from the first. The default is all pictures.
	Samples int
	// GPUs is the number of simulated rollout GPUs. The default is 4.
	GPUs int
	// Places is the number of pictures that are read at the same time, each by one worker with one
	// child process. The default is the number of CPUs, at most 8.
	Places int
	// Reader is the text reader: "auto" (default), "ppocr" or "tesseract"; see ocr.ReaderOptions.
	Reader string
	// Load is the share of the pool that the rollout keeps busy. With the default of 0.85 the pool
	// is busy, and just able to keep up.
	Load float64
	// MaxRollout is the maximum duration of the simulated rollout, which limits the duration of the
	// demo if reading is slow; the load is then higher. The default is 25 s.
	MaxRollout time.Duration
	// Seed is the seed of the rollout. The default is 1.
	Seed uint64
	// Version is the version of the program for the record.
	Version string
	// Progress shows the progress; nil: no progress is shown.
	Progress *Progress
	// Log gets the log of the node; nil: no log.
	Log *slog.Logger
}

// WithDefaults returns a copy of c in which the defaults are set.
func (c Config) WithDefaults() Config {
	c.GPUs = cmp.Or(c.GPUs, 4)
	c.Places = cmp.Or(c.Places, min(8, runtime.NumCPU()))
	c.Reader = cmp.Or(c.Reader, ocr.ReaderAuto)
	c.Load = cmp.Or(c.Load, 0.85)
	c.MaxRollout = cmp.Or(c.MaxRollout, 25*time.Second)
	c.Seed = cmp.Or(c.Seed, 1)
	return c
}

// Validate returns an error that lists all invalid fields.
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
