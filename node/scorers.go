package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/judge"
	"github.com/rewardloop/rewardloop/rewards/preference"
	"github.com/rewardloop/rewardloop/rewards/python"
	"github.com/rewardloop/rewardloop/rewards/standard"
)

// Scorers is the registry of all scorers of rewardloop, with the resources that they share.
type Scorers struct {
	Registry *rewards.Registry
	Readers  *Readers
	Python   *python.Functions
	Engines  *Engines
}

// NewScorers fills the registry. A machine without a text reader is an error only if a reward of
// the configuration needs one. log may be nil.
func NewScorers(cfg *config.Config, log *slog.Logger) (*Scorers, error) {
	pool := cfg.Pool
	if cfg.Loop.Deterministic {
		pool.ONNX.MaxBatch = 1 // the company of a batch changes the last bits of a sum
	}
	readers, err := NewReaders(pool)
	if err != nil {
		return nil, err
	}
	readers.Devices.log = log
	engines, err := newEngines(cfg, readers.Judges, log)
	if err != nil {
		return nil, errors.Join(err, readers.Close())
	}
	functions := Python(cfg.Pool.Python)
	functions.HiddenEnv, functions.Log = cfg.HiddenEnv, log
	s := &Scorers{Registry: new(rewards.Registry), Readers: readers, Python: python.NewFunctions(functions, readers.Devices), Engines: engines}
	standard.Register(s.Registry, standard.Deps{
		Readers: readers, Python: s.Python, Judges: judge.Deps{Clients: engines, Engines: engines}, Upstreams: engines,
		Preference: preference.Deps{Nets: readers.Devices, Folder: readers.Devices.Folder}, VLM: readers.Judges,
	})
	readers.Devices.book = sync.OnceValues(func() (Book, error) { return PlanCards(context.Background(), cfg, s.Registry, false) })
	readers.Devices.plan = true
	return s, nil
}

// Check returns everything that is wrong with a configuration, in addition to loaded, the error of
// config.Load; see config.Check. scores means that this process scores samples.
func Check(ctx context.Context, cfg *config.Config, loaded error, scores bool) error {
	if cfg == nil {
		return loaded
	}
	s, err := NewScorers(cfg, nil)
	if err != nil {
		return errors.Join(loaded, err)
	}
	err = config.Check(ctx, cfg, loaded, s.Registry, scores)
	if err == nil && scores {
		var book Book
		book, err = PlanCards(ctx, cfg, s.Registry, false)
		cfg.Remark(slices.Concat(book.Found.Notes, book.Plan.Notes)...)
	}
	return errors.Join(err, s.Close())
}

// Python returns a copy of c for the processes of Python functions: the default interpreter is that
// of REWARDLOOP_PYTHON, and only the timeout of its reward limits a call.
func Python(c python.Config) python.Config {
	if c.Interpreter == "" {
		c.Interpreter = os.Getenv("REWARDLOOP_PYTHON")
	}
	c.CallTimeout = unbounded
	return c
}

// unbounded leaves the bound of a call to its reward's timeout, which is always set:
// no claim on a sample lasts longer than a week.
const unbounded = 7 * 24 * time.Hour

// Children returns the state of the scorers' child processes, by name: those of Readers.Children,
// and "python" if there is a function in Python.
func (s *Scorers) Children() map[string]subprocess.Stats {
	out := s.Readers.Children()
	if s.Python.Len() > 0 {
		p := s.Python.Stats()
		out["python"] = subprocess.Stats{
			Slots: p.Processes, Alive: p.Alive, Busy: p.Running, PIDs: p.PIDs, Requests: p.Calls, Restarts: p.Restarts,
			Crashes: p.Crashes, Timeouts: p.Timeouts, LastError: p.LastError,
		}
	}
	return out
}

// functions are the Python functions by file or module and name; entries that have the
// same one are added up.
func (s *Scorers) functions() map[string]python.Stats {
	out := map[string]python.Stats{}
	s.Python.Each(func(function string, p python.Stats) {
		if before, twice := out[function]; twice {
			p.Waiting += before.Waiting
			p.Reason = cmp.Or(p.Reason, before.Reason)
		}
		out[function] = p
	})
	return out
}

// Names returns the specifications of the registered scorers.
func (s *Scorers) Names() []rewards.Spec {
	specs := make([]rewards.Spec, 0, 8)
	for _, name := range s.Registry.Names() {
		spec, _ := s.Registry.Spec(name)
		specs = append(specs, spec)
	}
	return specs
}

// Close closes what the scorers share. Close the managers first, which end the processes of Python
// functions.
func (s *Scorers) Close() error { return errors.Join(s.Engines.Close(), s.Readers.Close()) }
