package ppocr_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/ocr/ppocr"
)

// inferer is a model made of a function.
type inferer func(ctx context.Context, req infer.Request) ([]infer.Tensor, error)

func (f inferer) Infer(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
	return f(ctx, req)
}

// described is one that says what it is.
type described struct {
	inferer
	info func(ctx context.Context) (infer.Info, error)
}

func (d described) Info(ctx context.Context) (infer.Info, error) { return d.info(ctx) }

// words is a detector that finds a region wherever a picture is bright.
func words(_ context.Context, req infer.Request) ([]infer.Tensor, error) {
	in := req.Inputs[0]
	h, w := in.Shape[1], in.Shape[2]
	out := make([]float32, h*w)
	for i := range out {
		if in.F32[i] > 0 {
			out[i] = .9
		}
	}
	return []infer.Tensor{infer.Floats("map", out, 1, h, w)}, nil
}

// letters is a recogniser of the alphabet a, b: it reads "ab".
func letters(_ context.Context, req infer.Request) ([]infer.Tensor, error) {
	if req.Reduce != infer.ArgMax {
		return []infer.Tensor{infer.Floats("y", make([]float32, 8), 2, 4)}, nil
	}
	return []infer.Tensor{
		{Name: "y", DType: infer.I32, Shape: []int{4}, I32: []int32{0, 1, 2, 0}},
		infer.Floats("y.max", []float32{1, .75, 1, 1}, 4),
	}, nil
}

func alphabet(context.Context) (infer.Info, error) {
	return infer.Info{
		Outputs:  []infer.Port{{Name: "y", DType: "F32", Shape: []int{-1, -1, 4}}},
		Metadata: map[string]string{"character": "a\nb"},
	}, nil
}

func models() ppocr.Models {
	return ppocr.Models{Det: inferer(words), Rec: described{letters, alphabet}}
}

// asIs gives the detector a picture's own size: little to compute under the race
// detector.
var asIs = ppocr.Config{Profile: ppocr.Paddle2}

func open(t *testing.T, cfg ppocr.Config, m ppocr.Models) *ppocr.Reader {
	t.Helper()
	r, err := ppocr.New(cfg, m)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// bars is a dark picture with n bright bars, the lines of text of words.
func bars(w, h, n int) *rewards.Pixels {
	px := &rewards.Pixels{Width: w, Height: h, Count: 1, RGB: make([]byte, w*h*3)}
	for i := range n {
		top := h * (2*i + 1) / (2*n + 1)
		for y := top; y < top+h/(4*n+2); y++ {
			for x := w / 5 * 3; x < w*4/5*3; x++ {
				px.RGB[y*w*3+x] = 255
			}
		}
	}
	return px
}

func TestLinesComeWithTextConfidenceAndBox(t *testing.T) {
	t.Parallel()
	for _, mode := range []ppocr.Mode{ppocr.Parity, ppocr.Fast} {
		for _, profile := range []ppocr.Profile{ppocr.RapidOCR, ppocr.Paddle2} {
			r := open(t, ppocr.Config{Mode: mode, Profile: profile}, models())
			px := bars(400, 300, 3)
			lines, err := r.ReadText(t.Context(), px, 0)
			require.NoError(t, err)
			require.Len(t, lines, 3, "%s %s", mode, profile)
			for i, l := range lines {
				require.Equal(t, "ab", l.Text)
				require.InDelta(t, .875, l.Confidence, 1e-9)
				middle := 300 * (2*i + 1) / 7
				require.Greater(t, middle+20, l.Box[1])
				require.Less(t, middle, l.Box[3])
				require.Less(t, l.Box[0], l.Box[2])
			}
		}
	}
}

func TestLongPicturesAreReadInFastModeAsInParityMode(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{600, 200}, {200, 600}, {300, 300}} {
		var given [2][]string
		for i, mode := range []ppocr.Mode{ppocr.Parity, ppocr.Fast} {
			w := &witness{}
			r := open(t, ppocr.Config{Mode: mode}, ppocr.Models{Det: w.watch(words), Rec: described{w.watch(letters), alphabet}})
			_, err := r.ReadText(t.Context(), bars(size[0], size[1], 2), 0)
			require.NoError(t, err)
			given[i] = w.given()
		}
		require.Equal(t, size[0] != size[1], slices.Equal(given[0], given[1]), "%v", size)
	}
}

