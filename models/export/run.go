package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/models"
)

const (
	// maxLine bounds a line that is shown, and maxSaid what is kept of the output for an error.
	maxLine, maxSaid = 2000, 64 << 10
	// maxReason bounds what an error repeats of it.
	maxReason = 1500
)

// run unpacks the programs and runs the recipe's to its end or that of ctx.
func (e *exporting) run(ctx context.Context) error {
	work, err := os.MkdirTemp("", "rewardloop-export-*")
	if err != nil {
		return fmt.Errorf("%w: %w: set TMPDIR to use another folder", ErrProgram, err)
	}
	defer os.RemoveAll(work)
	if err := os.CopyFS(work, e.Programs); err != nil {
		return fmt.Errorf("%w: %w: set TMPDIR to use another folder", ErrProgram, err)
	}
	// Inputs are read where the caller is, so that relative paths mean what they mean to a person.
	cmd := exec.CommandContext(ctx, e.python, append([]string{"-u", filepath.Join(work, e.r.Family+".py")}, //nolint:gosec // its own program
		e.r.arguments(e.plan.Name, e.weights, e.into.Dir)...)...)
	cmd.Env = e.variables(work)
	cmd.WaitDelay = 5 * time.Second
	cmd.ExtraFiles = []*os.File{e.into.Lock} // held until the last of the group has ended
	models.InOwnGroup(cmd)
	out := &lines{show: e.o.Output}
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	out.end()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return e.failure(out.said.String(), err)
	}
	return nil
}

// variables are what the program sees: not this program's own, which may be secrets, and nothing
// that has Python look elsewhere.
func (e *exporting) variables(work string) []string {
	var env []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		switch {
		case strings.HasPrefix(name, "REWARDLOOP_"), name == "PYTHONPATH", name == "PYTHONHOME", name == "PYTHONSTARTUP", name == "PYTHONSAFEPATH", name == "VIRTUAL_ENV":
		default:
			env = append(env, pair)
		}
	}
	return append(env, "TMPDIR="+work, "PYTHONDONTWRITEBYTECODE=1", "PYTHONNOUSERSITE=1", "TOKENIZERS_PARALLELISM=false", "LC_ALL=C.UTF-8")
}

// sign is a text of the output by which a failure is known, and what to do about it.
type sign struct {
	text   string
	class  error
	advice string
}

// signs are looked for in this order.
func signs() []sign {
	const network = "check the network, the proxy and HF_ENDPOINT and run the command again; downloads are in the hub's cache"
	return []sign{
		{"No space left on device", pyenv.ErrSpace, "make room, or name other folders with --dir or REWARDLOOP_MODELS, and HF_HUB_CACHE"},
		{"Disk quota exceeded", pyenv.ErrSpace, "make room, or name other folders with --dir or REWARDLOOP_MODELS, and HF_HUB_CACHE"},
		{"export failed:", ErrParity, "nothing was kept; the checkpoint may be of another family or form"},
		{"ModuleNotFoundError", ErrProgram, "the Python of --interpreter lacks a package; leave --interpreter out to have an environment made with all packages"},
		{"gated repo", ErrProgram, "agree on the repository's page, and name a token in HF_TOKEN"},
		{"401 Client Error", ErrProgram, "name a token that may read the repository in HF_TOKEN"},
		{"We couldn't connect to", ErrProgram, network},
		{"LocalEntryNotFoundError", ErrProgram, network},
		{"Max retries exceeded", ErrProgram, network},
		{"Name or service not known", ErrProgram, network},
		{"Temporary failure in name resolution", ErrProgram, network},
		{"unrecognized arguments", ErrRecipe, "correct the arguments after --; -- --help shows the arguments of the program"},
	}
}

// failure is the error of a program that ended badly, by what it said.
func (e *exporting) failure(said string, err error) error {
	class, advice := ErrProgram, ""
	for _, s := range signs() {
		if strings.Contains(said, s.text) {
			class, advice = s.class, ": "+s.advice
			break
		}
	}
	if state, is := errors.AsType[*exec.ExitError](err); is && advice == "" && state.ExitCode() < 0 {
		advice = ": the program was killed, by the kernel if memory was short; an export needs about three times the checkpoint in float32"
	}
	said = strings.TrimSpace(said)
	if len(said) > maxReason {
		said = "…" + strings.ToValidUTF8(said[len(said)-maxReason:], "")
	}
	return fmt.Errorf("%w: %s.py of %s: %w%s. Its output: %s", class, e.r.Family, e.plan.Name, err, advice, said)
}

// lines cuts what a program writes into lines. One goroutine of os/exec writes; end comes after it.
type lines struct {
	show func(line string, passing bool)
	line []byte
	said bytes.Buffer // the end of all lines that do not pass
}

func (l *lines) Write(p []byte) (int, error) {
	for _, b := range p {
		switch {
		case b == '\n' || b == '\r':
			l.flush(b == '\r')
		case len(l.line) < maxLine:
			l.line = append(l.line, b)
		}
	}
	return len(p), nil
}

// flush passes a line on, without what would move a terminal's cursor.
func (l *lines) flush(passing bool) {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.TrimRight(string(l.line), " "), "?"))
	l.line = l.line[:0]
	if text == "" {
		return
	}
	if !passing {
		l.said.WriteString(text + "\n")
		if extra := l.said.Len() - maxSaid; extra > 0 {
			l.said.Next(extra)
		}
	}
	if l.show != nil {
		l.show(text, passing)
	}
}

func (l *lines) end() { l.flush(false) }
