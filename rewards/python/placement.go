package python

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
)

// Placement configures where and how a model in Python runs: in batches, in its own processes on
// each of its devices. The fields listed in Keys are set by the entry of the component and
// documented there.
type Placement struct {
	// Batch passes lists of the named arguments to the function, with one item for each sample.
	Batch bool `json:"batch,omitempty"`
	// Devices are "cpu", "cuda" or "cuda:<n>", each at most once. "cuda" must be the only device.
	Devices []string `json:"devices,omitempty"`
	// Replicas is the number of processes on each device, each with the whole model.
	Replicas int `json:"num_replicas,omitempty"`
	// Fraction is the assumed fraction of each card's memory that the model needs, above 0 and at
	// most 1. 0 means the amount that the loaded model reports.
	Fraction float64 `json:"fraction,omitempty"`
	// MaxBatch is the maximum number of samples in a batch.
	MaxBatch int `json:"max_batch_size,omitempty"`
	// MaxBatchPixels is the maximum number of pixels in a batch, over all pictures and frames. 0
	// means no such limit; instead the samples of a batch have at most 128 MiB.
	MaxBatchPixels int `json:"max_batch_pixels,omitempty"`
	// BatchWait is the maximum time in seconds that a sample waits for others to share its batch
	// while a process is idle. If nil, a sample waits as long as measurements show a benefit, at
	// most 5 ms.
	BatchWait *float64 `json:"batch_wait_timeout_s,omitempty"`
	// Warmup is the number of known samples that each process scores in one batch after its model
	// is loaded, before the samples of runs. 0 means no warm-up.
	Warmup int `json:"warmup,omitempty"`
	// LoadTimeout is the maximum duration of one start: imports, constructor, weights and warm-up.
	LoadTimeout time.Duration `json:"load_timeout,omitempty"`
}

// bytesOfPixel: pictures travel as 8-bit RGB.
const bytesOfPixel = 3

// Keys implements keys.Described for the keys of a component's entry.
func (p *Placement) Keys(k *keys.Set) {
	k.Bool(&p.Batch, "batch", "Calls a Python function with lists (prompts, images, ground_truths), one item for each sample of a batch. A class with compute_scores gets batches even if this key is not set.")
	k.Other("devices", infer.CPU, "cpu, cuda, cuda:<n> or a list of them", "Devices of a Python model, which has processes on each device. cuda: every GPU of the reward pool. CUDA_VISIBLE_DEVICES is set before the import of the file, so each process sees its GPU as cuda:0.")
	k.Int(&p.Replicas, "num_replicas", 1, "Number of processes of a Python model on each device. Each process loads the whole model.").Between(1, 64)
	k.Int(&p.MaxBatch, "max_batch_size", 32, "Maximum number of samples in a batch of a Python model. The server measures the time of batches and stops enlarging batches when the throughput no longer rises.").Between(1, 1024)
	k.Int(&p.MaxBatchPixels, "max_batch_pixels", 0, "Maximum total number of pixels of the images and frames in a batch of a Python model. 0: no such limit; instead the samples of a batch have at most 128 MiB.").Min(0)
	k.Other("batch_wait_timeout_s", "auto", "auto or 0…1", "Maximum time in seconds that a sample waits for a fuller batch while a process of a Python model is idle. auto: as long as a fuller batch saves time, as measured, at most 0.005.")
	k.Int(&p.Warmup, "warmup", 0, "Number of known samples (built-in test samples) that each process of a Python model scores in one batch after loading, because the first call to a model is slow. 0: none.").Between(0, 1024)
	k.Duration(&p.LoadTimeout, "load_timeout", 10*time.Minute, "Time limit for starting one process of a Python model: import of the module, creation of the class, loading and warm-up.").Min(time.Second)
}

// WithDefaults returns a copy of p with the default for each zero field.
func (p Placement) WithDefaults() Placement {
	keys.Fill(&p)
	if len(p.Devices) == 0 {
		p.Devices = []string{infer.CPU}
	}
	return p
}

// Validate returns an error that contains every fault of p. The defaults must be filled in.
func (p Placement) Validate() error {
	faults := []error{keys.Validate("python", &p)}
	if p.Fraction < 0 || p.Fraction > 1 {
		faults = append(faults, fmt.Errorf("python: fraction of %v, want more than 0, at most 1", p.Fraction))
	}
	if w := p.BatchWait; w != nil && !(*w >= 0 && *w <= 1) {
		faults = append(faults, fmt.Errorf("python: batch_wait_timeout_s of %v, want 0 to 1", *w))
	}
	for _, d := range p.Devices {
		if !infer.ValidDevice(d) {
			faults = append(faults, fmt.Errorf("python: devices: %q, want %s", d, infer.DeviceForm))
		}
	}
	if slices.Contains(p.Devices, infer.Pool) && len(p.Devices) > 1 {
		faults = append(faults, fmt.Errorf("python: devices: %s means every card of the reward pool and must be the only device", infer.Pool))
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(p.Devices)))); n < len(p.Devices) {
		faults = append(faults, fmt.Errorf("python: devices: %s, want each once (num_replicas is how many processes each has)", strings.Join(p.Devices, ", ")))
	}
	return errors.Join(faults...)
}

// runShare is which part of a component's timeout one run of a batch may take: where one sample
// hangs, its batch takes one, the sample by itself another, and the others still have theirs.
const runShare = 4

// runTimeout bounds one run of a batch, from the moment at which a process has it. A group is run
// once and has nearly all of the time: what is left is for the word that it hung.
func (o Options) runTimeout() time.Duration {
	component := cmp.Or(o.Timeout, rewards.DefaultComponentTimeout)
	if o.Grouped() {
		return component - component/10
	}
	return component / runShare
}

// options are those of the model in the pool, of which a run takes as long as run at most.
func (p Placement) options(run time.Duration) pool.ModelOptions {
	o := pool.ModelOptions{
		MaxBatch: p.MaxBatch, BatchBytes: bytesOfPixel * p.MaxBatchPixels, LoadTimeout: p.LoadTimeout, Slots: p.Replicas,
		// Two runs, and the starts of the processes for them.
		BatchTimeout: 2 * (run + p.LoadTimeout), LongestBatch: run / 2,
	}
	if p.BatchWait != nil {
		if o.MaxWait = time.Duration(*p.BatchWait * float64(time.Second)); o.MaxWait == 0 {
			o.MaxWait = -1 // never wait
		}
	}
	return o
}
