//go:build !cgo || !tesseract

package tesseract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// Kinds returns nil: without the build tag, no child process of this binary reads text.
func Kinds() []subprocess.Kind { return nil }

// Bounds of what the program may say.
const (
	maxOutput = 8 << 20
	maxErrors = 4 << 10
)

// errMissing names the remedies.
var errMissing = errors.New("tesseract is not available: this binary was built without it and there is no tesseract program on PATH. " +
	"Either install the program (Debian: tesseract-ocr), or install tesseract-ocr libtesseract-dev libleptonica-dev and build with cgo and -tags tesseract, " +
	"or use another text reader")

// program is the backend that starts the tesseract program for every look.
type program struct {
	cfg  Config
	path string
	gate *fair.Gate // an executor per slot

	mu     sync.Mutex
	count  subprocess.Stats
	closed bool
}

func newBackend(cfg Config) (backend, error) {
	path, err := exec.LookPath("tesseract")
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", errMissing, err)
	}
	return &program{cfg: cfg, path: path, gate: fair.NewGate(cfg.Slots)}, nil
}

// start reads the canary once: every look is a process of its own.
func (p *program) start(ctx context.Context) error {
	px, err := ocr.Canary()
	if err != nil {
		return err
	}
	s, err := p.take(ctx)
	if err == nil {
		defer s.release()
		var lines []ocr.Line
		if lines, err = s.read(ctx, px.RGB, px.Width, px.Height); err == nil {
			err = checkCanary(p.cfg.Language, lines)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: canary: %w", subprocess.ErrUnavailable, err)
	}
	return nil
}

func (p *program) take(ctx context.Context) (place, error) {
	if p.note(func(*subprocess.Stats) {}) {
		return nil, fmt.Errorf("%w: closed", subprocess.ErrUnavailable)
	}
	turn, err := p.gate.Acquire(ctx, fair.Tenant(rewards.TenantOf(ctx)))
	if err != nil {
		return nil, p.ended(ctx, fmt.Errorf("all places of pool.tesseract.slots were in use: %w", subprocess.ErrWaiting))
	}
	return programPlace{p, turn}, nil
}

// programPlace is the right to run the program.
type programPlace struct {
	p    *program
	turn fair.Turn
}

func (s programPlace) release() { s.turn.Release() }

func (s programPlace) read(ctx context.Context, rgb []byte, width, height int) ([]ocr.Line, error) {
	p := s.p
	p.note(func(s *subprocess.Stats) { s.Busy++; s.Requests++ })
	defer p.note(func(s *subprocess.Stats) { s.Busy-- })
	return twice(p.cfg, greymap(nil, rgb, width, height), width, height, func(pgm []byte) ([]ocr.Line, error) {
		return p.again(ctx, pgm)
	})
}

// again looks, and once more where the program died. If it dies again, the canary tells
// whose fault that is.
func (p *program) again(ctx context.Context, pgm []byte) ([]ocr.Line, error) {
	lines, err := p.look(ctx, pgm)
	if errors.Is(err, subprocess.ErrCrashed) {
		lines, err = p.look(ctx, pgm)
	}
	if !errors.Is(err, subprocess.ErrCrashed) || errors.Is(err, subprocess.ErrHost) {
		return lines, err
	}
	px, cerr := ocr.Canary()
	if cerr == nil {
		_, cerr = p.look(ctx, greymap(nil, px.RGB, px.Width, px.Height))
	}
	if cerr != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w; %w: canary: %w", err, subprocess.ErrHost, cerr)
	}
	return nil, err
}

// look runs the program once: a PGM on its standard input, a table on its output.
func (p *program) look(ctx context.Context, pgm []byte) ([]ocr.Line, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	args := []string{"stdin", "stdout", "-l", p.cfg.Language}
	for _, v := range p.cfg.variables() {
		if v.name == "tessedit_pageseg_mode" {
			args = append(args, "--psm", v.value) // the program sets its own otherwise
		} else {
			args = append(args, "-c", v.name+"="+v.value)
		}
	}
	args = append(args, "-c", "tessedit_create_tsv=1")
	cmd := exec.CommandContext(ctx, p.path, args...) //nolint:gosec // no shell; arguments come from the configuration and are checked
	cmd.Env = environment()
	cmd.Stdin = bytes.NewReader(pgm)
	out, errs := &bounded{max: maxOutput}, &bounded{max: maxErrors, silent: true}
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, p.ended(ctx, errors.New("the program was killed"))
	case out.over:
		return nil, fmt.Errorf("%w: %w", subprocess.ErrHandler, errTooMuch)
	case errors.As(err, &exit) && !exit.Exited():
		p.note(func(s *subprocess.Stats) { s.Crashes++ })
		err = fmt.Errorf("%w: %w: %s", subprocess.ErrCrashed, err, errs)
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL { // not ours: ctx goes on
			err = fmt.Errorf("%w; %w: the program was killed by another process", err, subprocess.ErrHost)
		}
		return nil, err
	case err != nil && exit == nil && cmd.Process == nil: // it did not start
		err = fmt.Errorf("%w: %w", subprocess.ErrUnavailable, err)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: %w", subprocess.ErrHandler, err) // it will not start either next time
		}
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w: %s", subprocess.ErrHandler, err, errs)
	}
	return parseTSV(out.String())
}

