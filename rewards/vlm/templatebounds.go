package vlm

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
)

// Bounds of one rendering. The engine knows none: a loop that never ends would hold the
// goroutine of its sample for ever, and a recursion end the process.
const (
	// maxSteps bounds what a rendering does: a text that is written is one step, a number
	// of range() too, and a loop that is begun loopSteps. A conversation with 384
	// pictures, the most that a judge is shown, takes a few thousand.
	maxSteps  = 1 << 17
	loopSteps = 16
	// maxRendered bounds the text in bytes: maxText, and what templates put round it.
	maxRendered = maxText + 1<<20
	// maxMacros bounds how deep macros call one another.
	maxMacros = 50
)

var (
	errSteps    = fmt.Errorf("the template takes more than %d steps", maxSteps)
	errRendered = fmt.Errorf("the template writes more than %d bytes", maxRendered)
	errMacros   = fmt.Errorf("macro calls are nested more than %d deep", maxMacros)
)

// effort is what one rendering has done. It belongs to the goroutine that renders, and is
// the writer of its text.
type effort struct {
	text          bytes.Buffer
	steps, macros int
}

// effortName is the context's entry of the effort: no name of a template has a space.
const effortName = "the effort"

// effortOf finds the effort of the rendering that a context is of.
func effortOf(c *exec.Context) *effort {
	v, _ := c.Get(effortName)
	e, _ := v.(*effort)
	return e
}

// take counts steps.
func (e *effort) take(steps int) error {
	if e.steps += steps; e.steps > maxSteps {
		return errSteps
	}
	return nil
}

// Write implements io.Writer.
func (e *effort) Write(p []byte) (int, error) {
	if err := e.take(1); err != nil {
		return 0, err
	}
	if e.text.Len()+len(p) > maxRendered {
		return 0, errRendered
	}
	return e.text.Write(p) //nolint:wrapcheck // it never fails
}

// boundedControls are the engine's control structures but those that read other templates,
// with loops and macros that count.
func boundedControls() *exec.ControlStructureSet {
	parsers := make(map[string]parser.ControlStructureParser)
	for _, name := range []string{"autoescape", "block", "break", "call", "continue", "do", "filter", "for", "if", "macro", "raw", "set", "trans", "with"} {
		if p, ok := builtins.ControlStructures.Get(name); ok {
			parsers[name] = p
		}
	}
	loop, macro := parsers["for"], parsers["macro"]
	parsers["for"] = func(p, args *parser.Parser) (nodes.ControlStructure, error) {
		n, err := loop(p, args)
		f, ok := n.(*controls.ForControlStructure)
		if err != nil || !ok {
			return n, err
		}
		if f.Recursive {
			return nil, errors.New("recursive loops are not read")
		}
		return boundedLoop{f}, nil
	}
	parsers["macro"] = func(p, args *parser.Parser) (nodes.ControlStructure, error) {
		n, err := macro(p, args)
		if m, ok := n.(*controls.MacroControlStructure); ok && err == nil {
			return boundedMacro{m}, nil
		}
		return n, err
	}
	return exec.NewControlStructureSet(parsers)
}

// boundedLoop is a loop that counts.
type boundedLoop struct{ *controls.ForControlStructure }

// Execute implements exec.ControlStructure.
func (l boundedLoop) Execute(r *exec.Renderer, tag *nodes.ControlStructureBlock) error {
	if err := effortOf(r.Environment.Context).take(loopSteps); err != nil {
		return err
	}
	return l.ForControlStructure.Execute(r, tag) //nolint:wrapcheck // newRenderer names the file
}

// boundedMacro is a macro that knows how deep it is called.
type boundedMacro struct {
	*controls.MacroControlStructure
}

// Execute implements exec.ControlStructure: it defines the macro.
func (m boundedMacro) Execute(r *exec.Renderer, tag *nodes.ControlStructureBlock) error {
	if err := m.MacroControlStructure.Execute(r, tag); err != nil {
		return err //nolint:wrapcheck // newRenderer names the file
	}
	v, _ := r.Environment.Context.Get(m.Name)
	call, ok := v.(exec.Macro)
	if !ok {
		return fmt.Errorf("macro %s is not defined", m.Name)
	}
	e := effortOf(r.Environment.Context)
	r.Environment.Context.Set(m.Name, exec.Macro(func(args *exec.VarArgs) *exec.Value {
		if err := e.take(1); err != nil {
			return exec.AsValue(err)
		}
		if e.macros >= maxMacros {
			return exec.AsValue(errMacros)
		}
		e.macros++
		defer func() { e.macros-- }()
		return call(args)
	}))
	return nil
}

// boundedGlobals are the engine's functions, of which range counts.
func boundedGlobals() *exec.Context {
	return exec.EmptyContext().Update(builtins.GlobalFunctions).Update(exec.NewContext(map[string]any{"range": boundedRange}))
}

// boundedRange is Jinja's range([start, ]stop[, step]). The engine's own leaves a
// goroutine behind wherever a loop is left early.
func boundedRange(ev *exec.Evaluator, args *exec.VarArgs) ([]int, error) {
	var at, stop int
	step := 1
	numbers := make([]int, 0, 3)
	for _, a := range args.Args {
		if !a.IsInteger() {
			return nil, fmt.Errorf("range: %s is not an integer", a.String())
		}
		numbers = append(numbers, a.Integer())
	}
	switch len(numbers) {
	case 1:
		stop = numbers[0]
	case 2:
		at, stop = numbers[0], numbers[1]
	case 3:
		at, stop, step = numbers[0], numbers[1], numbers[2]
	default:
		return nil, errors.New("range: want range([start, ]stop[, step])")
	}
	if step == 0 {
		return nil, errors.New("range: a step of 0")
	}
	e := effortOf(ev.Environment.Context)
	var all []int
	for ; (step > 0 && at < stop) || (step < 0 && at > stop); at += step {
		if err := e.take(1); err != nil {
			return nil, err
		}
		all = append(all, at)
	}
	return all, nil
}
