package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
	"github.com/rewardloop/rewardloop/testkit/liveness"
	"github.com/rewardloop/rewardloop/wire"
)

// full says whether the storms have the sizes of the promise (make test-storm) or
// a tenth of them.
func full() bool { return os.Getenv("REWARDLOOP_STORM") == "full" }

// missing skips the test for what this machine does not have, or fails it where
// everything must be there.
func missing(t *testing.T, what error) {
	t.Helper()
	if os.Getenv("REQUIRE_ORT") == "1" {
		require.NoError(t, what)
	}
	t.Skipf("SKIPPED: %v", what)
}

// Crops are read by Tesseract and go through a tiny model of ONNX Runtime, over a
// real websocket, while a child of one of the two is killed, crashed, aborted or
// stopped every second: each gets one result, computed from its own pixels.
func TestCropsGetOneResultEachWhileChildrenOfTesseractAndONNXRuntimeDie(t *testing.T) {
	t.Parallel()
	if testing.Short() && os.Getenv("REQUIRE_ORT") != "1" {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	if _, err := tesseract.Available(); err != nil {
		t.Skipf("SKIPPED: no Tesseract: %v", err)
	}
	if len(tesseract.Kinds()) == 0 {
		t.Skip("SKIPPED: Tesseract is not compiled in: there are no lasting children to kill")
	}
	library, err := ort.Find("")
	if err != nil {
		missing(t, err)
	}
	samples := 500
	if full() {
		samples = 5000
	}
	tiny, children := tinyModel(t, library)
	n, addr := startWith(t, []rewards.Spec{tiny},
		"+reward.reward_functions.ocr.path=builtin://ocr", "+reward.reward_functions.ocr.required=true", "+reward.reward_functions.ocr.reader=tesseract",
		"+reward.reward_functions.tiny.path=builtin://tiny", "+reward.reward_functions.tiny.required=true",
		"reward.num_workers=2", "reward.concurrency=4", "++pool.tesseract.slots=2", "++pool.tesseract.timeout=3s")
	s := &storm{addr: addr, protos: crops(t, 40), pids: func() []int {
		return append(n.Children()["tesseract"].PIDs, children()...)
	}}
	s.run(t, samples)
}

// The same with PP-OCR, whose pictures are with a child for longer.
func TestPicturesGetOneResultEachWhileChildrenOfPPOCRDie(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	if err := ppocrHere(t); err != nil {
		missing(t, err)
	}
	samples := 40
	if full() {
		samples = 300
	}
	n, addr := start(t,
		"+reward.reward_functions.ocr.path=builtin://ocr", "+reward.reward_functions.ocr.required=true", "+reward.reward_functions.ocr.reader=ppocr",
		"reward.num_workers=2", "reward.concurrency=4", "++pool.onnx.slots=2", "++pool.onnx.timeout=3s")
	s := &storm{addr: addr, protos: rawPictures(t, 8), pids: func() []int { return n.Children()["onnx cpu"].PIDs }}
	s.run(t, samples)
}

func ppocrHere(t *testing.T) error {
	t.Helper()
	if _, err := ort.Find(""); err != nil {
		return err
	}
	store, err := models.FromEnvironment(os.LookupEnv)
	require.NoError(t, err)
	m, err := models.Find(ocr.DefaultModel)
	require.NoError(t, err)
	if !store.Have(m) {
		return fmt.Errorf("model %s is not in %s", m.Name, store.Dir)
	}
	return nil
}

// storm sends samples made after a few prototypes while children die.
type storm struct {
	addr   string
	protos []*rewards.Sample
	pids   func() []int // of the children, now
	sent   atomic.Uint32
	// answered counts samples, whatever became of them.
	answered atomic.Uint32
}

func (s *storm) run(t *testing.T, samples int) {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + s.addr, Run: "storm"})
	require.NoError(t, err)
	want := make([]string, len(s.protos)) // what the undisturbed results say
	begun := time.Now()
	for i := range s.protos {
		res := s.wait(t, s.submit(t, c, i, "undisturbed-"+strconv.Itoa(i)))
		require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
		want[i] = said(t, res)
		require.NotContains(t, want[:i], want[i], "prototypes that cannot be told apart show no swap")
	}
	undisturbed := time.Since(begun) / time.Duration(len(s.protos)) // of one after the other
	over, done := make(chan struct{}), make(chan map[string]int)
	go func() { done <- s.rage(over) }()
	futures := make([]*client.Future, samples)
	var all sync.WaitGroup
	for i := range futures {
		f := s.submit(t, c, i%len(s.protos), strconv.Itoa(i))
		futures[i] = f
		all.Go(func() {
			<-f.Done()
			s.answered.Add(1)
		})
	}
	scored, retried := 0, 0
	for i, f := range futures {
		res := s.wait(t, f)
		if res.Outcome != rewards.Scored { // hit on every try: failed by name
			require.NotEmpty(t, res.Errors)
			require.Contains(t, []rewards.Class{rewards.Crashed, rewards.Timeout}, res.Errors[0].Class, res.Errors)
			continue
		}
		scored++
		if res.Attempts > 1 {
			retried++
		}
		require.Equal(t, want[i%len(s.protos)], said(t, res), "sample %d has another one's result", i)
	}
	all.Wait()
	close(over)
	deaths := <-done
	t.Logf("%d of %d scored (%d by another worker) under %v", scored, samples, retried, deaths)
	require.NotEmpty(t, deaths)
	require.Greater(t, scored, samples*9/10)
	require.NoError(t, c.Close())

	fresh, err := client.Dial(t.Context(), client.Config{URL: "ws://" + s.addr, Run: "fresh"})
	require.NoError(t, err)
	n := min(liveness.Samples, samples/2)
	results := liveness.Check(t, fresh, n, time.Duration(n)*undisturbed, liveness.Death, func(i int) *rewards.Sample {
		return s.sample(i%len(s.protos), strconv.Itoa(i))
	})
	for i, res := range results {
		require.Equal(t, want[i%len(s.protos)], said(t, res), "sample %d of the fresh client has another one's result", i)
	}
	require.NoError(t, fresh.Close())
}

