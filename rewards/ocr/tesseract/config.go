package tesseract

import (
	"cmp"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/rewards"
)

// Isolation selects where Tesseract runs.
type Isolation string

// The isolations.
const (
	Process Isolation = "process" // in child processes (the default)
	Inline  Isolation = "inline"  // in this process, only for debugging and measurements
)

// Config configures a Reader. A zero field means its default. The fields listed in Keys are set by
// the configuration file and documented there; the program sets the others.
type Config struct {
	// Slots is the number of pictures that are read at the same time. The default is the number of
	// CPUs.
	Slots    int
	PSM      int
	Language string
	Timeout  time.Duration
	// Isolation is "process" (the default) or "inline". It has no effect without the build tag,
	// because then every pass over a picture is a separate process.
	Isolation Isolation
	// Threshold selects how the picture becomes black and white: "sauvola" (the default; needs
	// Tesseract 5), which adapts to the surroundings of a pixel, or "otsu", Tesseract's own default
	// for scanned pages.
	Threshold string
	// SecondLook is the confidence (0 to 1) below which the negative of the picture is read too;
	// the more confident reading is used. The default is 0.8. Light text on a dark background needs
	// the second reading. A negative value, such as -1, disables it.
	SecondLook float64
	// MaxPixels is the maximum number of pixels of a frame. The default is 16 Mi, a square of 4096.
	MaxPixels int
	// Recycle is the number of frames after which a child process is replaced, because gosseract
	// leaks about 1 KB per frame. The default is 20,000.
	Recycle int
}

const (
	sauvola = "sauvola"
	otsu    = "otsu"
)

// Keys implements keys.Described for the section pool.tesseract.
func (c *Config) Keys(k *keys.Set) {
	k.Int(&c.Slots, "slots", 0, "Number of Tesseract processes, each of which reads one image at a time. 0: one per CPU.").Max(1024)
	k.Int(&c.PSM, "psm", 11, "Page segmentation mode: 11 sparse text, 6 one block, 7 one line.").Between(3, 13)
	k.Text(&c.Language, "language", "eng", "Language data, such as eng or eng+chi_sim.")
	k.Duration(&c.Timeout, "timeout", 30*time.Second, "Time limit for one image. A process that takes longer is killed and replaced. A difficult image of 1024×1024 pixels takes 2 to 5 s.").Min(time.Millisecond)
	k.Check(func(r keys.Report) {
		// It becomes an argument of a program and part of a file name.
		if strings.Trim(c.Language, letters) != "" || strings.HasPrefix(c.Language, "-") {
			r.Fault("language", "want names like eng or eng+deu, got %q", c.Language)
		}
	})
}

// WithDefaults returns a copy of c with the default for each zero field.
func (c Config) WithDefaults() Config {
	keys.Fill(&c)
	c.Slots = cmp.Or(c.Slots, runtime.NumCPU())
	c.Isolation = cmp.Or(c.Isolation, Process)
	c.Threshold = cmp.Or(c.Threshold, sauvola)
	c.SecondLook = cmp.Or(c.SecondLook, 0.8)
	c.MaxPixels = cmp.Or(c.MaxPixels, 16<<20)
	c.Recycle = cmp.Or(c.Recycle, 20_000)
	return c
}

// Validate returns an error that contains every fault of c. The defaults must be filled in.
func (c Config) Validate() error {
	errs := rewards.Faults{keys.Validate("tesseract", &c)}
	bad := func(wrong bool, format string, args ...any) {
		errs.Add(wrong, "tesseract: "+format, args...)
	}
	bad(c.Isolation != Process && c.Isolation != Inline, "isolation: %q, want %s or %s", c.Isolation, Process, Inline)
	bad(c.Threshold != sauvola && c.Threshold != otsu, "threshold: %q, want %s or %s", c.Threshold, sauvola, otsu)
	bad(!(c.SecondLook <= 1), "second_look: %v, want at most 1", c.SecondLook)
	bad(c.MaxPixels < 1 || c.MaxPixels > 1<<28, "max_pixels: %d, want 1 to %d", c.MaxPixels, 1<<28)
	bad(c.Recycle < 1, "recycle: %d, want 1 or more", c.Recycle)
	return errors.Join(errs...)
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-"

// variable is a parameter of Tesseract.
type variable struct{ name, value string }

// variables are set in both builds. The page segmentation mode is among them
// because gosseract's SetPageSegMode is undone by the Init inside the first read.
func (c Config) variables() []variable {
	vs := []variable{
		{"tessedit_pageseg_mode", strconv.Itoa(c.PSM)},
		// Otherwise a line on stderr for every picture.
		{"debug_file", "/dev/null"},
	}
	if c.Threshold == sauvola {
		vs = append(vs, variable{"thresholding_method", "2"})
	}
	return vs
}

// threadLimit is OpenMP's variable; see README.
const threadLimit = "OMP_THREAD_LIMIT"

// environment is what a process that runs Tesseract gets: what it needs to find
// libraries and models, and nothing else of ours, such as tokens.
func environment() []string {
	env := []string{threadLimit + "=1", "LC_ALL=C.UTF-8"}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "TESSDATA_PREFIX", "GORACE", "GOCOVERDIR":
			env = append(env, kv)
		}
	}
	return env
}
