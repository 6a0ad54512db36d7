package export

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/models"
)

// Errors of this package, in addition to those of the packages models and pyenv.
var (
	// ErrParity means that the export computes other values than the checkpoint.
	ErrParity = errors.New("the export is wrong")
	// ErrProgram means that the program ended without a model.
	ErrProgram = errors.New("the export failed")
	// ErrRefused means that Options.Agree returned an error.
	ErrRefused = errors.New("nothing was exported")
)

// defaultTimeout: 4 GB of packages and 4 GB of weights at 1 MB/s are 2.2 hours.
const defaultTimeout = 3 * time.Hour

// Exporter exports models into a store.
type Exporter struct {
	Models models.Store
	Envs   pyenv.Store
	// Interpreter is a Python interpreter that already has the packages. Empty: an environment is
	// created.
	Interpreter string
	// Python is the Python of which the environment is created, as in pyenv.Spec.
	Python string
	// Programs are the export programs and requirements.txt. Nil: those of this package.
	Programs fs.FS
}

// Options are the options of Export.
type Options struct {
	// Agree is called before anything is downloaded, with what will be downloaded. An error of
	// Agree ends the export, which returns that error wrapped in ErrRefused. Nil: no call.
	Agree func(context.Context, Plan) error
	// Progress is called while the environment is created. Nil: no calls.
	Progress func(pyenv.Event)
	// Output is called with each line of the program, from one goroutine. passing means that the
	// next line replaces this line, as for a progress bar. Nil: no calls.
	Output func(line string, passing bool)
	// Timeout limits the whole call of Export. The default is 3 hours.
	Timeout time.Duration
	// Again replaces a model that exists.
	Again bool
	// Source allows packages without a wheel.
	Source bool
}

// Plan describes what will be downloaded.
type Plan struct {
	Name string
	// Packages are those of the environment. Nil: the environment exists.
	Packages *pyenv.Plan
	Weights  []Weights
}

// Weights are files that the program reads.
type Weights struct {
	// Name is owner/name of a repository, hf://owner/name/file, or a folder.
	Name string
	// Commit is the commit of the repository. Empty: the weights are in a folder or only in the
	// hub's cache.
	Commit string
	// Size is in bytes, as far as it is known. 0: unknown.
	Size    int64
	Licence string // as stated by the repository; "": none
	// Here means that nothing of the weights is downloaded.
	Here bool
}

// Result is the result of an Export.
type Result struct {
	Model models.Model
	Dir   string
	// Here means that the model already existed and nothing was done.
	Here   bool
	Parity Parity
}

// Parity is the difference between an export and its checkpoint, from parity.json.
type Parity struct {
	Format      int     `json:"format"`
	Name        string  `json:"name"` // of the comparison with the largest difference
	Value       float64 `json:"value"`
	Limit       float64 `json:"limit"`
	Unit        string  `json:"unit"`
	Comparisons int     `json:"comparisons"`
}

const (
	parityName = "parity.json"
	maxParity  = 64 << 10
)

// Export exports the model of a recipe into the store under a name. The error contains the cause,
// its place and the remedy; after an error the store has no new model under the name.
func (x Exporter) Export(ctx context.Context, name string, r Recipe, o Options) (Result, error) {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if x.Programs == nil {
		x.Programs = programs
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("%w: not done after %v (--timeout); downloads are kept", ErrProgram, o.Timeout))
	defer cancel()
	if err := r.validate(); err != nil {
		return Result{}, err
	}
	if err := models.ExportName(name); err != nil {
		return Result{}, err
	}
	dir := filepath.Join(x.Models.Dir, name)
	if _, err := os.Lstat(dir); err == nil && !o.Again {
		return x.here(dir)
	}
	into, err := x.Models.BeginExport(name)
	if err != nil {
		return Result{}, err
	}
	defer into.Close()
	e := &exporting{Exporter: x, o: o, r: r, plan: Plan{Name: name}, into: into}
	if err := e.look(ctx); err != nil {
		return Result{}, err
	}
	if err := e.environment(ctx); err != nil {
		return Result{}, err
	}
	return e.make(ctx, dir)
}

