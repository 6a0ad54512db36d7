package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// sandboxOptions are those of the kind sandbox_fusion.
type sandboxOptions struct {
	service.Addresses
	Language string `json:"language"`
	// RunTimeout is that of compiling, and of running.
	RunTimeout    service.Duration `json:"run_timeout"`
	MemoryLimitMB int              `json:"memory_limit_mb"`
	MaxCodeBytes  int              `json:"max_code_bytes"`
}

// sandboxDefaults are those of the scorer sandbox_fusion.
func sandboxDefaults() sandboxOptions {
	return sandboxOptions{Language: "python", RunTimeout: service.Duration(10 * time.Second), MemoryLimitMB: 1024, MaxCodeBytes: 256 << 10}
}

func sandboxDocumentation() []rewards.Option {
	var out []rewards.Option
	for _, o := range service.AddressOptions() {
		if o.Name != "attempt_timeout" { // follows from run_timeout
			out = append(out, o)
		}
	}
	return append(out,
		rewards.Option{Name: "language", Type: "string", Default: "python", Doc: "programming language of the response's code; must be supported by SandboxFusion"},
		rewards.Option{Name: "run_timeout", Type: "duration", Default: "10s", Doc: "timeout of compiling, and of running"},
		rewards.Option{Name: "memory_limit_mb", Type: "int", Default: "1024", Doc: "maximum memory in MB of one run"},
		rewards.Option{Name: "max_code_bytes", Type: "int", Default: "262144", Doc: "maximum bytes of the response's code"},
	)
}

// transferTime is what verl adds to the times of compiling and running.
const transferTime = 10 * time.Second

// sandboxVerifier runs the response's code.
type sandboxVerifier struct {
	doer    outbound.Doer
	header  http.Header
	options sandboxOptions
}

func newSandbox(raw json.RawMessage, upstreams service.Upstreams) (rewards.Verifier, error) {
	o := sandboxDefaults()
	err := decode(raw, &o, sandboxDocumentation())
	var f service.Faults
	o.Validate(&f)
	f.Add(o.Language == "" || strings.ContainsFunc(o.Language, unicode.IsSpace), "language", "%q is not the name of a language", service.Clip(o.Language, 40))
	f.Time("run_timeout", o.RunTimeout)
	f.Between("memory_limit_mb", o.MemoryLimitMB, 1, 1<<20)
	f.Between("max_code_bytes", o.MaxCodeBytes, 1, 16<<20)
	if err := errors.Join(err, f.Err()); err != nil {
		return nil, err
	}
	o.AttemptTimeout = 2*o.RunTimeout + service.Duration(transferTime)
	v := &sandboxVerifier{header: header(&o.Addresses), options: o}
	v.doer, err = o.Upstream(upstreams, "")
	return v, err
}

// Concurrency is how many requests at a time the server gets.
func (v *sandboxVerifier) Concurrency() int { return rewards.ConcurrencyOf(v.doer) }

// Dependency is the server.
func (v *sandboxVerifier) Dependency() rewards.Dependency { return rewards.DependencyOf(v.doer) }

// ConcurrencyReason is the server's.
func (v *sandboxVerifier) ConcurrencyReason() string { return rewards.ConcurrencyReason(v.doer) }

// maxSandboxAnswer bounds the server's answer: a program prints more than is kept.
const maxSandboxAnswer = 8 << 20

// run is the result of sandbox_fusion.
type run struct {
	// Status is success, runtime_error, timeout, compile_error, compile_timeout, failed
	// where the server does not say why, or no_code.
	Status string `json:"status"`
	// Stdout and Stderr are those of the program, or of a compiler that failed; their
	// beginning where Truncated says so.
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// ReturnCode is null where nothing ran, or ran to no end.
	ReturnCode *int `json:"return_code"`
	Truncated  bool `json:"truncated,omitempty"`
}