func TestAWholePictureIsReadAsOneLineWithoutADetector(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode          ppocr.Mode
		width, height int
		shape         []int // of the recogniser's input
	}{
		{ppocr.Fast, 32, 16, []int{3, 48, 96}},
		{ppocr.Fast, 480, 48, []int{3, 48, 480}},
		{ppocr.Fast, 16, 32, []int{3, 48, 64}}, // not turned, and never narrower than two steps
		{ppocr.Parity, 32, 16, []int{3, 48, 320}},
		{ppocr.Parity, 960, 96, []int{3, 48, 480}},
	} {
		var given [][]int
		read := func(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
			given = append(given, req.Inputs[0].Shape)
			return letters(ctx, req)
		}
		r := open(t, ppocr.Config{Mode: c.mode, WholePicture: true}, ppocr.Models{Rec: described{read, alphabet}})
		lines, err := r.ReadText(t.Context(), bars(c.width, c.height, 2), 0)
		require.NoError(t, err)
		require.Equal(t, []ocr.Line{{Text: "ab", Confidence: .875, Box: [4]int{0, 0, c.width, c.height}}}, lines)
		require.Equal(t, [][]int{c.shape}, given, "%s %dx%d", c.mode, c.width, c.height)
		turn, err := r.Turn(t.Context())
		require.NoError(t, err)
		turn.Done()
	}
}

func TestAWholePictureKeepsALineOfAnyConfidenceUnlessOneIsAskedFor(t *testing.T) {
	t.Parallel()
	unsure := func(context.Context, infer.Request) ([]infer.Tensor, error) {
		return []infer.Tensor{
			{Name: "y", DType: infer.I32, Shape: []int{1}, I32: []int32{1}}, infer.Floats("y.max", []float32{.25}, 1),
		}, nil
	}
	for score, want := range map[float64]int{0: 1, .25: 1, .5: 0} {
		r := open(t, ppocr.Config{WholePicture: true, TextScore: score}, ppocr.Models{Rec: described{unsure, alphabet}})
		lines, err := r.ReadText(t.Context(), bars(32, 16, 1), 0)
		require.NoError(t, err)
		require.Len(t, lines, want, "text score %v", score)
	}
}

func TestAPictureWithoutTextHasNoLines(t *testing.T) {
	t.Parallel()
	r := open(t, ppocr.Config{}, models())
	for _, size := range [][2]int{{1, 1}, {2, 1}, {64, 64}, {700, 30}} {
		lines, err := r.ReadText(t.Context(), bars(size[0], size[1], 0), 0)
		require.NoError(t, err, "%v", size)
		require.Empty(t, lines)
	}
}

func TestWhatCannotBeReadIsSaid(t *testing.T) {
	t.Parallel()
	r := open(t, ppocr.Config{}, models())
	for _, px := range []*rewards.Pixels{{}, {Width: 2, Height: 2, Count: 1, RGB: make([]byte, 11)}, {Width: 0, Height: 5, Count: 1}} {
		_, err := r.ReadText(t.Context(), px, 0)
		require.ErrorIs(t, err, rewards.Internal)
	}
	_, err := r.ReadText(t.Context(), bars(8, 8, 0), 1)
	require.ErrorIs(t, err, rewards.Internal)
	for _, size := range [][2]int{{20000, 20}, {20, 20000}, {1, 20000}, {20000, 1}, {20000, 1000}, {32, 1984}, {1, 40}} {
		_, err := r.ReadText(t.Context(), bars(size[0], size[1], 0), 0)
		require.ErrorIs(t, err, rewards.BadInput, "%v", size)
	}
}

func TestARecogniserWithoutOrWithTheWrongDictionaryDoesNotLoad(t *testing.T) {
	t.Parallel()
	without := models()
	without.Rec = inferer(letters)
	require.ErrorContains(t, open(t, ppocr.Config{}, without).Warm(t.Context()), "model without dictionary")
	wrong := models()
	wrong.Rec = described{letters, func(ctx context.Context) (infer.Info, error) {
		i, err := alphabet(ctx)
		i.Outputs = nil // found out by an empty line
		i.Metadata["character"] = "a\nb\nc"
		return i, err
	}}
	err := open(t, ppocr.Config{}, wrong).Warm(t.Context())
	require.ErrorIs(t, err, infer.ErrModel)
	require.ErrorIs(t, err, rewards.Internal)
	require.ErrorContains(t, err, "has 4 classes, but its dictionary has 3 characters")
}

func TestWarmingTriesAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	m, fails := models(), true
	m.Det = described{words, func(context.Context) (infer.Info, error) {
		if fails {
			return infer.Info{}, fmt.Errorf("%w: no memory", infer.ErrUnavailable)
		}
		return infer.Info{}, nil
	}}
	r := open(t, ppocr.Config{}, m)
	require.ErrorIs(t, r.Warm(t.Context()), rewards.Unavailable)
	fails = false
	require.NoError(t, r.Warm(t.Context()))
	require.NoError(t, r.Warm(t.Context()))
}

func TestFailuresOfModelsKeepTheirClass(t *testing.T) {
	t.Parallel()
	for cause, class := range map[error]rewards.Class{
		infer.ErrCrashed: rewards.Crashed, infer.ErrTimeout: rewards.Timeout, infer.ErrUnavailable: rewards.Unavailable,
		infer.ErrMemory: rewards.Unavailable, infer.ErrFault: rewards.Unavailable, infer.ErrModel: rewards.Internal,
		infer.ErrInput: rewards.Internal, context.DeadlineExceeded: rewards.Timeout,
	} {
		fail := inferer(func(context.Context, infer.Request) ([]infer.Tensor, error) {
			return nil, fmt.Errorf("replica 2: %w", cause)
		})
		for _, at := range []string{"det", "rec"} {
			m := models()
			switch at {
			case "det":
				m.Det = fail
			case "rec":
				m.Rec = described{fail, alphabet}
			}
			_, err := open(t, asIs, m).ReadText(t.Context(), bars(200, 150, 3), 0)
			require.ErrorIs(t, err, cause)
			require.Equal(t, class, rewards.ClassOf(err), "%s: %v", at, err)
		}
	}
}

func TestAnswersOfTheWrongFormAreFaultsAndNotAnEmptyPicture(t *testing.T) {
	t.Parallel()
	answer := func(out ...infer.Tensor) inferer {
		return func(context.Context, infer.Request) ([]infer.Tensor, error) { return out, nil }
	}
	nan := inferer(func(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
		out, err := words(ctx, req)
		out[0].F32[77] = float32(math.NaN())
		return out, err
	})
	infinite := inferer(func(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
		out, err := words(ctx, req)
		out[0].F32[0] = float32(math.Inf(-1))
		return out, err
	})
	steps := infer.Tensor{DType: infer.I32, Shape: []int{2}, I32: []int32{1, 2}}
	for name, m := range map[string]ppocr.Models{
		"no map":          {Det: answer(), Rec: models().Rec},
		"small map":       {Det: answer(infer.Floats("", make([]float32, 4), 1, 2, 2)), Rec: models().Rec},
		"two maps":        {Det: answer(infer.Floats("", make([]float32, 2*160*192), 2, 160, 192)), Rec: models().Rec},
		"NaN":             {Det: nan, Rec: models().Rec},
		"infinity":        {Det: infinite, Rec: models().Rec},
		"no classes":      {Det: models().Det, Rec: described{answer(infer.Floats("", make([]float32, 8), 2, 4)), alphabet}},
		"no maxima":       {Det: models().Det, Rec: described{answer(steps), alphabet}},
		"class unknown":   {Det: models().Det, Rec: described{answer(infer.Tensor{DType: infer.I32, Shape: []int{1}, I32: []int32{9}}, infer.Floats("", []float32{1}, 1)), alphabet}},
		"one max for two": {Det: models().Det, Rec: described{answer(steps, infer.Floats("", []float32{1}, 1)), alphabet}},
	} {
		_, err := open(t, asIs, m).ReadText(t.Context(), bars(200, 150, 3), 0)
		require.ErrorIs(t, err, infer.ErrFault, name)
		want := rewards.Unavailable
		if name == "NaN" || name == "infinity" {
			want = rewards.InvalidScore
		}
		require.Equal(t, want, rewards.ClassOf(err), name)
		blame, _ := rewards.BlameOf(err)
		require.Equal(t, rewards.BlameReward, blame, name)
	}
}

