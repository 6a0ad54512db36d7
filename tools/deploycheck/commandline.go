package deploycheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// CommandLine is one of rewardloop's that deploy/ writes down.
type CommandLine struct {
	Where string
	Args  []string // the command and its arguments, variables replaced
	// Config is the text of the file that -c names.
	Config string
	// Grace is how long whoever stops the process waits before it kills it; PreStop is
	// how much of that passes before the process is told.
	Grace, PreStop time.Duration
}

// CommandLines are those of a kustomization's containers. The error joins the paths that
// their containers do not have and the addresses where nobody answers.
func (c *Cluster) CommandLines() ([]CommandLine, error) {
	c.faults = nil
	var lines []CommandLine
	for _, w := range c.workloads {
		for _, container := range w.template.Spec.Containers {
			where := w.kind + " " + w.name
			args := expanded(w, container)
			c.checkPaths(where, w, container, args)
			c.checkAddresses(where, w, args)
			if !strings.HasPrefix(container.Image, "rewardloop:") {
				continue
			}
			line := CommandLine{Where: where, Args: args}
			if m := c.generated("rewardloop-config"); m != nil {
				line.Config = m.Data["config.yaml"]
			}
			if g := w.template.Spec.TerminationGracePeriodSeconds; g != nil {
				line.Grace = time.Duration(*g) * time.Second
			}
			if l := container.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
				line.PreStop = time.Duration(l.PreStop.Sleep.Seconds) * time.Second
			}
			lines = append(lines, line)
		}
	}
	return lines, errors.Join(c.faults...)
}

// podIP stands for what the kubelet will know.
const podIP = "203.0.113.7"

// expanded are the arguments of a container of the workload's first pod.
func expanded(w workload, container corev1.Container) []string {
	values := map[string]string{}
	replace := func(text string) string {
		return variable.ReplaceAllStringFunc(text, func(ref string) string {
			if v, ok := values[strings.Trim(ref, "$()")]; ok {
				return v
			}
			return ref
		})
	}
	for _, e := range container.Env {
		values[e.Name] = replace(e.Value)
		if e.ValueFrom == nil || e.ValueFrom.FieldRef == nil {
			continue
		}
		switch e.ValueFrom.FieldRef.FieldPath {
		case "metadata.name":
			values[e.Name] = w.name + "-0"
		case "status.podIP":
			values[e.Name] = podIP
		}
	}
	args := make([]string, len(container.Args))
	for i, a := range container.Args {
		args[i] = replace(a)
	}
	return args
}

var etcPath = regexp.MustCompile(`/etc/[A-Za-z0-9/._-]+`)

// checkPaths: each file that arguments name is mounted.
func (c *Cluster) checkPaths(where string, w workload, container corev1.Container, args []string) {
	for _, a := range args {
		for _, file := range etcPath.FindAllString(a, -1) {
			if !w.shows(container, file) {
				c.fault("%s: argument %q: nothing is mounted at %s", where, a, file)
			}
		}
	}
}

// checkAddresses: each address that arguments name is a Service's, or the pod's own.
func (c *Cluster) checkAddresses(where string, w workload, args []string) {
	for _, a := range args {
		for _, m := range address.FindAllStringSubmatch(a, -1) {
			port := ordinal(m[2])
			if m[1] == podIP && w.opens("", port) || c.reaches(m[1], port) {
				continue
			}
			c.fault("%s: argument %q: nobody answers at %s:%s", where, a, m[1], m[2])
		}
	}
}

// Binary is a rewardloop that says what it takes.
type Binary struct{ Path string }

// helpFlag is a line of --help that begins a flag.
var helpFlag = regexp.MustCompile(`(?m)^ +(?:-([a-z]), )?(?:    )?--([a-z][a-z-]*)`)

// Flags are those of a command.
func (b Binary) Flags(ctx context.Context, command ...string) ([]string, error) {
	out, err := exec.CommandContext(ctx, b.Path, append(command, "--help")...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("rewardloop %s --help: %w\n%s", strings.Join(command, " "), err, out)
	}
	_, list, _ := strings.Cut(string(out), "\nFlags:\n")
	var flags []string
	for _, m := range helpFlag.FindAllStringSubmatch(list, -1) {
		if m[1] != "" {
			flags = append(flags, m[1])
		}
		flags = append(flags, m[2])
	}
	return flags, nil
}

