package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// sandboxOptions are those of the scorer sandbox_fusion.
type sandboxOptions struct {
	service.Addresses
	// MaxConcurrent is the most cases that run at a time, over all samples.
	MaxConcurrent int `json:"max_concurrent"`
	MemoryLimitMB int `json:"memory_limit_mb"`
	// Timeout is that of compiling, and of running one test case.
	Timeout service.Duration `json:"run_timeout"`
	// Continuous looks at the first ten cases only.
	Continuous bool   `json:"continuous"`
	Language   string `json:"language"`
	// SandboxError says what a case is that the server could not judge: a failure of
	// the sample, or not passed.
	SandboxError string `json:"sandbox_error"`
	// TestCases is where the cases stand.
	TestCases    string `json:"test_cases"`
	MaxCases     int    `json:"max_cases"`
	MaxCaseBytes int    `json:"max_case_bytes"`
	MaxCodeBytes int    `json:"max_code_bytes"`
}

// sandboxDefaults are verl's (SandboxFusionConfig, default_compute_score).
func sandboxDefaults() sandboxOptions {
	return sandboxOptions{
		MaxConcurrent: 64, MemoryLimitMB: 1024, Timeout: service.Duration(10 * time.Second), Continuous: true, Language: "python",
		SandboxError: "fail", TestCases: "ground_truth", MaxCases: 1000, MaxCaseBytes: 1 << 20, MaxCodeBytes: 256 << 10,
	}
}

// transferTime is what verl adds to the times of compiling and running.
const transferTime = 10 * time.Second

func sandboxDocumentation() []rewards.Option {
	out := slices.DeleteFunc(service.AddressOptions(), func(o rewards.Option) bool { return o.Name == "concurrency" || o.Name == "attempt_timeout" })
	return append(out,
		rewards.Option{Name: "max_concurrent", Type: "int", Default: "64", Doc: "maximum number of test cases that run at a time, over all samples and rewards that use these URLs"},
		rewards.Option{Name: "memory_limit_mb", Type: "int", Default: "1024", Doc: "maximum memory in MB of one run"},
		rewards.Option{Name: "run_timeout", Type: "duration", Default: "10s", Doc: "timeout of compiling, and of running one test case"},
		rewards.Option{Name: "continuous", Type: "bool", Default: "true", Doc: "true: the score is the share of the first 10 test cases that pass, as in verl's default_compute_score; false: of all test cases"},
		rewards.Option{Name: "language", Type: "string", Default: "python", Doc: "programming language of the response's code"},
		rewards.Option{Name: "sandbox_error", Type: "string", Default: "fail", Doc: "a test case that the sandbox could not run: fail (the sample fails) or not_passed (the case counts as not passed, as in verl)"},
		rewards.Option{Name: "test_cases", Type: "string", Default: "ground_truth", Doc: "field of the sample with the test cases: ground_truth, extra_info.tests, …"},
		rewards.Option{Name: "max_cases", Type: "int", Default: "1000", Doc: "maximum number of test cases of a sample; a sample with more fails with bad_input"},
		rewards.Option{Name: "max_case_bytes", Type: "int", Default: "1048576", Doc: "maximum bytes of one test case, input and output together"},
		rewards.Option{Name: "max_code_bytes", Type: "int", Default: "262144", Doc: "maximum bytes of the response's code"},
	)
}

func parseSandboxOptions(raw json.RawMessage) (sandboxOptions, error) {
	o := sandboxDefaults()
	known := sandboxDocumentation()
	err := service.Decode(raw, &o, func(name string) error {
		if slices.ContainsFunc(known, func(k rewards.Option) bool { return k.Name == name }) {
			return nil
		}
		var all []string
		for _, k := range known {
			all = append(all, k.Name)
		}
		return fmt.Errorf("unknown option; %s has %s", sandboxName, strings.Join(all, ", "))
	})
	return o, errors.Join(err, o.validate())
}

func (o *sandboxOptions) validate() error {
	var f service.Faults
	o.Validate(&f)
	between := func(name string, n, most int) { f.Add(n < 1 || n > most, name, "is %d, want 1 to %d", n, most) }
	between("max_concurrent", o.MaxConcurrent, 1<<16)
	between("memory_limit_mb", o.MemoryLimitMB, 1<<20)
	between("max_cases", o.MaxCases, 1<<16)
	between("max_case_bytes", o.MaxCaseBytes, 64<<20)
	between("max_code_bytes", o.MaxCodeBytes, 64<<20)
	f.Add(time.Duration(o.Timeout) < time.Second || time.Duration(o.Timeout) > time.Hour, "run_timeout", "is %v, want 1s to 1h", time.Duration(o.Timeout))
	f.OneOf("language", o.Language, languages()...)
	f.OneOf("sandbox_error", o.SandboxError, "fail", "not_passed")
	_, err := service.ParseSource(o.TestCases)
	f.Check("test_cases", err)
	return f.Err()
}

// languages are those that SandboxFusion runs (its API's documentation).
func languages() []string {
	return []string{
		"python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript", "sql", "rust", "cuda", "lua", "R",
		"perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit", "kotlin_script", "jest", "verilog", "python_gpu", "lean", "swift", "racket",
	}
}

// sandbox runs the code of a response against test cases on a SandboxFusion server.
// It is safe for concurrent use.
type sandbox struct {
	options sandboxOptions
	cases   service.Source
	doer    outbound.Doer
	running chan struct{} // one per case that runs
	breadth outbound.Breadth
}

