package config

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/otlp"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/internal/redact"
	"github.com/rewardloop/rewardloop/python/rewardloop/scorers"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/store"
	"github.com/rewardloop/rewardloop/workers"
)

// DefaultProfile is the name of the profile that the section reward describes.
const DefaultProfile = "default"

// Config is everything a process is told. Its sections have the names of those
// in the file.
type Config struct {
	// NumWorkers is reward.num_workers: the reward-loop workers of this process.
	NumWorkers int
	// Profiles are the rewards by name: DefaultProfile, where the section reward
	// names a scorer, and those of the section rewards.
	Profiles map[string]*Profile
	// Loop is how samples are accepted, queued and answered.
	Loop Loop
	// Workers bounds each of the workers of this process.
	Workers workers.Config
	// Pool is what scores samples: child processes, devices, decoded pictures.
	Pool Pool
	// Server is the HTTP route.
	Server server.Config
	// Queue joins processes on several machines.
	Queue Queue
	// Engines are the servers that judges ask, by name: those of the section engines,
	// and those of the profiles' reward_model.
	Engines map[string]*Engine
	// Store is what is kept of results.
	Store store.Config
	// Outbound is what leaves the process by HTTP.
	Outbound outbound.Policy
	// Telemetry says where traces go.
	Telemetry otlp.Config
	// RouterAddress is host:port of the reward router, RouterKey its key, set by the
	// process that opens it. Functions in Python beside a reward_model get them as
	// reward_router_address and reward_router_api_key.
	RouterAddress, RouterKey string
	// HiddenEnv are the variables that the configuration reads as secrets of the server's
	// own; functions in Python do not see them.
	HiddenEnv []string
	// Secrets are those of the file; whatever is said of it, or by what it names, goes
	// through them.
	Secrets *redact.Words

	notes []Note
}

// Profile is one reward: its components and how they become one number.
type Profile struct {
	Name string
	// Single is true for a custom_reward_function: one component, reported as acc or
	// under the scorer's own names.
	Single bool
	// Components are in the order of the file.
	Components      []ComponentConfig
	Aggregation     rewards.Aggregation
	OnSampleFailure rewards.SamplePolicy
	// Models are the engines of reward.models by their names there; nil: it has none.
	Models map[string]string
	// Engine names the engine of the profile's reward_model; "": it has none.
	Engine string
	// Cards is the reward_model's pool of cards; the zero value: it has none of its own.
	Cards ResourcePool
	// Profiler is that of a reward_model which is not started here; nil: there is none.
	Profiler *Profiler
	// Overlong is DAPO's penalty on a single function, for builtin://overlong; nil: none.
	Overlong *Overlong
	// Sandbox holds the options of sandbox_fusion; nil: it has no url.
	Sandbox json.RawMessage
	// shownSandbox is Sandbox as Print shows it.
	shownSandbox json.RawMessage
	// GroupByPrompt makes groups of samples that have no uid by their prompts.
	GroupByPrompt bool
	// RouteBy names the field whose value chooses among components by their When.
	RouteBy string
	// Verify are the tools that look at a sample before it is scored.
	Verify []VerifyConfig
	// Concurrency is the capacity of the profile in a process, in samples; 0: it follows
	// from its components.
	Concurrency int
	Place       Place
}

// VerifyConfig is one entry of verify.
type VerifyConfig struct {
	// Key is its name in verified_results; Kind is http, sandbox_fusion or command.
	Key, Kind string
	// Options is a JSON object with whatever else the entry holds; nil: nothing.
	Options json.RawMessage
	// Required defaults to true: its failure is the sample's.
	Required bool
	// Timeout defaults to 30 s.
	Timeout time.Duration
	Place   Place

	shown json.RawMessage
}

// Overlong is verl's overlong_buffer_cfg beside its max_resp_len.
type Overlong struct {
	// MaxRespLen is the longest response, in tokens.
	MaxRespLen int
	// bufferKeys explains these.
	Len           int
	PenaltyFactor float64
	Log           bool
}

// ComponentConfig is one entry of reward_functions, or the custom_reward_function.
type ComponentConfig struct {
	Key string
	// Path is what the file says, "builtin://ocr"; of a Python file it is absolute.
	// Scorer names the scorer in the registry: "ocr", and "python" for Python.
	Path, Scorer string
	// Model names the engine among the profile's Models that the function asks; "": that of its key.
	Model string
	// Options is a JSON object with whatever else the entry holds; nil: nothing. A
	// Python function is called with it, by keyword.
	Options json.RawMessage
	// Fraction is the share of each of its cards that the component's model has; 0: none is
	// written.
	Fraction float64
	// Function is the Python function or class; "" for other scorers.
	Function string
	// AgentConcurrency is the Concurrency of a synchronous class, where nothing else is said.
	AgentConcurrency int

	// functionKeys and entryKeys explain these. A nil ExtraKeys, Env or Probe is one that is
	// left out; an empty one has no names. Concurrency and MemoryBytes are 0 where they are left
	// out, and so is MinMembers, which is rewards.WholeGroup for all.
	Timeout       time.Duration
	Retries       int
	Concurrency   int
	InvalidValues []float64
	When          []string
	Clip          *[2]float64
	Scale         float64
	MinMembers    int
	Steps         bool
	ExtraKeys     map[string]rewards.FieldKind
	Pixels        string
	Frames        string // "": all
	MemoryBytes   int64
	Env           []string
	Interpreter   string
	Probe         []string
	Weight        float64
	Required      bool // of a single function true
	OnFailure     rewards.ComponentPolicy
	PostProcess   string

	// Signature is the form in which a Python function is called, and Reference where the reference
	// answer of validation stands, as in python.Options.
	Signature, Reference string

	// Environment is the Python environment of a function or model, in place of Interpreter; nil: none.
	Environment *pyenv.Spec

	// Placement is how a model in Python runs; nil: the component is none.
	Placement *python.Placement

	Place Place

	shown     json.RawMessage // the options as Print shows them: no secrets
	shownPath string          // the path as Print shows it; "": as it is

	optionsKey string           // of the section where the options stand
	optionsAt  map[string]Place // of each option
	pathAt     Place            // of the path

	environmentPython string // the interpreter of Environment; "": environmentLacks says why there is none
	environmentLacks  string
	environmentAt     Place

	entry          *scorers.Entry // of the catalogue; nil: the path names another thing
	entryAt        value          // the path that names it
	ownEnvironment bool           // Environment is the entry's; the file names none
	accepted       string         // the licence that the file agrees to; "": none
}

// ShownPath is the path as people may read it.
func (t ComponentConfig) ShownPath() string { return cmp.Or(t.shownPath, redact.URL(t.Path)) }

// Default returns the configuration of an empty file: every setting at its
// default, and no profile.
func Default() *Config {
	c := &Config{
		NumWorkers: 8, // verl-omni's
		Profiles:   map[string]*Profile{},
		Engines:    map[string]*Engine{},
	}
	for _, s := range c.sections() {
		keys.Fill(keys.Func(func(k *keys.Set) { *k = s.Set }))
	}
	return c
}