// settings are the flags that are settings, as the overrides that the commands make of them.
func settings() map[string]string {
	return map[string]string{
		"serve listen": "++server.listen=%s", "serve token-file": "++server.token_file=%s",
		"serve nats": "++queue.nats=[%s]", "serve nats-listen": "++queue.nats_listen=%s",
		"serve advertise": "++queue.advertise=%s", "serve name": "++queue.name=%s",
		"worker join": "++queue.nats=[%s]", "worker name": "++queue.name=%s", "worker rewards": "++queue.rewards=[%s]",
	}
}

// noModel is the one fault that a configuration may have here: models are not downloaded
// for this.
var noModel = regexp.MustCompile(`(?m)^rewardloop config check: \S+ reward\.reward_functions\.\w+: scorer "ocr": ocr: model \S+ is not in .*: run rewardloop models pull \S+\n\z`)

// Check holds a command line to what the binary takes: its flags to those of the command,
// the configuration and the overrides to `config check`, and the time to stop to
// loop.drain_timeout.
func (b Binary) Check(ctx context.Context, line CommandLine) error {
	if len(line.Args) == 0 || strings.HasPrefix(line.Args[0], "-") {
		return fmt.Errorf("%s: %q begins with no command", line.Where, line.Args)
	}
	known, err := b.Flags(ctx, line.Args[0])
	if err != nil {
		return fmt.Errorf("%s: %w", line.Where, err)
	}
	var (
		overrides, set []string
		faults         []error
	)
	for _, a := range line.Args[1:] {
		if !strings.HasPrefix(a, "-") {
			overrides = append(overrides, a)
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimLeft(a, "-"), "=")
		switch {
		case !slices.Contains(known, name):
			faults = append(faults, fmt.Errorf("%s: %s has no flag %s; it has %v", line.Where, line.Args[0], a, known))
		case !hasValue:
			faults = append(faults, fmt.Errorf("%s: write --%s=… , so that it is one argument", line.Where, name))
		case len(overrides) > 0:
			faults = append(faults, fmt.Errorf("%s: %s stands after the overrides, where it is one of them", line.Where, a))
		}
		if key := settings()[line.Args[0]+" "+name]; key != "" {
			set = append(set, fmt.Sprintf(key, value))
		}
	}
	faults = append(faults, b.configure(ctx, line, append(overrides, set...)))
	return errors.Join(faults...)
}

// configure runs `config check` on what a command line configures.
func (b Binary) configure(ctx context.Context, line CommandLine, overrides []string) error {
	dir, err := os.MkdirTemp("", "rewardloop-deploy-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(line.Config), 0o600); err != nil {
		return err
	}
	check := exec.CommandContext(ctx, b.Path, append([]string{"config", "check", "-c", file}, overrides...)...)
	check.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES=0") // the one card that is asked for, here or not
	out, err := check.CombinedOutput()
	if err != nil && !noModel.Match(out) {
		return fmt.Errorf("%s: config check %q: %w\n%s", line.Where, overrides, err, out)
	}
	return line.timing()
}

// margin is what a process needs to stop after its drain.
const margin = 10 * time.Second

// timing: whoever stops the process lets it drain.
func (l CommandLine) timing() error {
	var c struct {
		Loop struct {
			DrainTimeout string `json:"drain_timeout"`
		} `json:"loop"`
	}
	if err := yaml.Unmarshal([]byte(l.Config), &c); err != nil {
		return fmt.Errorf("%s: configuration: %w", l.Where, err)
	}
	drain, err := time.ParseDuration(c.Loop.DrainTimeout)
	if err != nil {
		return fmt.Errorf("%s: loop.drain_timeout: %w", l.Where, err)
	}
	if need := l.PreStop + drain + margin; l.Grace < need {
		return fmt.Errorf("%s: it is killed %v after it is to stop; preStop (%v), loop.drain_timeout (%v) and %v to end take %v",
			l.Where, l.Grace, l.PreStop, drain, margin, need)
	}
	return nil
}