// here is the answer about a model that is there.
func (x Exporter) here(dir string) (Result, error) {
	is := Result{Here: true, Dir: dir}
	parity, err := readParity(dir)
	if errors.Is(err, fs.ErrNotExist) { // put there by hand
		return is, nil
	}
	is.Parity = parity
	return is, err
}

// exporting is one Export. One goroutine owns it.
type exporting struct {
	Exporter
	o       Options
	r       Recipe
	plan    Plan
	agreed  bool
	into    *models.Exporting
	python  string
	weights string // what the manifest and the sidecar call them
}

// look finds out what the weights are, and fixes the commits that are exported.
func (e *exporting) look(ctx context.Context) error {
	e.weights = "local"
	if e.r.Model != "" {
		commit, err := e.repository(ctx, e.r.Model, cmp.Or(e.r.Revision, "main"), "")
		if err != nil {
			return err
		}
		if !isFolder(e.r.Model) {
			e.r.Revision = commit
			e.weights = "hf://" + e.r.Model + "@" + commit
		}
	}
	for i, a := range e.r.Args {
		at, isFile := strings.CutPrefix(a, "hf://")
		if !isFile {
			continue
		}
		at, revision, _ := strings.Cut(at, "@")
		parts := strings.SplitN(at, "/", 3)
		if len(parts) != 3 {
			return fmt.Errorf("%w: %s: want hf://owner/repository/file@revision", ErrRecipe, a)
		}
		commit, err := e.repository(ctx, parts[0]+"/"+parts[1], cmp.Or(revision, "main"), parts[2])
		if err != nil {
			return err
		}
		e.r.Args = slices.Clone(e.r.Args)
		e.r.Args[i] = "hf://" + at + "@" + commit
		if e.r.Model == "" {
			e.weights = e.r.Args[i]
		}
	}
	if e.r.Processor != "" {
		if _, err := e.repository(ctx, e.r.Processor, "main", "*"); err != nil {
			return err
		}
	}
	e.r.Licence = cmp.Or(e.r.Licence, e.plan.licence(), "unknown")
	var need int64
	for _, w := range e.plan.Weights {
		need += w.Size
	}
	if free, err := models.FreeSpace(e.Models.Dir); err == nil && free < need {
		return fmt.Errorf("%w: the weights have %d MB, an export has about as much, and %s has %d MB: make room, or name another folder with --dir or REWARDLOOP_MODELS",
			pyenv.ErrSpace, need/1e6, e.Models.Dir, free/1e6)
	}
	return nil
}

// licence is what the first weights are under; "": nobody says.
func (p Plan) licence() string {
	if len(p.Weights) == 0 {
		return ""
	}
	return p.Weights[0].Licence
}