func (s *storm) submit(t *testing.T, c *client.Client, proto int, id string) *client.Future {
	t.Helper()
	f, err := c.Submit(t.Context(), s.sample(proto, id), time.Hour)
	require.NoError(t, err)
	return f
}

func (s *storm) sample(proto int, id string) *rewards.Sample {
	sample := *s.protos[proto]
	sample.ID = id
	// Each has pixels of its own: those that have killed two children are in quarantine.
	m := *sample.Media[0]
	m.Data = slices.Clone(m.Data)
	n := s.sent.Add(1)
	for i := range 3 {
		m.Data[i] ^= byte(n >> (3 * i) & 7)
	}
	sample.Media = []*rewards.Media{&m}
	return &sample
}

// rawPictures are every nth golden picture as pixels.
func rawPictures(t *testing.T, nth int) []*rewards.Sample {
	t.Helper()
	var out []*rewards.Sample
	for _, p := range pictures(t, nth) {
		img, err := jpeg.Decode(bytes.NewReader(p.data))
		require.NoError(t, err)
		px := media.ToRGB(img)
		out = append(out, &rewards.Sample{Prompt: p.Prompt, Media: []*rewards.Media{{
			Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{px.Height, px.Width, 3}, Data: px.RGB,
		}}})
	}
	return out
}

func (s *storm) wait(t *testing.T, f *client.Future) *wire.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	res, err := f.Wait(ctx)
	require.NoError(t, err)
	return res
}

// said is what a result says of its pixels: the score, and every text that was read.
func said(t *testing.T, res *wire.Result) string {
	t.Helper()
	b, err := json.Marshal(res.Details)
	require.NoError(t, err)
	return fmt.Sprint(*res.RewardScore, regexp.MustCompile(`"text":"[^"]*"`).FindAllString(string(b), -1))
}

