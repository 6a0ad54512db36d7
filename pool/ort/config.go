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

// Isolation selects where sessions run.
type Isolation string

// The isolations.
const (
	Process Isolation = "process" // in child processes (the default)
	Inline  Isolation = "inline"  // in this process, only for debugging and measurements
)

// Config configures an Opener. A zero field means its default. The fields listed in Keys are set by
// the configuration file and documented there; the program sets the others.
type Config struct {
	// Library is the path of the library or its folder; if empty, the library is found by Find.
	// Slots defaults to the number of CPUs.
	Library    string
	Slots      int
	MaxBatch   int
	RunTimeout time.Duration
	// Isolation is "process" (the default) or "inline".
	Isolation Isolation
	// LoadTimeout is the maximum duration of the start of a child process, and of the loading of a
	// model. The default is 2 min. The first use of CUDA reads gigabytes of libraries from disk.
	LoadTimeout time.Duration
	// Grace is the time after its deadline in which a run may end by itself before its process is
	// killed and must load its models again. The default is 500 ms. A run ends between two nodes of
	// the graph; the longest measured delay was 78 ms, with a ViT-S and 32 pictures on a loaded
	// machine.
	Grace time.Duration
	// MaxBatchBytes is the maximum size of the inputs of a batch. The default is 256 MiB.
	MaxBatchBytes int
	// Recycle is the number of batches after which a child process is replaced. The default is
	// 20,000.
	Recycle int
	// CUDA contains options for CUDA devices.
	CUDA CUDA
	// Cards[n] is the CUDA_VISIBLE_DEVICES of the child process of cuda:<n>: the UUID of a card or
	// of a MIG instance. If nil, the devices in CUDA_VISIBLE_DEVICES of this process are used.
	Cards []string
	// Python is the interpreter in whose environment FindCUDA looks for the CUDA libraries, and for
	// an ONNX Runtime with the CUDA provider. For the default see FindCUDA.
	Python string
	// WarmCPU makes child processes on the CPU run batches of 1, 2, 4 and so on up to MaxBatch
	// after they have loaded a model, as those of cards do. It is for tests and has no benefit
	// otherwise.
	WarmCPU bool
	// Language limits the resources of language models in a process.
	Language LanguageLimits
	// Loaded is called for every model that a device has loaded. It may be nil.
	Loaded func(infer.Model, infer.Info)
}

// CUDA contains options of ONNX Runtime's CUDA provider.
type CUDA struct {
	// ConvAlgoSearch selects how cuDNN chooses the algorithm of a convolution for every new shape:
	// "HEURISTIC" (the default) uses a model of the device, "EXHAUSTIVE" measures all algorithms,
	// which takes seconds for each shape, and "DEFAULT" does not search.
	ConvAlgoSearch string
}

// convAlgoSearches are the values of CUDA.ConvAlgoSearch.
const (
	heuristic  = "HEURISTIC"
	exhaustive = "EXHAUSTIVE"
	anyAlgo    = "DEFAULT"
)

// Keys implements keys.Described for the section pool.onnx.
func (c *Config) Keys(k *keys.Set) {
	k.Text(&c.Library, "library", "", "Path of libonnxruntime 1.29 or newer. Empty: the library is searched for; rewardloop doctor shows where.")
	k.Int(&c.Slots, "slots", 0, "Maximum number of ONNX inferences at the same time on the CPU, each in a process with one thread. 0: one per CPU. On a GPU one inference runs at a time.").Max(1024)
	k.Int(&c.MaxBatch, "max_batch", 32, "Maximum number of items in a batch; larger batches are used only if measured to be faster. On a GPU, a model whose only dynamic axis is the batch is measured with 1, 2, 4 … items after loading.").Between(1, 1024)
	k.Duration(&c.RunTimeout, "timeout", time.Minute, "Time limit for one ONNX inference. A process that takes longer is killed and replaced.").Min(time.Millisecond)
}

// WithDefaults returns a copy of c with the default for each zero field.
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

// SlotsOf returns how many batches run on a device at the same time.
func (c Config) SlotsOf(device string) int {
	if device == cpuDevice {
		return c.Slots
	}
	return 1
}

// Validate returns an error that contains every fault of c. The defaults must be filled in.
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
