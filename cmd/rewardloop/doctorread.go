package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

// wants reports whether a reward can only read with the engine.
func (x *exam) wants(engine string) bool {
	return slices.ContainsFunc(askedReaders(x.cfg), func(o ocr.ReaderOptions) bool { return o.Reader == engine })
}

func (x *exam) onnxRuntime(ctx context.Context) check {
	c := check{Name: "onnx runtime", Required: x.wants(ocr.ReaderPPOCR), State: stateOK}
	library, err := ort.Find(x.cfg.Pool.ONNX.Library)
	var rep ort.Report
	if err == nil {
		rep, err = ort.Probe(ctx, library)
		c.Detail = fmt.Sprintf("%s at %s (from %s), providers %s", rep.Version, library.Path, library.From, strings.Join(rep.Providers, ", "))
	}
	if err != nil {
		c.State, c.Detail = stateMissing, err.Error()
		c.Advice = "models, such as PP-OCR, need ONNX Runtime: in a clone run make ort; elsewhere set the path of the library in pool.onnx.library or " + ort.LibraryEnv
	}
	return c
}

// cudaProvider says whether cards can run models, and what the provider lacks; there is nothing to say
// where no ONNX Runtime has it.
func (x *exam) cudaProvider(ctx context.Context) (c check, found bool) {
	begun := time.Now()
	library, provider, err := ort.FindCUDA(x.cfg.Pool.ONNX.Library, x.cfg.Pool.Python.Interpreter)
	if err != nil {
		return check{}, false
	}
	c = check{Name: "cuda provider", State: stateOK, Detail: provider.String(), Advice: provider.Remedy()}
	rep, err := ort.Probe(ctx, library, provider.Folders...)
	c.MS = float64(time.Since(begun).Milliseconds())
	switch {
	case err != nil:
		c.State, c.Detail = stateMissing, c.Detail+"\n"+err.Error()
	case rep.CUDA != "":
		c.State, c.Detail = stateMissing, c.Detail+"\n"+rep.CUDA
	case c.Advice != "": // what it opens when it runs
		c.State = stateWarn
	}
	if c.State == stateMissing && c.Advice == "" {
		c.Advice = "models on a GPU do not run on this machine: check the driver with nvidia-smi"
	}
	return c, true
}

// modelFiles says which models are here, by their sizes; rewardloop models verify
// reads them.
func (x *exam) modelFiles() check {
	c := check{Name: "models", Required: x.wants(ocr.ReaderPPOCR), State: stateOK}
	store, err := node.Models(x.cfg.Pool)
	if err != nil {
		c.State, c.Detail, c.Advice = stateMissing, err.Error(), "set pool.models_dir or REWARDLOOP_MODELS to a folder"
		return c
	}
	var here []string
	for _, m := range models.Catalogue() {
		if store.Have(m) {
			here = append(here, m.Name)
		}
	}
	if len(here) == 0 {
		c.State, c.Detail = stateMissing, "none in "+store.Dir
		c.Advice = "the reward ocr is most accurate with PP-OCR: rewardloop models pull " + ocr.DefaultModel
		return c
	}
	c.Detail = strings.Join(here, ", ") + " in " + store.Dir
	return c
}

func (x *exam) tesseract(context.Context) check {
	c := check{Name: "tesseract", Required: x.wants(ocr.ReaderTesseract), State: stateOK}
	detail, err := tesseract.Available()
	if err != nil {
		c.State, c.Detail = stateMissing, err.Error()
		c.Advice = "only the reward ocr with reader: tesseract needs Tesseract; on Debian: apt-get install tesseract-ocr"
		return c
	}
	if c.Detail = detail; len(tesseract.Kinds()) == 0 {
		c.State = stateWarn
		c.Advice = "starting a program for every picture takes about 0.1 s: make build links Tesseract into the program if the headers of Tesseract are installed"
	}
	return c
}

// readings has every reader of the configuration, and without one what reader: auto
// comes to, read a picture: start of the children, shared memory, runtime, models or
// language data are then all known to work.
func (x *exam) readings(ctx context.Context) []check {
	asked := askedReaders(x.cfg)
	required := len(asked) > 0
	if !required {
		asked = []ocr.ReaderOptions{ocr.DefaultReader()}
	}
	var out []check
	for i, o := range asked {
		name := "reading"
		if len(asked) > 1 {
			name = fmt.Sprintf("reading %d", i+1)
		}
		begun := time.Now()
		c := x.reading(ctx, o)
		c.Name, c.Required, c.MS = name, required, float64(time.Since(begun).Milliseconds())
		out = append(out, c)
	}
	return out
}

func (x *exam) reading(ctx context.Context, o ocr.ReaderOptions) check {
	fail := func(err error) check {
		return check{
			State: stateMissing, Detail: err.Error(),
			Advice: "see above for what PP-OCR and Tesseract need (language data too, on Debian tesseract-ocr-eng and the like); children must be able to start",
		}
	}
	readers, err := node.NewReaders(x.cfg.Pool)
	if err != nil {
		return fail(err)
	}
	defer readers.Close() // its children are killed if they do not end by themselves
	choice, err := readers.Choose(o)
	if err != nil {
		return fail(err)
	}
	r, err := readers.Reader(o)
	if err != nil {
		return fail(err)
	}
	begun := time.Now()
	if w, ok := r.(rewards.Warmer); ok {
		if err := w.Warm(ctx); err != nil {
			return fail(err)
		}
	}
	started := time.Since(begun)
	px, err := ocr.Canary()
	if err != nil {
		return fail(err)
	}
	begun = time.Now()
	lines, err := r.ReadText(ctx, px, 0)
	if err != nil {
		return fail(err)
	}
	took, got := time.Since(begun), ocr.Text(lines)
	c := check{State: stateOK, Detail: fmt.Sprintf("%s: ready after %d ms, read %q in %d ms", choice.Detail, started.Milliseconds(), got, took.Milliseconds())}
	latin := true
	if choice.Reader == ocr.ReaderTesseract {
		latin = strings.Contains(x.cfg.Pool.Tesseract.Language, "eng") // other languages' data need not know its letters
		c.Detail += "; " + threadLimit(readers.Children()["tesseract"].PIDs)
	}
	if latin && strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(ocr.CanaryText, " ", "") {
		c.State = stateWarn
		c.Advice = fmt.Sprintf("the test picture contains %q, but the reader returned another text: check the reader's settings", ocr.CanaryText)
	} else if choice.Instead != nil {
		c.State = stateWarn
		c.Advice = "reader: auto selected Tesseract, which is less accurate on pictures than PP-OCR: " + choice.Instead.Error()
	}
	return c
}

// threadLimit says what the children really have in their environment: libgomp reads
// the variable before their first instruction, and without it each picture is spread
// over all cores at twice the CPU time.
func threadLimit(pids []int) string {
	const name = "OMP_THREAD_LIMIT"
	if len(pids) == 0 {
		return name + "=1 for each program that is started"
	}
	for _, pid := range pids {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			return name + " in children unknown: " + err.Error()
		}
		if !slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(kv []byte) bool { return string(kv) == name+"=1" }) {
			return fmt.Sprintf("%s is not 1 in child %d", name, pid)
		}
	}
	return name + "=1 in the child"
}
