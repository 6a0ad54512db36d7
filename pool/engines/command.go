package engines

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is the kind of a program that serves models.
type Kind string

// The kinds.
const (
	VLLM         Kind = "vllm"
	SGLang       Kind = "sglang"
	Transformers Kind = "transformers"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{VLLM, SGLang, Transformers} }

// Parallel is the number of cards of one server, by the kind of parallelism.
type Parallel struct{ Tensor, Pipeline, Data int }

// Command returns the command line of a server that listens on a port of 127.0.0.1. If Python is
// set, the command runs the program as a Python module, which works if the program is not on PATH.
func (c Config) Command(port int) ([]string, error) {
	var args []string
	flag := func(name, value string) { args = append(args, name, value) }
	switch c.Kind {
	case VLLM:
		if c.Python != "" {
			args = []string{c.Python, "-m", "vllm.entrypoints.openai.api_server", "--model", c.Model}
		} else {
			args = []string{"vllm", "serve", c.Model}
		}
		flag("--served-model-name", c.Served)
		flag("--tensor-parallel-size", strconv.Itoa(max(c.Parallel.Tensor, 1)))
		if c.Parallel.Pipeline > 1 {
			flag("--pipeline-parallel-size", strconv.Itoa(c.Parallel.Pipeline))
		}
		if c.Parallel.Data > 1 {
			flag("--data-parallel-size", strconv.Itoa(c.Parallel.Data))
		}
	case SGLang:
		args = []string{cmp.Or(c.Python, "python3"), "-m", "sglang.launch_server", "--model-path", c.Model}
		flag("--served-model-name", c.Served)
		flag("--tp-size", strconv.Itoa(max(c.Parallel.Tensor, 1)))
		if c.Parallel.Pipeline > 1 {
			flag("--pp-size", strconv.Itoa(c.Parallel.Pipeline))
		}
		if c.Parallel.Data > 1 {
			flag("--dp-size", strconv.Itoa(c.Parallel.Data))
		}
	case Transformers:
		if c.Python != "" {
			args = []string{c.Python, "-m", "transformers.cli.transformers", "serve", c.Model}
		} else {
			args = []string{"transformers", "serve", c.Model}
		}
	default:
		return nil, fmt.Errorf("%q is not a kind of engine that rewardloop starts, want one of %v", c.Kind, Kinds())
	}
	flag("--host", host)
	flag("--port", strconv.Itoa(port))
	if c.Device != "" && c.Kind != VLLM {
		flag("--device", c.Device)
	}
	return append(args, c.Args...), nil
}

// host is the address on which servers listen: nobody beyond this machine reaches their routes.
const host = "127.0.0.1"

// validate names everything that is wrong with a configuration.
func (c Config) validate() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("engine "+c.Name+": "+format, args...))
		}
	}
	bad(c.Name == "" || strings.ContainsAny(c.Name, "/\\"), "name is %q, which also names the logs", c.Name)
	bad(!slices.Contains(Kinds(), c.Kind), "kind is %q, want one of %v", c.Kind, Kinds())
	bad(c.Model == "", "no model")
	bad(c.Servers < 1 || c.Servers > 256, "%d servers, want 1 to 256", c.Servers)
	bad(CheckArguments(c.Args) != nil, "%v", CheckArguments(c.Args))
	return errors.Join(errs...)
}

// CheckArguments returns an error if args contains an argument that Command sets.
func CheckArguments(args []string) error {
	for _, name := range []string{"--host", "--port", "--served-model-name", "--api-key"} {
		if slices.ContainsFunc(args, func(a string) bool { return a == name || strings.HasPrefix(a, name+"=") }) {
			return fmt.Errorf("%s is set by rewardloop; remove the argument", name)
		}
	}
	return nil
}

// sleep is the route by which a kind gives its memory back, wake the one by which it takes it again. Level 1 keeps the weights in
// the machine's memory.
func (k Kind) sleep() string {
	if k == SGLang {
		return "/release_memory_occupation"
	}
	return "/sleep?level=1"
}

func (k Kind) wake() string {
	if k == SGLang {
		return "/resume_memory_occupation"
	}
	return "/wake_up"
}

// CanSleep reports whether servers of the kind can release their memory on a device, and returns
// the arguments and environment variables that such servers need at their start.
func (k Kind) CanSleep(device string) (args, env []string, can bool) {
	switch {
	case device == "cpu": // vLLM refuses --enable-sleep-mode there
	case k == VLLM:
		return []string{"--enable-sleep-mode"}, []string{"VLLM_SERVER_DEV_MODE=1"}, true
	case k == SGLang:
		return []string{"--enable-memory-saver"}, nil, true
	}
	return nil, nil, false
}
