package subprocess

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

// Call is a request as the child's handler gets it. Both slices are read-only and valid only until
// Handle returns.
type Call struct {
	// Meta is the request's Meta.
	Meta []byte
	// Pixels are the request's Pixels, one after another. In a child they are in memory that is
	// shared with the parent and mapped read-only: writing to them is a fault. The address of the
	// first byte is a multiple of 8.
	Pixels []byte
	// Deadline is the time at which the child is killed if it has not answered. A handler that can
	// stop its work should do so shortly before. Zero: no deadline.
	Deadline time.Time
}

// Handler handles the requests of a kind. A child has one handler, an Inline one for each slot. The
// handler is built and called on one goroutine that is locked to its thread, because CUDA keeps
// memory for each calling thread. If the handler is an io.Closer, an Inline closes it on that
// goroutine when it ends or replaces the handler; a child ends without closing it.
type Handler interface {
	// Handle returns the answer to a call, at most MaxAnswer bytes. An error applies to the request
	// only, and the child continues, unless the error is [Fatal]. [Classed] gives an error a class
	// by which callers distinguish it. A panic ends the child.
	Handle(c Call) ([]byte, error)
}

// Kind is a kind of child process.
type Kind struct {
	// Name is the argument after "child".
	Name string
	// New builds the handler from Config.Init. It may load models.
	New func(init []byte) (Handler, error)
}

// Main must be called at the beginning of main with os.Args[1:]. If the arguments start a child
// process ("child <kind>"), Main serves requests until the parent is gone, and returns the exit
// code and true; main must then exit with that code. The same applies to the arguments of
// KeepCommand and ConfineCommand. For other arguments Main returns false at once.
func Main(args []string, kinds ...Kind) (code int, child bool) {
	if len(args) > 3 && args[0] == "child" && args[1] == keepKind {
		return keep(args[2:]), true
	}
	if len(args) > 3 && args[0] == "child" && args[1] == confineKind {
		return confine(args[2:]), true
	}
	if len(args) != 2 || args[0] != "child" {
		return 0, false
	}
	for _, k := range kinds {
		if k.Name != args[1] {
			continue
		}
		if err := serveInherited(k); errors.Is(err, errSpoilt) {
			return 3, true // the parent has been told why
		} else if err != nil {
			fmt.Fprintf(os.Stderr, "child process %s: %v\n", k.Name, err)
			return 1, true
		}
		return 0, true
	}
	fmt.Fprintf(os.Stderr, "child process: this binary has no kind of child process named %q\n", args[1])
	return 2, true
}

// view maps the shared memory at a capacity and returns its first length bytes.
type view func(capacity, length int) ([]byte, error)

// serve answers frames until the connection ends. Everything that is wrong with
// a frame ends the child: parent and child are the same binary, so a malformed
// frame means that one of them is broken.
func serve(conn io.ReadWriter, pixels view, kind Kind) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var h Handler
	for {
		f, err := readFrame(conn, maxBody)
		if errors.Is(err, io.EOF) && !errors.Is(err, errFrame) {
			return nil
		}
		if err != nil {
			return err
		}
		var answer []byte
		switch {
		case f.Op == opInit && h == nil:
			h, err = kind.New(f.body)
		case f.Op == opPing:
		case f.Op == opDo && h != nil:
			answer, err = handle(h, f, pixels)
		default:
			return fmt.Errorf("%w: operation %q out of order", errFrame, f.Op)
		}
		out := header{Op: opOK, Seq: f.Seq}
		if err == nil && len(answer) > MaxAnswer {
			err = errTooLong(len(answer))
		}
		fatal := false
		if err != nil {
			var e *Error
			e, fatal = crossing(err)
			out.Op, out.Message, out.Class, answer = opError, e.Message, e.Class, nil
		}
		if fatal {
			out.Op = opFatal
		}
		if err := writeFrame(conn, out, answer, MaxAnswer); err != nil {
			return fmt.Errorf("answering: %w", err)
		}
		if fatal {
			return errSpoilt
		}
	}
}

func handle(h Handler, f frame, pixels view) ([]byte, error) {
	var deadline time.Time
	if f.BudgetMS > 0 {
		deadline = time.Now().Add(time.Duration(f.BudgetMS) * time.Millisecond)
	}
	px, err := pixels(f.Capacity, f.Length)
	if err != nil {
		return nil, err
	}
	return h.Handle(Call{Meta: f.body, Pixels: px, Deadline: deadline})
}
