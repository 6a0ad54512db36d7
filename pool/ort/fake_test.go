//go:build cgo

package ort

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// FakeCard is a folder that stands for a card: its path is the card's uuid. A child that sees it
// runs models on the CPU, says that they run on a card, does what the folder says, and writes down
// what it did. Only the children of this test binary know of it.
type FakeCard string

// NewFakeCard makes a card that works.
func NewFakeCard(tb testing.TB) FakeCard {
	tb.Helper()
	return FakeCard(tb.TempDir())
}

// Next has the card fail at the next times that a child does something, in this order: the requests
// "start", "canary", "load" and "run"; "placement"; and "session open" and "session run", which know
// text and slow only:
//
//	die, hang, garbage, frame   end, hang, answer garbage, answer with what is no frame
//	slow:<duration>             take longer
//	flap:<duration>             end after it
//	text:<words>                fail as ONNX Runtime does that says these words
//	ok                          nothing
func (c FakeCard) Next(tb testing.TB, op string, faults ...string) {
	tb.Helper()
	for i, fault := range faults {
		c.set(tb, op, fmt.Sprintf("%04d", i), fault)
	}
}

// Always has the card fail at every call of an operation that Next says nothing of.
func (c FakeCard) Always(tb testing.TB, op, fault string) {
	tb.Helper()
	c.set(tb, op, "always", fault)
}

// Cure ends what Always began.
func (c FakeCard) Cure(tb testing.TB, op string) {
	tb.Helper()
	require.NoError(tb, os.Remove(filepath.Join(string(c), op, "always")))
}

func (c FakeCard) set(tb testing.TB, op, name, fault string) {
	tb.Helper()
	require.NoError(tb, os.MkdirAll(filepath.Join(string(c), op), 0o700))
	require.NoError(tb, os.WriteFile(filepath.Join(string(c), op, name+".new"), []byte(fault), 0o600))
	require.NoError(tb, os.Rename(filepath.Join(string(c), op, name+".new"), filepath.Join(string(c), op, name)))
}

// Log is what its children did, a line for each: the process, and what.
func (c FakeCard) Log(tb testing.TB) [][]string {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(string(c), "log"))
	require.NoError(tb, err)
	var out [][]string
	for line := range strings.Lines(string(data)) {
		out = append(out, strings.Fields(line))
	}
	return out
}

// Count counts the lines of the log that begin with what, behind the process.
func (c FakeCard) Count(tb testing.TB, what ...string) int {
	tb.Helper()
	n := 0
	for _, line := range c.Log(tb) {
		if len(line) > len(what) && strings.Join(line[1:1+len(what)], " ") == strings.Join(what, " ") {
			n++
		}
	}
	return n
}

func (c FakeCard) note(words ...any) {
	f, err := os.OpenFile(filepath.Join(string(c), "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, append([]any{os.Getpid()}, words...)...)
}

// take is the fault of the next call of an operation; "": none.
func (c FakeCard) take(op string) string {
	dir := filepath.Join(string(c), op)
	all, err := os.ReadDir(dir) // sorted
	if err != nil {
		return ""
	}
	for _, e := range all {
		path := filepath.Join(dir, e.Name())
		fault, err := os.ReadFile(path)
		if err != nil || strings.HasSuffix(path, ".new") || e.Name() != "always" && os.Remove(path) != nil {
			continue
		}
		return string(fault)
	}
	return ""
}

// nap sleeps for a written duration.
func nap(d string) {
	pause, err := time.ParseDuration(d)
	if err != nil {
		panic(err)
	}
	time.Sleep(pause)
}

// errGarbage stands for a good answer.
var errGarbage = errors.New("garbage")

// fail does what the card says.
func (c FakeCard) fail(op string) error {
	c.note(op)
	fault, arg, _ := strings.Cut(c.take(op), ":")
	switch fault {
	case "die":
		fmt.Fprintln(os.Stderr, "the card fell off the bus")
		os.Exit(9)
	case "flap":
		go func() {
			nap(arg)
			fmt.Fprintln(os.Stderr, "the card fell off the bus")
			os.Exit(9)
		}()
	case "hang":
		for {
			time.Sleep(time.Hour)
		}
	case "slow":
		nap(arg)
	case "text":
		return errors.New(arg)
	case "garbage":
		return errGarbage
	case "frame":
		_, _ = syscall.Write(3, []byte(strings.Repeat("no frame ", 100)))
		time.Sleep(time.Hour)
	}
	return nil
}

// fakeHandler is the handler of a child that has a fake card.
type fakeHandler struct {
	*handler
	card FakeCard
}

// Handle fails where the card says so, else it is the handler's.
func (h *fakeHandler) Handle(c subprocess.Call) ([]byte, error) {
	var r request
	if err := json.Unmarshal(c.Meta, &r); err != nil {
		return nil, err
	}
	switch err := h.card.fail(r.Op); {
	case errors.Is(err, errGarbage):
		return []byte("this is no answer"), nil
	case err != nil && r.Op == opLoad:
		return nil, outgoing(failedLoad(r.Model, err))
	case err != nil:
		return nil, outgoing(failedRun(err))
	}
	return h.handler.Handle(c)
}

// FakeKinds are the children of this package's tests.
func FakeKinds() []subprocess.Kind {
	return []subprocess.Kind{{Name: kindName, New: func(init []byte) (subprocess.Handler, error) {
		card := FakeCard(os.Getenv(visibleEnv))
		if !filepath.IsAbs(string(card)) {
			return newHandler(init)
		}
		card.note("loader", os.Getenv(loaderEnv))
		if err := card.fail("start"); err != nil {
			return nil, worded(fmt.Errorf("%w: %w", infer.ErrUnavailable, err))
		}
		with := hooks{
			provide: func() error { return nil },
			onCard:  func() error { return card.placed() },
			seen: func(what string, shape []int64) error {
				what = "session " + what
				card.note(what, thread(), syscall.Gettid(), shape)
				switch fault, arg, _ := strings.Cut(card.take(what), ":"); fault {
				case "text":
					return errors.New(arg)
				case "slow":
					nap(arg)
				}
				return nil
			},
		}
		h, err := hooked(init, with)
		if err != nil {
			return nil, err
		}
		return &fakeHandler{h.(*handler), card}, nil
	}}}
}

// placed fails where the card says so.
func (c FakeCard) placed() error {
	if fault := c.take("placement"); fault != "" {
		return fmt.Errorf("%w: %s", infer.ErrModel, fault)
	}
	return nil
}

// Tune changes what the children of an opener are started with.
func Tune(o *Opener, f func(*subprocess.Config)) { o.tune = f }

// OpenOnCPUAsCard opens a session of a card that runs on the CPU, and looks at which nodes the card
// has.
func OpenOnCPUAsCard(lib Library, m infer.Model) (*Session, error) {
	lib.CUDA = true
	return OpenSession(SessionConfig{Library: lib, Model: m, hooks: hooks{provide: func() error { return nil }}})
}