var (
	_ rewards.Scorer       = (*sandbox)(nil)
	_ rewards.ExtraFielder = (*sandbox)(nil)
	_ rewards.Queuer       = (*sandbox)(nil)
	_ rewards.Concurrent   = (*sandbox)(nil)
)

// Concurrency is how many samples the server's cases at a time are enough for.
func (s *sandbox) Concurrency() int {
	return s.breadth.Calls(min(rewards.ConcurrencyOf(s.doer), s.options.MaxConcurrent))
}

// Dependency is the server.
func (s *sandbox) Dependency() rewards.Dependency { return rewards.DependencyOf(s.doer) }

// ConcurrencyReason is the server's, with how many cases a sample has at a time.
func (s *sandbox) ConcurrencyReason() string {
	return s.breadth.Reason(rewards.ConcurrencyReason(s.doer))
}

// Queues says that the component's time begins when a case has a place at the server.
func (*sandbox) Queues() {}

func buildSandbox(upstreams Upstreams, raw json.RawMessage) (rewards.Scorer, error) {
	o, err := parseSandboxOptions(raw)
	if err != nil {
		return nil, err
	}
	o.Concurrency, o.AttemptTimeout = o.MaxConcurrent, 2*o.Timeout+service.Duration(transferTime)
	doer, err := o.Upstream(upstreams, "")
	if err != nil {
		return nil, err
	}
	s := &sandbox{options: o, doer: doer, running: make(chan struct{}, o.MaxConcurrent)}
	s.cases, _ = service.ParseSource(o.TestCases) // validate has read it
	return s, nil
}

// ExtraFields declares passed and cases, how many of how many, and status, what
// became of the first case that did not pass ("success": all did).
func (s *sandbox) ExtraFields() []rewards.Field {
	return []rewards.Field{{Name: "passed", Kind: rewards.Number}, {Name: "cases", Kind: rewards.Number}, {Name: "status", Kind: rewards.String}}
}

// firstCases is how many cases count with continuous.
const firstCases = 10

// Score returns the share of the cases that the code passes, 0 to 1. A response
// without a code block is 0, as in verl; cases that cannot be read are BadInput.
func (s *sandbox) Score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	score, err := s.score(ctx, sample)
	if err != nil {
		return rewards.Score{}, fmt.Errorf("sample %q: %w", sample.ID, err)
	}
	return score, nil
}

func (s *sandbox) score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	cs, err := s.testCases(sample)
	if err != nil {
		return rewards.Score{}, err
	}
	code, ok := service.ExtractCode(sample.Response, s.options.Language)
	if !ok {
		return total(make([]caseResult, len(cs)), "no_code"), nil
	}
	if len(code) > s.options.MaxCodeBytes {
		return rewards.Score{}, fmt.Errorf("%w: code of %d bytes, want at most max_code_bytes = %d", rewards.BadInput, len(code), s.options.MaxCodeBytes)
	}
	results, err := s.runAll(ctx, code, cs)
	if err != nil {
		return rewards.Score{}, err
	}
	return total(results, ""), nil
}

// runAll runs the cases, as many at a time as the bound says. The first that the
// server could not judge ends the others, if that fails the sample.
func (s *sandbox) runAll(ctx context.Context, code string, cs []testCase) ([]caseResult, error) {
	results := make([]caseResult, len(cs))
	g, ctx := errgroup.WithContext(ctx)
	abreast := min(s.options.MaxConcurrent, 32) // verl's threads per sample
	g.SetLimit(abreast)
	s.breadth.Saw(min(len(cs), abreast))
	for i, c := range cs {
		g.Go(func() error {
			err := rewards.Guard(func() (err error) { // on a goroutine of its own nobody else would catch a panic
				results[i], err = s.run(ctx, code, c)
				return err
			})
			if err != nil {
				return fmt.Errorf("case %d: %w", i, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err // names its case
	}
	spreadCompileError(results)
	return results, nil
}

// run runs one case.
func (s *sandbox) run(ctx context.Context, code string, c testCase) (caseResult, error) {
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
	case <-ctx.Done():
		return caseResult{}, rewards.Ended(ctx, false, rewards.BlameDependency,
			fmt.Errorf("waiting while %d cases run: %w", s.options.MaxConcurrent, ctx.Err()))
	}
	program := code + "\n\n" + c.assert
	if c.function != "" && s.options.Language == "python" {
		program = callFunction(program, c.function)
	}
	seconds := time.Duration(s.options.Timeout).Seconds()
	h := s.options.RequestHeader("application/json")
	h.Set("Accept", "application/json")
	call := jsonCall(h, dict(
		"compile_timeout", seconds, "run_timeout", seconds, "code", program, "stdin", c.stdin,
		"memory_limit_MB", int64(s.options.MemoryLimitMB), "language", s.options.Language,
		"files", &pickle.Dict{}, "fetch_files", &pickle.List{},
	))
	var r caseResult
	a, err := do(ctx, s.doer, call, func(body []byte) error {
		_, err := judge(body, c)
		return err
	})
	if err == nil {
		r, err = judge(a.Body, c)
	}
	switch {
	case err == nil && r.code != codeUnknown, err != nil && ctx.Err() != nil:
		return r, err
	case s.options.SandboxError == "not_passed":
		if err != nil {
			r = caseResult{code: codeUnknown, status: "api_error", stderr: service.Clip(err.Error(), maxOutput)}
		}
		return r, nil
	case err == nil:
		err = fmt.Errorf("%w: the server could not judge the case: %s %s", rewards.Unavailable, r.status, service.Quote([]byte(r.stderr)))
	}
	return r, err
}
