package config

import (
	"encoding/json"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
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
	// Pool is what scores them: child processes, devices, decoded pictures.
	Pool Pool
	// Server is the HTTP edge.
	Server Server
	// Fabric joins processes on several machines.
	Fabric Fabric
	// Engines are the servers that judges ask, by name: those of the section engines,
	// and those of the profiles' reward_model.
	Engines map[string]*Engine
	// Outbound is what leaves the process by HTTP.
	Outbound Outbound
	// RouterAddress is host:port of the reward router, set by the process that opens
	// it. Functions in Python beside a reward_model get it as reward_router_address.
	RouterAddress string

	notes []Note
}

// Profile is one reward: its terms and how they become one number.
type Profile struct {
	Name string
	// Single is true for a custom_reward_function: one term, reported as acc or
	// under the scorer's own names.
	Single bool
	// Terms are in the order of the file.
	Terms           []TermConfig
	Aggregation     rewards.Aggregation
	OnSampleFailure rewards.SamplePolicy
	// Engine names the engine of the profile's reward_model; "": it has none.
	Engine string
	// Overlong is DAPO's penalty on a single function, for builtin://overlong; nil: none.
	Overlong *Overlong
	// Sandbox holds the options of sandbox_fusion; nil: it has no url.
	Sandbox json.RawMessage
	// GroupByPrompt makes groups of samples that have no uid by their prompts.
	GroupByPrompt bool
	// RouteBy names the field whose value chooses among terms by their When.
	RouteBy string
	// Verify are the tools that look at a sample before it is scored.
	Verify []VerifyConfig
	Place  Place
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
	// MaxRespLen is the longest response, Len the last part of it where the penalty
	// grows, both in tokens; PenaltyFactor is what it grows to.
	MaxRespLen, Len int
	PenaltyFactor   float64
	// Log says that overlong_reward and overlong are among the columns.
	Log bool
}

// TermConfig is one entry of reward_functions, or the custom_reward_function.
type TermConfig struct {
	Key string
	// Path is what the file says, "builtin://ocr"; of a Python file it is absolute.
	// Scorer names the scorer in the registry: "ocr", and "python" for Python.
	Path, Scorer string
	// Options is a JSON object with whatever else the entry holds; nil: nothing. A
	// Python function is called with it, by keyword.
	Options json.RawMessage
	// Function is the Python function or class; "" for other scorers.
	Function string
	// ExtraKeys are the scalars besides the score that a Python function returns;
	// nil: those of its first success.
	ExtraKeys map[string]rewards.FieldKind
	// Pixels says in what a Python function gets them: auto, numpy or torch.
	Pixels string
	// Weight defaults to 1.
	Weight float64
	// Required defaults to false, as in verl-omni; of a single function to true.
	Required bool
	// OnFailure is the zero policy where the file is silent: group_mean for a
	// sample that has a group, else fail.
	OnFailure rewards.TermPolicy
	// Timeout bounds the term, retries included. Defaults to Loop.TermTimeout.
	Timeout time.Duration
	// Retries is how many more times a transient failure is tried. Defaults to 1.
	Retries int
	// InvalidValues are scores that mean failure.
	InvalidValues []float64
	// PostProcess is the key of a term with a Python class, whose post_process_scores
	// makes this term's values out of that term's on every group; "": it has a Path.
	PostProcess string
	// When lists the samples that the term is for, by the profile's RouteBy; empty: all.
	When []string
	// Clip bounds the scorer's value, Scale multiplies it then; nil and 1: as it is.
	Clip  *[2]float64
	Scale float64
	// MinMembers is how many members a scorer of whole groups needs; 0: two,
	// rewards.WholeGroup: all.
	MinMembers int
	Place      Place

	shown     json.RawMessage // the options as Print shows them: no secrets
	shownPath string          // the path as Print shows it; "": as it is
}