// repository adds to the plan what is downloaded of a repository: a checkpoint, or a file; of "*"
// all but the weights. It returns the commit, or the revision where only the hub's cache is asked.
func (e *exporting) repository(ctx context.Context, name, revision, file string) (string, error) {
	w := Weights{Name: name, Licence: e.r.Licence}
	if file != "" && file != "*" {
		w.Name = "hf://" + name + "/" + file
	}
	if isFolder(name) {
		w.Here = true
		e.plan.Weights = append(e.plan.Weights, w)
		return revision, nil
	}
	_, missing := e.Models.Hub.Snapshot(name, revision)
	said, err := e.Models.Repository(ctx, name+"@"+revision)
	if err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if missing != nil { // what the cache has, the program takes without a network
			return "", fmt.Errorf("the weights: %w; or bring the hub's cache from a machine that has a network (`hf download %s`)", err, name)
		}
		w.Here = true
		e.plan.Weights = append(e.plan.Weights, w)
		return revision, nil
	}
	w.Commit, w.Licence = said.Commit, cmp.Or(said.Licence, w.Licence)
	found := false
	for _, f := range said.Checkpoint() {
		small := !strings.HasSuffix(f.Path, ".safetensors") && !strings.HasSuffix(f.Path, ".bin")
		if file == "" || file == "*" && small {
			w.Size += f.Size
			found = found || !small || file == "*"
		}
	}
	for _, f := range said.Files {
		if f.Path == file {
			w.Size, found = f.Size, true
		}
	}
	if !found {
		return "", fmt.Errorf("%w: %s@%s has no %s", ErrRecipe, name, revision, cmp.Or(file, "model.safetensors or pytorch_model.bin at its top"))
	}
	_, missing = e.Models.Hub.Snapshot(name, said.Commit)
	w.Here = missing == nil && file != "" // of a checkpoint the cache may have a part
	e.plan.Weights = append(e.plan.Weights, w)
	return said.Commit, nil
}

// environment finds or makes the Python that runs the program. What is downloaded is agreed to first.
func (e *exporting) environment(ctx context.Context) error {
	e.python = e.Interpreter
	if e.python == "" {
		text, err := fs.ReadFile(e.Programs, "requirements.txt")
		if err != nil {
			return fmt.Errorf("%w: requirements.txt: %w", ErrProgram, err)
		}
		made, err := e.Envs.Make(ctx, pyenv.Spec{Python: e.Python, Requirements: string(text)}, pyenv.Options{
			Progress: e.o.Progress, Source: e.o.Source, Timeout: e.o.Timeout,
			Agree: func(ctx context.Context, p pyenv.Plan) error {
				e.plan.Packages = &p
				return e.agree(ctx)
			},
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("the environment of the export: %w", err)
		}
		e.python = made.Interpreter
	}
	if e.agreed {
		return nil
	}
	if err := e.agree(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}

func (e *exporting) agree(ctx context.Context) error {
	e.agreed = true
	if e.o.Agree == nil {
		return nil
	}
	return e.o.Agree(ctx, e.plan)
}

// make runs the program, holds what it left to its parity, and gives it its name.
func (e *exporting) make(ctx context.Context, dir string) (Result, error) {
	if err := e.run(ctx); err != nil {
		return Result{}, err
	}
	parity, err := readParity(e.into.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %s.py wrote no %s, the comparison of the export with PyTorch", ErrParity, e.r.Family, parityName)
	}
	if err != nil {
		return Result{}, err
	}
	m, err := e.into.Adopt(ctx, e.weights, e.r.Licence, e.o.Again)
	if err != nil {
		return Result{}, err
	}
	return Result{Model: m, Dir: dir, Parity: parity}, nil
}

// readParity reads parity.json of a folder and holds it to its own limit. The error wraps
// ErrParity, or fs.ErrNotExist.
func readParity(dir string) (Parity, error) {
	var p Parity
	f, err := os.Open(filepath.Join(dir, parityName))
	if err != nil {
		return p, err
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, maxParity)).Decode(&p); err != nil {
		return p, fmt.Errorf("%w: %s: %w", ErrParity, f.Name(), err)
	}
	if p.Format != 1 || p.Comparisons < 1 || p.Value < 0 || p.Limit <= 0 || math.IsInf(p.Limit, 0) {
		return p, fmt.Errorf("%w: %s has format %d, %d comparisons, difference %g, limit %g: want format 1, a comparison and a limit above 0", ErrParity, f.Name(), p.Format, p.Comparisons, p.Value, p.Limit)
	}
	if !(p.Value <= p.Limit) {
		return p, fmt.Errorf("%w: %s differs by %.3g from PyTorch, want at most %g: nothing was kept", ErrParity, p.Name, p.Value, p.Limit)
	}
	return p, nil
}