// rage makes a child die every second, in turn by each of four ways, and returns
// how often each was done. A stopped child is found by its deadline. A second in which
// nothing was answered is let pass: where a start takes longer than that, which it does on
// a busy machine, no child would ever come up.
func (s *storm) rage(over <-chan struct{}) map[string]int {
	ways := []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGSTOP}
	done := make(map[string]int)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	answered := s.answered.Load()
	for i := 0; ; {
		select {
		case <-over:
			return done
		case <-tick.C:
			now, pids := s.answered.Load(), s.pids()
			if now == answered || len(pids) == 0 {
				continue
			}
			answered = now
			way := ways[i%len(ways)]
			if syscall.Kill(pids[(i/len(ways)+i)%len(pids)], way) == nil {
				done[way.String()]++
			}
			i++
		}
	}
}

// tinyModel is a scorer that puts the sums of a crop's rows through a model of three
// nodes, and the children that run it.
func tinyModel(t *testing.T, library ort.Library) (rewards.Spec, func() []int) {
	t.Helper()
	opener, err := ort.NewOpener(ort.Config{Library: library.Path, Slots: 2, RunTimeout: 2 * time.Second})
	require.NoError(t, err)
	p, err := pool.New(pool.Config{BatchTimeout: 10 * time.Second}, opener)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, p.Close(ctx))
	})
	path, err := filepath.Abs(filepath.Join("..", "pool", "ort", "canary.onnx"))
	require.NoError(t, err)
	m, err := p.Model(infer.Model{Name: "tiny", Path: path, Device: "cpu"}, pool.ModelOptions{})
	require.NoError(t, err)
	score := func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		x := make([]float32, 4)
		for i, v := range s.Media[0].Data {
			x[i*4/len(s.Media[0].Data)] += float32(v>>3) / 31 // without what makes samples differ
		}
		out, err := m.Infer(ctx, infer.Request{Name: s.ID, Inputs: []infer.Tensor{infer.Floats("x", x, 4)}})
		if err != nil {
			class := rewards.Internal
			switch {
			case errors.Is(err, infer.ErrCrashed):
				class = rewards.Crashed
			case errors.Is(err, infer.ErrTimeout):
				class = rewards.Timeout
			case errors.Is(err, infer.ErrUnavailable):
				class = rewards.Unavailable
			}
			return rewards.Score{}, fmt.Errorf("%w: %w", class, err)
		}
		return rewards.Score{Value: float64(out[0].F32[0] + out[0].F32[2])}, nil
	}
	spec := rewards.Spec{
		Name: "tiny", Summary: "a model of three nodes",
		Build: func(json.RawMessage) (rewards.Scorer, error) { return rewards.ScorerFunc(score), nil },
	}
	return spec, func() []int { return opener.Stats()["cpu"].PIDs }
}

// crops are n pictures of 120 x 40 with a number each, as raw pixels.
func crops(t *testing.T, n int) []*rewards.Sample {
	t.Helper()
	parsed, err := opentype.Parse(goregular.TTF)
	require.NoError(t, err)
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: 26, DPI: 72, Hinting: font.HintingFull})
	require.NoError(t, err)
	defer face.Close()
	out := make([]*rewards.Sample, n)
	for i := range out {
		img := image.NewGray(image.Rect(0, 0, 120, 40))
		draw.Draw(img, img.Bounds(), image.White, image.Point{}, draw.Src)
		d := font.Drawer{Dst: img, Src: image.NewUniform(color.Black), Face: face, Dot: fixed.P(20, 30)}
		number := strconv.Itoa(1000 + 173*i)
		d.DrawString(number)
		rgb := make([]byte, 0, 3*len(img.Pix))
		for _, v := range img.Pix {
			rgb = append(rgb, v, v, v)
		}
		out[i] = &rewards.Sample{Prompt: fmt.Sprintf("%q", number), Media: []*rewards.Media{{
			Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{40, 120, 3}, Data: rgb,
		}}}
	}
	return out
}
