package ort

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/infer"
)

// Isolation says where sessions run.
type Isolation string

// The isolations.
const (
	Process Isolation = "process" // in child processes; the default
	Inline  Isolation = "inline"  // in this process: debugging and measuring only
)

// Config is what an Opener is made from. The zero value of a field means its default. What Keys
// lists is set by the configuration file, and Keys says what it means; the rest is the program's.
type Config struct {
	// Library may be a folder, and defaults to where Find looks; Slots default to the number of
	// CPUs.
	Library    string
	Slots      int
	MaxBatch   int
	RunTimeout time.Duration
	// Isolation is "process" (default) or "inline".
	Isolation Isolation
	// LoadTimeout bounds the start of a child and the loading of a model; default
	// 2 min. The first use of CUDA reads gigabytes of libraries from disk.
	LoadTimeout time.Duration
	// Grace is how long after the deadline a run may take to end by itself before
	// its process is killed, which costs a loading of its models; default 500 ms. A
	// run ends between two nodes of the graph: 78 ms was the worst that was measured
	// with a ViT-S and 32 pictures on a loaded machine.
	Grace time.Duration
	// MaxBatchBytes bounds the inputs of a batch; default 256 MiB.
	MaxBatchBytes int
	// Recycle replaces a child after so many batches; default 20,000.
	Recycle int
	// CUDA holds what matters to CUDA devices only.
	CUDA CUDA
	// Cards holds, by n, the CUDA_VISIBLE_DEVICES of the child of cuda:<n>: the uuid of a card
	// or of a part of one. Nil: the devices that this process's own CUDA_VISIBLE_DEVICES names.
	Cards []string
	// Python is the interpreter in whose environment CUDA's libraries, and an ONNX Runtime with the
	// CUDA provider, are looked for; default: see FindCUDA.
	Python string
	// WarmCPU has children of the CPU run batches of 1, 2, 4 and so on up to MaxBatch when they
	// have loaded a model, as those of cards do, for tests: nothing is gained by it there.
	WarmCPU bool
	// Language bounds what language models may take of a process.
	Language LanguageLimits
	// Loaded is told of every model that a device has loaded; nil: nobody is.
	Loaded func(infer.Model, infer.Info)
}

// CUDA are options of ONNX Runtime's CUDA provider.
type CUDA struct {
	// ConvAlgoSearch is how cuDNN picks the algorithm of a convolution for every
	// new shape: "HEURISTIC" (default) asks a model of the device, "EXHAUSTIVE"
	// times all of them, which takes seconds a shape, "DEFAULT" asks nothing.
	ConvAlgoSearch string
}

// convAlgoSearches are the values of CUDA.ConvAlgoSearch.
const (
	heuristic  = "HEURISTIC"
	exhaustive = "EXHAUSTIVE"
	anyAlgo    = "DEFAULT"
)

// Keys implements keys.Described: the section pool.onnx.
func (c *Config) Keys(k *keys.Set) {
	k.Text(&c.Library, "library", "", "Path of libonnxruntime 1.29 or newer. Empty: the library is searched for; rewardloop doctor shows where.")
	k.Int(&c.Slots, "slots", 0, "Maximum number of ONNX inferences at the same time on the CPU, each in a process with one thread. 0: one per CPU. On a GPU one inference runs at a time.").Max(1024)
	k.Int(&c.MaxBatch, "max_batch", 32, "Maximum number of items in a batch; larger batches are used only if measured to be faster. On a GPU, a model whose only dynamic axis is the batch is measured with 1, 2, 4 … items after loading.").Between(1, 1024)
	k.Duration(&c.RunTimeout, "timeout", time.Minute, "Time limit for one ONNX inference. A process that takes longer is killed and replaced.").Min(time.Millisecond)
}

// WithDefaults fills what is not set.
func (c Config) WithDefaults() Config {
	keys.Fill(&c)
	c.Slots = cmp.Or(c.Slots, runtime.NumCPU())
	c.Isolation = cmp.Or(c.Isolation, Process)
	c.LoadTimeout = cmp.Or(c.LoadTimeout, 2*time.Minute)
	c.Grace = cmp.Or(c.Grace, 500*time.Millisecond)
	c.MaxBatchBytes = cmp.Or(c.MaxBatchBytes, 256<<20)
	c.Recycle = cmp.Or(c.Recycle, 20_000)
	c.CUDA = c.CUDA.withDefaults()
	c.Language = c.Language.withDefaults()
	return c
}

func (c CUDA) withDefaults() CUDA {
	c.ConvAlgoSearch = cmp.Or(c.ConvAlgoSearch, heuristic)
	return c
}

// SlotsOf is how many batches run on a device at a time.
func (c Config) SlotsOf(device string) int {
	if device == cpuDevice {
		return c.Slots
	}
	return 1
}

// Validate names everything that is wrong with a configuration whose defaults
// are filled.
func (c Config) Validate() error {
	errs := []error{keys.Validate("ort", &c)}
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("ort: "+format, args...))
		}
	}
	bad(c.Isolation != Process && c.Isolation != Inline, "isolation: %q, want %s or %s", c.Isolation, Process, Inline)
	bad(c.LoadTimeout < 0, "load_timeout: %v is negative", c.LoadTimeout)
	bad(c.Grace < 0, "grace: %v is negative", c.Grace)
	bad(c.MaxBatchBytes < 1 || c.MaxBatchBytes > maxBatch, "max_batch_bytes: %d, want 1 to %d", c.MaxBatchBytes, maxBatch)
	bad(c.Recycle < 1, "recycle: %d, want 1 or more", c.Recycle)
	s := c.CUDA.ConvAlgoSearch
	bad(s != heuristic && s != exhaustive && s != anyAlgo, "cuda conv_algo_search: %q, want %s, %s or %s", s, heuristic, exhaustive, anyAlgo)
	for n, card := range c.Cards {
		bad(card == "" || strings.ContainsAny(card, ", \x00"), "cards: %q of cuda:%d, want the uuid of one card", card, n)
	}
	bad(c.Language.Positions < 2 || c.Language.Positions > maxPositions, "language positions: %d, want 2 to %d", c.Language.Positions, maxPositions)
	bad(c.Language.Memory < 1<<20, "language memory: %d bytes, want 1 MiB or more", c.Language.Memory)
	return errors.Join(errs...)
}

// maxBatch bounds MaxBatchBytes, maxPositions Language.Positions.
const (
	maxBatch     = 1 << 30
	maxPositions = 1 << 20
)
