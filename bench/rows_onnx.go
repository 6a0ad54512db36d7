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
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/hftok"
	"github.com/rewardloop/rewardloop/internal/infer"
	nodes "github.com/rewardloop/rewardloop/internal/node"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
)

// lines of the issue.
const (
	lineCLIP      = "CLIP-B/32-sized random model, images/s ≥ 1.5× transformers + torch CPU and ≥ 1.2× Python onnxruntime with PIL preprocessing"
	lineOverhead  = "own overhead ≤ 10 % of ORT time"
	lineTokenizer = "tokenizer ≥ 300k tokens/s per core"
)

// The load of the CLIP experiments: groups of 16 with one prompt each, as GRPO has them.
const (
	clipPictures = 64
	clipGroup    = 16
	clipSlots    = 32 // samples under way, two groups
	// clipRounds are how often the sides take turns in one repetition. A round is some 6 s a
	// side: the speed of a shared machine moves by a third within minutes.
	clipRounds = 3
)

// onnxModels are ONNX reward models beside what Python makes of the same ones.
func onnxModels() Suite {
	clip := func(name string, size int) Experiment {
		return Experiment{
			Name:  name,
			Setup: func(ctx context.Context, o Options) (Trial, error) { return newCLIPTrial(ctx, o, size) },
			Rows: []Row{
				{
					Name: "vs-transformers", Issue: lineCLIP, Value: ratio("ours_per_s", "transformers_per_s"), Target: atLeast(1.5),
					Beside: []string{"ours_per_s", "transformers_per_s", "transformers_cpu_ms", othersCores},
				},
				{
					Name: "vs-onnxruntime", Issue: lineCLIP, Value: ratio("ours_per_s", "onnxruntime_per_s"), Target: atLeast(1.2),
					Beside: []string{"onnxruntime_per_s", "onnxruntime_cpu_ms"},
				},
				{
					Name: "overhead", Issue: lineOverhead, Target: atMost(0.10), Beside: []string{"ours_cpu_ms", "bare_cpu_ms"},
					Value: func(r Readings) float64 { return lookup(r, "ours_cpu_ms")/lookup(r, "bare_cpu_ms") - 1 },
				},
			},
		}
	}
	tokens := Experiment{
		Name: "tokenizer", Setup: newTokenizerTrial,
	}
	for _, name := range tokenizers {
		tokens.Rows = append(tokens.Rows, Row{
			Name: name, Issue: lineTokenizer, Unit: "/s", Value: reading(name), Target: atLeast(300_000), Beside: []string{name + "_cold"},
		})
	}
	return Suite{
		Name: "onnx", Apart: true,
		About: "A random CLIP of ViT-B/32's size scores 64 raw pictures of noise, 16 to a prompt, on two cores: builtin://clipscore in its " +
			"child processes; transformers with torch as flow_grpo's PickScore calls it (two threads, sdpa, batches of 16 with a prompt " +
			"of some 25 tokens for each picture, Pillow); ONNX Runtime in Python (two threads, batches of 16, one prompt for all, Pillow). Overhead is the CPU time of all our processes over that of the bare graphs: ONNX Runtime's Run of " +
			"both towers on ready tensors, batches of 1, a thread a core. Tokens a second of CPU time on prompts of 8 to 40 words, words mostly " +
			"met before, and beside it all of them for the first time.",
		Experiments: []Experiment{clip("clip512", 512), clip("clip1024", 1024), tokens},
	}
}

// clipTrial has all sides loaded.
type clipTrial struct {
	scorers *nodes.Scorers
	scorer  rewards.Scorer
	bare    *bareCLIP
	python  map[string]*comparator
	decoder *media.Decoder
	samples []*rewards.Sample
	rounds  int
}