// Verify runs the code of the response. A response without a code block is a result,
// no_code; a server that could not run the code is Unavailable.
func (v *sandboxVerifier) Verify(ctx context.Context, s *rewards.Sample) (json.RawMessage, error) {
	code, ok := service.ExtractCode(s.Response, v.options.Language)
	if !ok {
		return (&run{Status: "no_code"}).result()
	}
	if len(code) > v.options.MaxCodeBytes {
		return nil, fmt.Errorf("%w: the code has %d bytes, over max_code_bytes of %d", rewards.BadInput, len(code), v.options.MaxCodeBytes)
	}
	seconds := time.Duration(v.options.RunTimeout).Seconds()
	body, err := encode(map[string]any{
		"compile_timeout": seconds, "run_timeout": seconds, "code": code, "stdin": "",
		"memory_limit_MB": v.options.MemoryLimitMB, "language": v.options.Language,
		"files": struct{}{}, "fetch_files": []string{},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: the request: %w", rewards.Internal, err)
	}
	a, err := v.doer.Do(ctx, &outbound.Call{
		Header: v.header, Body: body, MaxBytes: maxSandboxAnswer, Check: checkJSON,
	})
	if err != nil {
		return nil, err // it names endpoint, status and cause, and carries its class
	}
	run, err := readRun(a.Body)
	if err != nil {
		return nil, fmt.Errorf("%w; from %s", err, a.Endpoint)
	}
	return run.result()
}

// phase is the server's report of compiling or running.
type phase struct {
	Status     string `json:"status"`
	ReturnCode *int   `json:"return_code"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
}

// failed reports an error, or an end with another code than 0.
func (p *phase) failed() bool {
	return p != nil && (p.Status == "Error" || p.Status == "Finished" && (p.ReturnCode == nil || *p.ReturnCode != 0))
}

func (p *phase) late() bool { return p != nil && p.Status == "TimeLimitExceeded" }

// readRun reads the server's answer.
func readRun(body []byte) (*run, error) {
	var a struct {
		Status  string `json:"status"`
		Message string `json:"message"`
		Compile *phase `json:"compile_result"`
		Run     *phase `json:"run_result"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, fmt.Errorf("%w: the answer is not SandboxFusion's: %w", rewards.Internal, err)
	}
	switch {
	case a.Status == "Success" && a.Run != nil && a.Run.Status == "Finished":
		return a.Run.as("success"), nil
	case a.Status == "SandboxError", a.Status == "Success":
		return nil, fmt.Errorf("%w: the server could not run the code: %s %s", rewards.Unavailable, a.Status, service.Quote([]byte(a.Message)))
	case a.Status != "Failed":
		return nil, fmt.Errorf("%w: the answer has no status of Success, Failed or SandboxError: %s", rewards.Internal, service.Quote(body))
	case a.Compile.late():
		return a.Compile.as("compile_timeout"), nil
	case a.Compile.failed():
		return a.Compile.as("compile_error"), nil
	case a.Run.late():
		return a.Run.as("timeout"), nil
	case a.Run.failed():
		return a.Run.as("runtime_error"), nil
	case a.Run != nil:
		return a.Run.as("failed"), nil
	}
	return &run{Status: "failed", Stderr: a.Message}, nil
}

func (p *phase) as(status string) *run {
	return &run{Status: status, Stdout: p.Stdout, Stderr: p.Stderr, ReturnCode: p.ReturnCode}
}

// maxOutput is the most bytes of each output that are kept.
const maxOutput = 16 << 10

// result is the run as JSON within MaxResult: control characters grow sixfold in it.
func (r *run) result() (json.RawMessage, error) {
	for most := maxOutput; ; most /= 2 {
		cut := *r
		cut.Stdout, cut.Stderr = service.Prefix(r.Stdout, most), service.Prefix(r.Stderr, most)
		cut.Truncated = len(cut.Stdout) < len(r.Stdout) || len(cut.Stderr) < len(r.Stderr)
		out, err := encode(cut)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", rewards.Internal, err)
		}
		if len(out) <= maxResult {
			return out, nil
		}
	}
}