// Loop holds the settings of the section loop.
type Loop struct {
	MaxBytes          int64
	MessageBytes      int64
	CreditSamples     int
	CreditBytes       int64
	MaxAttempts       int
	SampleTimeout     time.Duration
	MaxSampleTimeout  time.Duration
	HTTPSampleTimeout time.Duration
	ComputeTimeout    time.Duration
	StepTimeout       time.Duration
	// OnStepDeadline is DeadlineMask, DeadlineFail or DeadlineShortfall.
	OnStepDeadline string
	StepBytes      int64
	StepAge        time.Duration
	Dispatch       Dispatch
	// Deterministic makes results independent of where and in what company samples are
	// scored: batches of one, no backup requests, seeds of ids.
	Deterministic bool
	NumExamine    int
	TermTimeout   time.Duration
	ClaimTimeout  time.Duration
	// RunWeights is the share of a run by its name; a run not named has 1.
	RunWeights   map[string]float64
	ResultsKept  int
	ResultsBytes int64
	ResultsAge   time.Duration
	DrainTimeout time.Duration
	Workers      Workers
}

// Dispatch holds the settings of loop.dispatch.
type Dispatch struct {
	// Policy is DispatchRandom, DispatchRandomBlind or DispatchSpeedWeighted.
	Policy      string
	BackupAfter float64
	BackupShare float64
}

// The values of Loop.OnStepDeadline; those of wire.Step.OnDeadline.
const (
	DeadlineMask      = "mask"
	DeadlineFail      = "fail"
	DeadlineShortfall = "proceed_with_shortfall"
)

// The values of Dispatch.Policy; those of loop.Dispatch.
const (
	DispatchRandom        = "random"
	DispatchRandomBlind   = "random_blind"
	DispatchSpeedWeighted = "speed_weighted"
)

// Workers holds the settings of loop.workers.
type Workers struct {
	Slots           int
	MaxAbandoned    int
	BreakerFailures int
	BreakerPause    time.Duration
	BreakerMaxPause time.Duration
}

// Pool holds the settings of the section pool.
type Pool struct {
	// Isolation is IsolationProcess or IsolationInline.
	Isolation string
	// ModelsDir holds model files; "": where models.FromEnvironment looks.
	ModelsDir string
	ONNX      ONNX
	Tesseract Tesseract
	Python    Python
	Decode    Decode
}

// ONNX holds the settings of pool.onnx.
type ONNX struct {
	Library  string
	Slots    int
	MaxBatch int
	Timeout  time.Duration
}

// The values of Pool.Isolation.
const (
	IsolationProcess = "process"
	IsolationInline  = "inline"
)

// Tesseract holds the settings of pool.tesseract.
type Tesseract struct {
	Slots    int
	PSM      int
	Language string
	Timeout  time.Duration
}

// Python holds the settings of pool.python. A zero that has a meaning of its own
// is explained in the table of settings.
type Python struct {
	// Interpreter is a program; "": REWARDLOOP_PYTHON, else python3 on PATH.
	Interpreter  string
	Hosts        int
	Concurrency  int
	MemoryBytes  int64
	FileBytes    int64
	Files        int
	StartTimeout time.Duration
	CallTimeout  time.Duration
	StallTimeout time.Duration
}

// Decode holds the settings of pool.decode.
type Decode struct {
	MaxPixels   int
	MaxFrames   int
	BudgetBytes int64
}

// Outbound holds the settings of the section outbound.
type Outbound struct {
	// Allow are hosts, addresses and networks that may be asked although they are
	// this machine's own.
	Allow  []string
	Proxy  string
	CAFile string
}

// Server holds the settings of the section server.
type Server struct {
	Listen    string
	TokenFile string
	TLSCert   string
	TLSKey    string
	ClientCA  string
	BodyBytes int64
}