func newCLIPTrial(ctx context.Context, o Options, size int) (_ Trial, err error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(root, ".cache", "bench-onnx", "clip-b32")
	python := exporterPython(root)
	if err := command(ctx, python, filepath.Join(root, "bench", "onnx", "make.py"), folder); err != nil {
		return nil, err
	}
	t := &clipTrial{python: map[string]*comparator{}, rounds: clipRounds}
	if o.Quick {
		t.rounds = 1
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	for _, side := range []string{"transformers", "onnxruntime"} {
		args := []string{
			filepath.Join(root, "bench", "onnx", "compare.py"), folder, "--side", side, "--size", strconv.Itoa(size),
			"--pictures", strconv.Itoa(clipPictures), "--threads", strconv.Itoa(runtime.NumCPU()),
		}
		c, err := newComparator(ctx, python, args...)
		if err != nil {
			return nil, err
		}
		t.python[side] = c
	}
	cfg := config.Default()
	if t.scorers, err = nodes.NewScorers(cfg); err != nil {
		return nil, err
	}
	options, err := json.Marshal(map[string]any{"model": folder})
	if err != nil {
		return nil, err
	}
	if t.scorer, err = t.scorers.Registry.Build("clipscore", options); err != nil {
		return nil, err
	}
	if err := t.scorer.(rewards.Warmer).Warm(ctx); err != nil { //nolint:forcetypeassert // it is one
		return nil, err
	}
	if t.decoder, err = media.New(media.Config{}); err != nil {
		return nil, err
	}
	t.samples = noise(size)
	if t.bare, err = newBareCLIP(folder); err != nil {
		return nil, err
	}
	for range 4 { // the pool learns what a batch costs, and the arenas grow
		if _, err = t.ours(ctx, "warm"); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// noise are raw pictures, as the comparator draws them.
func noise(size int) []*rewards.Sample {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // noise
	out := make([]*rewards.Sample, clipPictures)
	for i := range out {
		data := make([]byte, size*size*3)
		for k := range data {
			data[k] = byte(rng.Uint32()) //nolint:gosec // truncation is meant
		}
		out[i] = &rewards.Sample{ID: strconv.Itoa(i), Media: []*rewards.Media{{
			Kind: rewards.Image, Encoding: rewards.Raw, Layout: rewards.HWC, DType: "U8", Shape: []int{size, size, 3}, Data: data,
		}}}
	}
	return out
}

// side is one measurement of a side.
type side struct {
	PerS  float64 `json:"per_s"`
	CPUMS float64 `json:"cpu_ms"`
}

// Measure implements Trial: the three sides and the bare graphs, several rounds in changing
// order, of which the mean counts.
func (t *clipTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{}
	names := []string{"ours", "transformers", "onnxruntime", "bare"}
	for turn := range t.rounds * len(names) {
		round := turn / len(names)
		name := names[(turn+round+rep)%len(names)]
		// Some 25 tokens for this tokenizer, as prompts have, and new ones each time.
		prompt := fmt.Sprintf("%s %d %d", strings.Repeat("a photo of a cat ", 4), rep, round)
		before, start := machineCPU(), time.Now()
		var s side
		var err error
		switch name {
		case "ours":
			s, err = t.ours(ctx, prompt)
		case "bare":
			s, err = t.bare.measure(ctx)
		default:
			s, err = t.python[name].measure(ctx, prompt)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		r[name+"_s"] += clipPictures / s.PerS
		r[name+"_cpu_ms"] += s.CPUMS / float64(t.rounds)
		if name != "bare" {
			busy := (machineCPU() - before).Seconds() - s.CPUMS/1000*clipPictures
			r[othersCores] = max(r[othersCores], busy/time.Since(start).Seconds())
		}
	}
	for _, name := range names {
		r[name+"_per_s"] = float64(t.rounds*clipPictures) / r[name+"_s"]
		delete(r, name+"_s")
	}
	return r, nil
}

// ours scores all pictures, each on a goroutine as workers do.
func (t *clipTrial) ours(ctx context.Context, prompt string) (side, error) {
	for i, s := range t.samples {
		s.Prompt = fmt.Sprintf("%s %d", prompt, i/clipGroup)
		s.Media[0].SetDecoder(t.decoder)
	}
	cpu, start := t.cpu(), time.Now()
	errs := make([]error, len(t.samples))
	slots := make(chan struct{}, clipSlots)
	var all sync.WaitGroup
	for i, s := range t.samples {
		slots <- struct{}{}
		all.Go(func() {
			_, errs[i] = t.scorer.Score(ctx, s)
			<-slots
		})
	}
	t.scorers.Readers.Devices.Flush() // as the loop does once all of a step have arrived
	all.Wait()
	took := time.Since(start)
	return side{clipPictures / took.Seconds(), (t.cpu() - cpu).Seconds() * 1000 / clipPictures}, errors.Join(errs...)
}

// cpu is what this process and its children have computed so far.
func (t *clipTrial) cpu() time.Duration {
	sum := cpuTime()
	for _, kind := range t.scorers.Children() {
		for _, pid := range kind.PIDs {
			sum += processCPU(pid)
		}
	}
	return sum
}

// Close implements Trial.
func (t *clipTrial) Close() error {
	var errs []error
	for _, c := range t.python {
		errs = append(errs, c.Close())
	}
	if c, ok := t.scorer.(rewards.Closer); ok {
		errs = append(errs, c.Close())
	}
	if t.bare != nil {
		errs = append(errs, t.bare.Close())
	}
	if t.scorers != nil {
		errs = append(errs, t.scorers.Close())
	}
	return errors.Join(errs...)
}

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
	cpu, start := cpuTime(), time.Now()
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
	return side{clipPictures / took.Seconds(), (cpuTime() - cpu).Seconds() * 1000 / clipPictures}, errors.Join(errs...)
}

func runBare(ctx context.Context, s *ort.Session, b infer.Batch) error {
	a, err := s.Run(ctx, b)
	if err == nil {
		a.Release()
	}
	return err
}

// tokenizers are those of the shared data.
var tokenizers = []string{"clip", "gpt2", "qwen2style", "smolvlmstyle", "bert", "unigram", "llama2style"} //nolint:gochecknoglobals // a table

// tokenizerTrial tokenises prompts with every tokenizer.
type tokenizerTrial struct {
	folder  string
	warm    map[string]*hftok.Tokenizer
	prompts []string
}

func newTokenizerTrial(context.Context, Options) (Trial, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	t := &tokenizerTrial{
		folder: cmp.Or(os.Getenv("REWARDLOOP_TOKENIZERS"), filepath.Join(root, "..", "shared", "data", "tokenizers")),
		warm:   map[string]*hftok.Tokenizer{},
	}
	if t.prompts, err = prompts(filepath.Join(t.folder, "..", "flow_grpo_ocr_test.txt")); err != nil {
		return nil, err
	}
	for _, name := range tokenizers {
		if t.warm[name], err = hftok.Load(filepath.Join(t.folder, name+".json")); err != nil {
			return nil, err
		}
		if _, _, err := t.run(t.warm[name]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func prompts(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("prompts to tokenise: %w", err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out, nil
}

// run tokenises all prompts on this goroutine.
func (t *tokenizerTrial) run(tok *hftok.Tokenizer) (tokens int, took time.Duration, err error) {
	start := time.Now()
	for _, p := range t.prompts {
		ids, err := tok.Encode(p, true)
		if err != nil {
			return 0, 0, err
		}
		tokens += len(ids)
	}
	return tokens, time.Since(start), nil
}

// Measure implements Trial.
func (t *tokenizerTrial) Measure(context.Context, int) (Readings, error) {
	r := Readings{}
	for _, name := range tokenizers {
		cold, err := hftok.Load(filepath.Join(t.folder, name+".json"))
		if err != nil {
			return nil, err
		}
		runtime.GC() // what loading left is not the run's
		for key, tok := range map[string]*hftok.Tokenizer{name: t.warm[name], name + "_cold": cold} {
			tokens, took, err := t.run(tok)
			if err != nil {
				return nil, err
			}
			r[key] = float64(tokens) / took.Seconds()
		}
	}
	return r, nil
}

// Close implements Trial.
func (t *tokenizerTrial) Close() error { return nil }
