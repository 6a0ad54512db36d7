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

// DefaultProfile is the name of the profile in the section reward.
const DefaultProfile = "default"

// Config is the configuration of a process. Its fields have the names of the sections of the file.
type Config struct {
	// NumWorkers is reward.num_workers, the number of reward-loop workers of this process.
	NumWorkers int
	// Profiles are the rewards by name: DefaultProfile, if the section reward has a scorer, and
	// those of the section rewards.
	Profiles map[string]*Profile
	// Loop configures how samples are accepted, queued and answered.
	Loop Loop
	// Workers configures each of the workers of this process.
	Workers workers.Config
	// Pool configures child processes, devices and decoders.
	Pool Pool
	// Server configures the HTTP server.
	Server server.Config
	// Queue configures the connection between processes on several machines.
	Queue Queue
	// Engines are the servers that judges use, by name: those of the section engines, and those of
	// the profiles' reward_model.
	Engines map[string]*Engine
	// Store configures which results are kept.
	Store store.Config
	// Outbound configures the outgoing HTTP requests of the process.
	Outbound outbound.Policy
	// Telemetry configures the export of traces.
	Telemetry otlp.Config
	// RouterAddress is the host:port of the reward router, and RouterKey its key. Both are set by
	// the process that starts the router. Functions in Python with a reward_model get them as
	// reward_router_address and reward_router_api_key.
	RouterAddress, RouterKey string
	// HiddenEnv contains the names of the environment variables that the configuration uses for
	// secrets of the server. Functions in Python do not get these variables.
	HiddenEnv []string
	// Secrets contains the secrets of the file. All texts about the file, or from the things that
	// it configures, are redacted with Secrets.
	Secrets *redact.Words

	notes []Note
}

// Profile is one reward: its components, and how they become one number.
type Profile struct {
	Name string
	// Single is true for a custom_reward_function: there is one component, which is reported as acc
	// or under the scorer's own names.
	Single bool
	// Components is in the order of the file.
	Components      []ComponentConfig
	Aggregation     rewards.Aggregation
	OnSampleFailure rewards.SamplePolicy
	// Models contains the engines of reward.models by their names in that section. It is nil if
	// there are none.
	Models map[string]string
	// Engine is the name of the engine of the profile's reward_model. It is empty if there is none.
	Engine string
	// Cards is the reward_model's pool of cards. The zero value means that it has no pool of its
	// own.
	Cards ResourcePool
	// Profiler is the profiler of a reward_model that this process does not start. It is nil if
	// there is none.
	Profiler *Profiler
	// Overlong is DAPO's penalty on a single function, for builtin://overlong. It is nil if there
	// is none.
	Overlong *Overlong
	// Sandbox holds the options of sandbox_fusion. It is nil if sandbox_fusion has no url.
	Sandbox json.RawMessage
	// shownSandbox is Sandbox as Print shows it.
	shownSandbox json.RawMessage
	// GroupByPrompt groups the samples without a uid by their prompts.
	GroupByPrompt bool
	// RouteBy is the name of the field whose value selects components by their When.
	RouteBy string
	// Verify are the tools that check a sample before it is scored.
	Verify []VerifyConfig
	// Concurrency is the capacity of the profile in a process, in samples. 0 means that the
	// capacity follows from its components.
	Concurrency int
	Place       Place
}

// VerifyConfig is one entry of the section verify.
type VerifyConfig struct {
	// Key is the name of the entry in verified_results. Kind is http, sandbox_fusion or command.
	Key, Kind string
	// Options is a JSON object with the other keys of the entry. It is nil if there are none.
	Options json.RawMessage
	// Required makes the sample fail if the verifier fails. The default is true.
	Required bool
	// Timeout is the maximum duration of the verifier. The default is 30 s.
	Timeout time.Duration
	Place   Place

	shown json.RawMessage
}

// Overlong contains verl's overlong_buffer_cfg and max_resp_len.
type Overlong struct {
	// MaxRespLen is the maximum length of a response, in tokens.
	MaxRespLen int
	// Len, PenaltyFactor and Log are the keys of overlong_buffer_cfg; see bufferKeys.
	Len           int
	PenaltyFactor float64
	Log           bool
}

// ComponentConfig is one entry of reward_functions, or the custom_reward_function.
type ComponentConfig struct {
	Key string
	// Path is the path in the file, such as "builtin://ocr"; the path of a Python file is absolute.
	// Scorer is the name of the scorer in the registry, such as "ocr", or "python" for Python.
	Path, Scorer string
	// Model is the name, in the profile's Models, of the engine that the function uses. If it is
	// empty, the engine with the function's key is used.
	Model string
	// Options is a JSON object with the other keys of the entry. It is nil if there are none. A
	// Python function gets them as keyword arguments.
	Options json.RawMessage
	// Fraction is the share of each card for the component's model. 0 means that the file sets
	// none.
	Fraction float64
	// Function is the Python function or class. It is empty for other scorers.
	Function string
	// AgentConcurrency is the Concurrency of a synchronous class for which the file sets none.
	AgentConcurrency int

	// The fields from Timeout to PostProcess are keys of the entry; see functionKeys and entryKeys.
	// If the file does not set them, ExtraKeys, Env and Probe are nil (an empty value means no
	// names), and Concurrency, MemoryBytes and MinMembers are 0. A MinMembers of "all" is
	// rewards.WholeGroup.
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
	Frames        string // empty: all frames
	MemoryBytes   int64
	Env           []string
	Interpreter   string
	Probe         []string
	Weight        float64
	Required      bool // true for a single function
	OnFailure     rewards.ComponentPolicy
	PostProcess   string

	// Signature is the form in which a Python function is called, and Reference the field with the
	// reference answer for validation, as in python.Options.
	Signature, Reference string

	// Environment is the Python environment of a function or model, in place of Interpreter. It is
	// nil if there is none.
	Environment *pyenv.Spec

	// Placement configures how a model in Python runs. It is nil for other components.
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

// ShownPath returns the path without secrets, for people.
func (t ComponentConfig) ShownPath() string { return cmp.Or(t.shownPath, redact.URL(t.Path)) }

// Default returns the configuration of an empty file: every setting has its default, and there is
// no profile.
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