// Fabric holds the settings of the section fabric.
type Fabric struct {
	// NATS are the servers of an engine that runs by itself; none: it is in this process.
	NATS []string
	// NATSListen is where the engine of this process takes others; "": nowhere.
	NATSListen string
	NATSDir    string
	ACLFile    string
	NKeyFile   string
	CredsFile  string
	TLSCA      string
	TLSCert    string
	TLSKey     string
	// TLSClients lets only those into NATSListen who show a certificate of TLSCA.
	TLSClients bool
	// Name is this process among all; "": host and process number.
	Name string
	// Advertise is where workers reach this gateway; "": it follows from server.listen.
	Advertise string
	// Rewards are those that this process's workers serve; none: all of the file.
	Rewards []string
	// Pool names the workers that serve them; "": it follows from the rewards.
	Pool     string
	Lease    time.Duration
	ClaimTTL time.Duration
	Replicas int
	// Durable keeps accepted samples and unconfirmed results in SpoolDir, and tickets on the
	// disk of NATS.
	Durable      bool
	SpoolDir     string
	SpoolBytes   int64
	SharedMemory bool
}

// Networked reports whether workers of other processes may join.
func (f Fabric) Networked() bool { return len(f.NATS) > 0 || f.NATSListen != "" }

// Default returns the configuration of an empty file: every setting at its
// default, and no profile.
func Default() *Config {
	return &Config{
		NumWorkers: 8, // verl-omni's
		Profiles:   map[string]*Profile{},
		Engines:    map[string]*Engine{},
		Loop: Loop{
			MaxBytes:          1 << 30,
			MessageBytes:      128 << 20,
			CreditSamples:     256,
			CreditBytes:       64 << 20,
			MaxAttempts:       3,
			SampleTimeout:     900 * time.Second,
			MaxSampleTimeout:  time.Hour,
			HTTPSampleTimeout: 110 * time.Second,
			ComputeTimeout:    55 * time.Second,
			StepTimeout:       1800 * time.Second,
			OnStepDeadline:    DeadlineMask,
			StepBytes:         256 << 20,
			StepAge:           30 * time.Minute,
			Dispatch:          Dispatch{Policy: DispatchRandom, BackupShare: 0.05},
			TermTimeout:       rewards.DefaultTermTimeout,
			ClaimTimeout:      600 * time.Second,
			RunWeights:        map[string]float64{},
			ResultsKept:       100_000,
			ResultsBytes:      64 << 20,
			ResultsAge:        10 * time.Minute,
			DrainTimeout:      30 * time.Second,
			Workers:           Workers{BreakerFailures: 5, BreakerPause: time.Second, BreakerMaxPause: 30 * time.Second},
		},
		Pool: Pool{
			Isolation: IsolationProcess,
			ONNX:      ONNX{MaxBatch: 32, Timeout: time.Minute},
			Tesseract: Tesseract{PSM: 11, Language: "eng", Timeout: 30 * time.Second},
			Python: Python{
				Concurrency: 64, FileBytes: 1 << 30, Files: 1024, StartTimeout: 2 * time.Minute, StallTimeout: 10 * time.Second,
			},
			Decode: Decode{MaxPixels: 4096 * 4096, MaxFrames: 1024, BudgetBytes: 512 << 20},
		},
		Server: Server{Listen: "127.0.0.1:8080", BodyBytes: 128 << 20},
		Fabric: Fabric{Lease: 15 * time.Second, ClaimTTL: 2 * time.Minute, Replicas: 1, SpoolBytes: 16 << 30},
	}
}

// SlotsFor is the number of samples one of n workers scores at a time on a
// machine with that many CPUs: Slots, or where it is 0 a worker's share of four
// samples for each CPU, so that decoding, scoring and waiting overlap.
func (w Workers) SlotsFor(n, cpus int) int {
	if w.Slots > 0 {
		return w.Slots
	}
	return max(1, (4*cpus+n-1)/max(1, n))
}

// AbandonedFor is MaxAbandoned of a worker with that many slots, or where it is
// 0 half of them.
func (w Workers) AbandonedFor(slots int) int {
	if w.MaxAbandoned > 0 {
		return w.MaxAbandoned
	}
	return max(1, slots/2)
}

// SlotsFor is the number of Tesseract children on a machine with that many CPUs.
func (t Tesseract) SlotsFor(cpus int) int {
	if t.Slots > 0 {
		return t.Slots
	}
	return max(1, cpus)
}
