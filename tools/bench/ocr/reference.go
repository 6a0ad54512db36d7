package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// line is a line of text that a reader found.
type line struct {
	text  string
	score float64
	quad  [4][2]float64
}

// rapid is a Python process with RapidOCR, which waits for orders. One goroutine at a
// time may give them.
type rapid struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
	version string
}

// page is what RapidOCR read of a picture.
type page struct {
	Boxes  [][4][2]float64 `json:"boxes"`
	Texts  []string        `json:"texts"`
	Scores []float64       `json:"scores"`
}

func (p page) lines() []line {
	out := make([]line, len(p.Texts))
	for i := range out {
		out[i] = line{text: p.Texts[i], score: p.Scores[i], quad: p.Boxes[i]}
	}
	return out
}

// answer is one of RapidOCR's: its fields are those of all orders.
type answer struct {
	Version string  `json:"version"`
	ONNX    string  `json:"onnxruntime"`
	Loaded  int     `json:"loaded"`
	CPU     float64 `json:"cpu"` // ms
	Pages   []page  `json:"pages"`
}

// startRapid starts RapidOCR with a number of threads; -1 is its default.
func (s settings) startRapid(ctx context.Context, threads int) (*rapid, error) {
	args := []string{
		filepath.Join(s.root, "tools", "bench", "ocr", "reference.py"),
		"--det", s.det, "--rec", s.rec, "--threads", strconv.Itoa(threads),
	}
	r := &rapid{cmd: exec.CommandContext(ctx, s.python, args...)} //nolint:gosec // our own arguments
	r.cmd.Stderr = os.Stderr
	r.cmd.WaitDelay = 5 * time.Second
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = json.NewDecoder(bufio.NewReader(out))
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w; tools/bench/ocr/venv.sh makes it", s.python, err)
	}
	a, err := r.hear()
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	r.version = fmt.Sprintf("RapidOCR %s, ONNX Runtime %s", a.Version, a.ONNX)
	return r, nil
}

func (r *rapid) hear() (answer, error) {
	var a answer
	if err := r.out.Decode(&a); err != nil {
		return a, fmt.Errorf("reference.py: %w", err)
	}
	return a, nil
}

func (r *rapid) order(v any) (answer, error) {
	if err := json.NewEncoder(r.in).Encode(v); err != nil {
		return answer{}, fmt.Errorf("reference.py: %w", err)
	}
	return r.hear()
}

// load makes it decode pictures.
func (r *rapid) load(pictures []picture) error {
	paths := make([]string, len(pictures))
	for i, p := range pictures {
		paths[i] = p.path
	}
	a, err := r.order(map[string]any{"load": paths})
	if err == nil && a.Loaded != len(paths) {
		err = fmt.Errorf("reference.py: %d of %d pictures are loaded", a.Loaded, len(paths))
	}
	return err
}

// read makes it read what it has loaded.
func (r *rapid) read() (answer, error) { return r.order(map[string]any{"read": true}) }

func (r *rapid) close() error {
	_ = r.in.Close() // it ends when there are no more orders
	return r.cmd.Wait()
}

// team is one or several RapidOCRs that share pictures.
type team []*rapid

// read lets them read the pictures, picture i by member i mod their number, and
// returns the time that took and what they read, in the pictures' order.
func (t team) read(pictures []picture) (took time.Duration, cpu time.Duration, pages []page, err error) {
	shares := make([][]picture, len(t))
	for i, p := range pictures {
		shares[i%len(t)] = append(shares[i%len(t)], p)
	}
	answers, errs := make([]answer, len(t)), make([]error, len(t))
	together := func(do func(i int) error) error {
		var wg sync.WaitGroup
		for i := range t {
			wg.Go(func() { errs[i] = do(i) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	if err := together(func(i int) error { return t[i].load(shares[i]) }); err != nil {
		return 0, 0, nil, err
	}
	begin := time.Now()
	err = together(func(i int) (err error) {
		answers[i], err = t[i].read()
		return err
	})
	took = time.Since(begin)
	if err != nil {
		return 0, 0, nil, err
	}
	pages = make([]page, len(pictures))
	for i := range pages {
		a := answers[i%len(t)]
		if i/len(t) >= len(a.Pages) {
			return 0, 0, nil, fmt.Errorf("reference.py: %d pages of %d pictures", len(a.Pages), len(shares[i%len(t)]))
		}
		pages[i] = a.Pages[i/len(t)]
	}
	for _, a := range answers {
		cpu += time.Duration(a.CPU * float64(time.Millisecond))
	}
	return took, cpu, pages, nil
}