func TestAPanicFailsThePictureAndNotTheProcess(t *testing.T) {
	t.Parallel()
	broken := inferer(func(context.Context, infer.Request) ([]infer.Tensor, error) { panic("out of order") })
	for name, m := range map[string]ppocr.Models{
		"detector":   {Det: broken, Rec: models().Rec},
		"recogniser": {Det: models().Det, Rec: described{broken, alphabet}},
	} {
		for _, lines := range []int{1, 3} {
			_, err := open(t, asIs, m).ReadText(t.Context(), bars(200, 150, lines), 0)
			require.Equal(t, rewards.Panicked, rewards.ClassOf(err), name)
			require.ErrorContains(t, err, "out of order", name)
		}
	}
}

func TestAModelThatHangsEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := models()
		m.Rec = described{func(ctx context.Context, _ infer.Request) ([]infer.Tensor, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, alphabet}
		r := open(t, ppocr.Config{}, m)
		begin := time.Now()
		late, end := context.WithTimeout(t.Context(), 3*time.Second)
		defer end()
		_, err := r.ReadText(late, bars(400, 300, 3), 0)
		require.Equal(t, rewards.Timeout, rewards.ClassOf(err), "%v", err)
		require.Equal(t, 3*time.Second, time.Since(begin))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = r.ReadText(ctx, bars(400, 300, 3), 0)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, rewards.Cancelled, rewards.ClassOf(err))
	})
}

func TestClosingEndsReadingsAndRefusesNewOnes(t *testing.T) {
	t.Parallel()
	m, hangs := models(), make(chan struct{})
	m.Det = inferer(func(ctx context.Context, _ infer.Request) ([]infer.Tensor, error) {
		close(hangs)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	r := open(t, ppocr.Config{}, m)
	failed := make(chan error, 1)
	go func() {
		_, err := r.ReadText(context.Background(), bars(64, 64, 1), 0)
		failed <- err
	}()
	<-hangs
	require.NoError(t, r.Close())
	require.Equal(t, rewards.Unavailable, rewards.ClassOf(<-failed))
	require.NoError(t, r.Close())
	_, err := r.ReadText(t.Context(), bars(64, 64, 1), 0)
	require.Equal(t, rewards.Unavailable, rewards.ClassOf(err))
}

func TestCropsAreReadTogetherButNotTooMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := models()
		var now, most atomic.Int64
		m.Rec = described{func(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second) // the bubble's time
			now.Add(-1)
			return letters(ctx, req)
		}, alphabet}
		r := open(t, ppocr.Config{Concurrency: 3, Profile: ppocr.Paddle2}, m)
		begin := time.Now()
		lines, err := r.ReadText(t.Context(), bars(200, 600, 7), 0)
		require.NoError(t, err)
		require.Len(t, lines, 7)
		require.EqualValues(t, 3, most.Load())
		require.Equal(t, 3*time.Second, time.Since(begin))
	})
}

func TestReadersServeManyAtOnce(t *testing.T) {
	t.Parallel()
	r := open(t, ppocr.Config{Mode: ppocr.Fast, Profile: ppocr.Paddle2, FastSide: 128}, models())
	var wg sync.WaitGroup
	errs := make(chan error, 24)
	for i := range cap(errs) {
		wg.Go(func() {
			lines, err := r.ReadText(context.Background(), bars(200+16*i, 160, 1+i%4), 0)
			if err == nil && len(lines) != 1+i%4 {
				err = errors.New("wrong number of lines")
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

func TestTheConfigurationNamesEveryFault(t *testing.T) {
	t.Parallel()
	require.NoError(t, ppocr.Config{}.WithDefaults().Validate())
	err := ppocr.Config{
		Profile: "x", Mode: "y", FastSide: 1, FastShrink: .5, WidthStep: 9, TextScore: 2,
		Concurrency: -1, MaxPixels: -1, MaxDetectorPixels: 1,
	}.WithDefaults().Validate()
	for _, name := range []string{"profile", "mode", "fast_side", "fast_shrink", "width_step", "text_score", "concurrency", "max_pixels", "max_detector_pixels"} {
		require.ErrorContains(t, err, name+":")
	}
	_, err = ppocr.New(ppocr.Config{}, ppocr.Models{Det: inferer(words)})
	require.ErrorContains(t, err, "detector and a recogniser")
}