// ended turns the end of the context into an error.
func (p *program) ended(ctx context.Context, when error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		p.note(func(s *subprocess.Stats) { s.Timeouts++ })
		return fmt.Errorf("%w: %w: %w", subprocess.ErrTimeout, when, ctx.Err())
	}
	return fmt.Errorf("%w: %w", when, ctx.Err())
}

// note changes the counters and reports whether the reader is closed.
func (p *program) note(f func(*subprocess.Stats)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.count)
	return p.closed
}

func (p *program) stop(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for range p.cfg.Slots {
		if _, err := p.gate.Acquire(ctx, fair.Tenant{}); err != nil { // never released
			return fmt.Errorf("%w: a program still runs: %w", subprocess.ErrTimeout, err)
		}
	}
	return nil
}

func (p *program) stats() subprocess.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.count
	s.Slots, s.Alive = p.cfg.Slots, p.cfg.Slots
	return s
}

// parseTSV makes lines of the program's table of words: a line has the words'
// texts joined by spaces, the hull of their boxes and the mean of their
// confidences by length.
func parseTSV(table string) ([]ocr.Line, error) {
	var lines []ocr.Line
	last, words := "", []word(nil)
	flush := func() {
		if l, ok := joinWords(words); ok {
			lines = append(lines, l)
		}
		words = words[:0]
	}
	for row := range strings.Lines(table) {
		f := strings.Split(strings.TrimRight(row, "\r\n"), "\t")
		if len(f) != 12 || f[0] != "5" { // level 5 is a word
			continue
		}
		w, err := parseWord(f)
		if err != nil {
			return nil, fmt.Errorf("%w: unexpected row %.100q: %w", subprocess.ErrHandler, row, err)
		}
		if key := strings.Join(f[1:5], " "); key != last { // page, block, paragraph, line
			flush()
			last = key
		}
		words = append(words, w)
	}
	flush()
	return lines, nil
}

type word struct {
	text string
	conf float64
	box  [4]int
}

func parseWord(f []string) (w word, err error) {
	var n [4]int
	for i := range n {
		if n[i], err = strconv.Atoi(f[6+i]); err != nil {
			return w, err
		}
	}
	w.conf, err = strconv.ParseFloat(f[10], 64)
	w.text, w.box = f[11], [4]int{n[0], n[1], n[0] + n[2], n[1] + n[3]}
	return w, err
}

func joinWords(words []word) (ocr.Line, bool) {
	if len(words) == 0 {
		return ocr.Line{}, false
	}
	texts, box := make([]string, len(words)), words[0].box
	var sum, n float64
	for i, w := range words {
		texts[i] = w.text
		box[0], box[1] = min(box[0], w.box[0]), min(box[1], w.box[1])
		box[2], box[3] = max(box[2], w.box[2]), max(box[3], w.box[3])
		k := float64(len([]rune(w.text)))
		sum, n = sum+w.conf*k, n+k
	}
	return line(strings.Join(texts, " "), sum/max(n, 1), box)
}

// bounded is a writer that keeps the first max bytes. Beyond them it fails,
// which ends the program by closing its pipe, or is silent. It does not embed the
// buffer: io.Copy would find Buffer.ReadFrom and go round the bound.
type bounded struct {
	buf    bytes.Buffer
	max    int
	silent bool
	over   bool
}

var errTooMuch = errors.New("the program's output is too long")

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	room := b.max - b.buf.Len()
	if len(p) <= room {
		return b.buf.Write(p)
	}
	b.over = true
	if !b.silent {
		return 0, errTooMuch
	}
	b.buf.Write(p[:room])
	return len(p), nil
}

// String returns what was kept.
func (b *bounded) String() string { return b.buf.String() }

// Available returns a description of the Tesseract that this build uses, or an error that describes
// what is missing.
func Available() (detail string, err error) {
	path, err := exec.LookPath("tesseract")
	if err != nil {
		return "", fmt.Errorf("%w (%w)", errMissing, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return fmt.Sprintf("%s at %s, started for every picture; build with -tags tesseract to link it in", first, path), nil
}
