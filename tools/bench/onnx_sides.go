package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/tools/bench/cputime"
)

// comparator is a Python process that measures on demand.
type comparator struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	stderr bytes.Buffer
}

func newComparator(ctx context.Context, python string, args ...string) (*comparator, error) {
	c := &comparator{cmd: exec.CommandContext(ctx, python, args...)} //nolint:gosec // the project's own scripts
	c.cmd.Stderr = &c.stderr
	// The Makefile's bound is for Tesseract; torch's threads are OpenMP's.
	c.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "OMP_THREAD_LIMIT=") })
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if !c.out.Scan() {
		return nil, errors.Join(fmt.Errorf("%s: %s", strings.Join(args, " "), strings.TrimSpace(c.stderr.String())), c.Close())
	}
	return c, nil
}

func (c *comparator) measure(_ context.Context, prompt string) (s side, err error) {
	if _, err := fmt.Fprintln(c.in, prompt); err != nil {
		return s, err
	}
	if !c.out.Scan() {
		return s, fmt.Errorf("it ended: %s", strings.TrimSpace(c.stderr.String()))
	}
	return s, json.Unmarshal(c.out.Bytes(), &s)
}

// Close ends the process, which reads its input to the end.
func (c *comparator) Close() error {
	_ = c.in.Close() // it may be gone
	return c.cmd.Wait()
}

// exporterPython is the environment of the exporters (make golden-vlm makes it), or
// what REWARDLOOP_EXPORT_PYTHON names.
func exporterPython(root string) string {
	return cmp.Or(os.Getenv("REWARDLOOP_EXPORT_PYTHON"), filepath.Join(root, ".cache", "golden", "bin", "python"))
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// bareCLIP is ONNX Runtime alone: both graphs in this process, fed with ready tensors.
type bareCLIP struct {
	vision, text *ort.Session
	pixels, ids  infer.Batch
}

func newBareCLIP(folder string) (*bareCLIP, error) {
	pixels := infer.Floats("pixel_values", make([]float32, 3*224*224), 1, 3, 224, 224)
	for i := range pixels.F32 {
		pixels.F32[i] = float32(i%255)/127 - 1
	}
	ids := infer.Tensor{Name: "input_ids", DType: infer.I64, Shape: []int{1, 77}, I64: make([]int64, 77)}
	b := &bareCLIP{
		pixels: infer.Batch{Names: []string{"bare"}, Inputs: []infer.Tensor{pixels}},
		ids:    infer.Batch{Names: []string{"bare"}, Inputs: []infer.Tensor{ids}},
	}
	library, err := ort.Find("")
	if err != nil {
		return nil, err
	}
	for _, n := range []struct {
		session **ort.Session
		file    string
	}{{&b.vision, "vision_model.onnx"}, {&b.text, "text_model.onnx"}} {
		*n.session, err = ort.OpenSession(ort.SessionConfig{
			Library: library, Model: infer.Model{Name: n.file, Path: filepath.Join(folder, n.file), Device: "cpu"},
		})
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

// Close ends the sessions.
func (b *bareCLIP) Close() error {
	var errs []error
	for _, s := range []*ort.Session{b.vision, b.text} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// measure runs the pictures' graph clipPictures times and the text's once a group, on as
// many threads as there are cores.
func (b *bareCLIP) measure(ctx context.Context) (side, error) {
	cpu, start := cputime.Own(), time.Now()
	errs := make([]error, runtime.NumCPU())
	var all sync.WaitGroup
	for lane := range errs {
		all.Go(func() {
			for i := lane; i < clipPictures && errs[lane] == nil; i += len(errs) {
				errs[lane] = runBare(ctx, b.vision, b.pixels)
				if i%clipGroup == 0 && errs[lane] == nil {
					errs[lane] = runBare(ctx, b.text, b.ids)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	return side{PerS: clipPictures / took.Seconds(), CPUMS: (cputime.Own() - cpu).Seconds() * 1000 / clipPictures}, errors.Join(errs...)
}

func runBare(ctx context.Context, s *ort.Session, b infer.Batch) error {
	a, err := s.Run(ctx, b)
	if err == nil {
		a.Release()
	}
	return err
}
