package tesseract_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"image"
	_ "image/jpeg" // the golden pictures
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

// TestMain makes the test binary its own child process.
func TestMain(m *testing.M) {
	if code, child := subprocess.Main(os.Args[1:], tesseract.Kinds()...); child {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

func newReader(t *testing.T, cfg tesseract.Config) *tesseract.Reader {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	if detail, err := tesseract.Available(); err != nil {
		t.Skipf("SKIPPED: no Tesseract: %v", err)
	} else {
		t.Log(detail)
	}
	if cfg.Slots == 0 {
		cfg.Slots = 2
	}
	r, err := tesseract.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	require.NoError(t, r.Warm(t.Context()))
	return r
}

// scene is a golden picture with what is written in it.
type scene struct {
	ID       string `json:"id"`
	File     string `json:"image"`
	Target   string `json:"target"`
	Rendered string `json:"rendered"`

	px *rewards.Pixels
}

// scenes decodes every nth golden picture.
func scenes(t *testing.T, nth int) []*scene {
	t.Helper()
	dir := os.Getenv("REWARDLOOP_GOLDEN")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "testdata", "golden")
	}
	dir = filepath.Join(dir, "ocr")
	data, err := os.ReadFile(filepath.Join(dir, "samples.jsonl"))
	if err != nil {
		t.Skipf("SKIPPED: no golden pictures: %v", err)
	}
	var all []*scene
	for sc, n := bufio.NewScanner(bytes.NewReader(data)), 0; sc.Scan(); n++ {
		if n%nth != 0 {
			continue
		}
		var s scene
		require.NoError(t, json.Unmarshal(sc.Bytes(), &s))
		s.px = decode(t, filepath.Join(dir, s.File))
		all = append(all, &s)
	}
	require.NotEmpty(t, all)
	return all
}

func decode(t *testing.T, path string) *rewards.Pixels {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	img, _, err := image.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	b := img.Bounds()
	px := &rewards.Pixels{Width: b.Dx(), Height: b.Dy(), Count: 1, RGB: make([]byte, 0, 3*b.Dx()*b.Dy())}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, bl, _ := img.At(x, y).RGBA()
			px.RGB = append(px.RGB, byte(r>>8), byte(g>>8), byte(bl>>8))
		}
	}
	return px
}

// readAll reads every scene with a goroutine per slot.
func readAll(t *testing.T, slots int, all []*scene, read func(i int, s *scene)) {
	t.Helper()
	next := make(chan int)
	var readers sync.WaitGroup
	for range slots {
		readers.Go(func() {
			for i := range next {
				read(i, all[i])
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	readers.Wait()
}

// The true reward of a golden picture is the formula applied to what is really
// written in it. Tesseract as anchors measured it is off by about 0.28.
func TestGoldenTheRewardIsCloseToThatOfTheWrittenText(t *testing.T) {
	t.Parallel()
	nth := 1
	if testing.Short() || len(tesseract.Kinds()) == 0 { // the program takes four times as long
		nth = 4
	}
	all := scenes(t, nth)
	r := newReader(t, tesseract.Config{Slots: 2})
	options, err := ocr.Preset(ocr.FlowGRPO)
	require.NoError(t, err)
	errs := make([]float64, len(all))
	before := cpuTime()
	readAll(t, 2, all, func(i int, s *scene) {
		lines, err := r.ReadText(t.Context(), s.px, 0)
		if err != nil {
			t.Errorf("%s: %v", s.ID, err)
			return
		}
		got, gerr := options.Compare(s.Target, ocr.Text(lines))
		want, werr := options.Compare(s.Target, s.Rendered)
		if gerr != nil || werr != nil {
			t.Errorf("%s: %v, %v", s.ID, gerr, werr)
			return
		}
		errs[i] = math.Abs(got.Value - want.Value)
	})
	var sum float64
	exact := 0
	for _, e := range errs {
		sum += e
		if e == 0 {
			exact++
		}
	}
	mae := sum / float64(len(all))
	require.NoError(t, r.Close()) // counts the children's CPU time
	t.Logf("%d pictures: mean absolute error of the reward %.4f, exact %.3f, CPU %.0f ms a picture",
		len(all), mae, float64(exact)/float64(len(all)), (cpuTime()-before).Seconds()*1e3/float64(len(all)))
	require.LessOrEqual(t, mae, 0.05)
}

// cpuTime is that of this process and its ended children.
func cpuTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

func TestAPictureWithoutTextHasNoLinesAndNoError(t *testing.T) {
	t.Parallel()
	r := newReader(t, tesseract.Config{Slots: 1})
	for _, size := range [][2]int{{1, 1}, {3, 500}, {7, 7}, {8, 8}, {200, 100}} {
		px := &rewards.Pixels{Width: size[0], Height: size[1], Count: 1, RGB: make([]byte, 3*size[0]*size[1])}
		lines, err := r.ReadText(t.Context(), px, 0)
		require.NoError(t, err)
		require.Empty(t, lines)
	}
}

func TestAFrameOfAVideoIsReadByItself(t *testing.T) {
	t.Parallel()
	all := scenes(t, 64)
	require.Len(t, all, 2)
	video := &rewards.Pixels{Width: 512, Height: 512, Count: 2, RGB: append(bytes.Clone(all[0].px.RGB), all[1].px.RGB...)}
	r := newReader(t, tesseract.Config{})
	for i, s := range all {
		want, err := r.ReadText(t.Context(), s.px, 0)
		require.NoError(t, err)
		got, err := r.ReadText(t.Context(), video, i)
		require.NoError(t, err)
		require.Equal(t, want, got)
		for _, l := range got {
			require.Greater(t, l.Box[2], l.Box[0])
			require.LessOrEqual(t, l.Box[3], 512)
			require.InDelta(t, 0.5, l.Confidence, 0.5)
		}
	}
}

func TestAnImpossibleFrameIsRefused(t *testing.T) {
	t.Parallel()
	r := newReader(t, tesseract.Config{Slots: 1, MaxPixels: 100})
	_, err := r.ReadText(t.Context(), &rewards.Pixels{Width: 11, Height: 10, Count: 1, RGB: make([]byte, 330)}, 0)
	require.ErrorIs(t, err, rewards.BadInput)
	for _, px := range []*rewards.Pixels{
		{Width: 10, Height: 10, Count: 1, RGB: make([]byte, 7)},
		{Width: 5, Height: 5, Count: 2, RGB: make([]byte, 75)},
	} {
		_, err = r.ReadText(t.Context(), px, 0)
		require.ErrorIs(t, err, rewards.Internal)
	}
	_, err = r.ReadText(t.Context(), &rewards.Pixels{Width: 5, Height: 5, Count: 1, RGB: make([]byte, 75)}, 1)
	require.ErrorIs(t, err, rewards.Internal)
}

func TestAMissingLanguageIsNamedWhenTheReaderStarts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	if _, err := tesseract.Available(); err != nil {
		t.Skipf("SKIPPED: no Tesseract: %v", err)
	}
	r, err := tesseract.New(tesseract.Config{Slots: 1, Language: "klingon"})
	require.NoError(t, err)
	err = r.Warm(t.Context())
	require.ErrorIs(t, err, rewards.Unavailable)
	require.ErrorContains(t, err, "klingon")
	require.Error(t, r.Warm(t.Context()), "it is tried again")
	require.NoError(t, r.Close())
}

func TestADeadlineEndsAReadingWithAnErrorOfItsClass(t *testing.T) {
	t.Parallel()
	all := scenes(t, 128)
	r := newReader(t, tesseract.Config{Slots: 1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := r.ReadText(ctx, all[0].px, 0)
	require.Equal(t, rewards.Timeout, rewards.ClassOf(err), "%v", err)
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err = r.ReadText(gone, all[0].px, 0)
	require.Equal(t, rewards.Cancelled, rewards.ClassOf(err), "%v", err)
	_, err = r.ReadText(t.Context(), all[0].px, 0)
	require.NoError(t, err, "the next one is read")
}

func TestAClosedReaderReadsNothing(t *testing.T) {
	t.Parallel()
	r := newReader(t, tesseract.Config{Slots: 1})
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	_, err := r.ReadText(t.Context(), &rewards.Pixels{Width: 10, Height: 10, Count: 1, RGB: make([]byte, 300)}, 0)
	require.ErrorIs(t, err, rewards.Unavailable)
}

func TestAReaderClosedBeforeItStartedNeverStarts(t *testing.T) {
	t.Parallel()
	if _, err := tesseract.Available(); err != nil {
		t.Skipf("SKIPPED: no Tesseract: %v", err)
	}
	r, err := tesseract.New(tesseract.Config{Slots: 1})
	require.NoError(t, err)
	require.NoError(t, r.Close())
	for range 2 {
		require.ErrorIs(t, r.Warm(t.Context()), rewards.Unavailable)
	}
}

func TestAConfigurationNamesAllItsFaults(t *testing.T) {
	t.Parallel()
	_, err := tesseract.New(tesseract.Config{
		Slots: -1, Isolation: "jail", Language: "../eng", PSM: 1, Threshold: "x",
		SecondLook: math.NaN(), Timeout: -1, MaxPixels: -1, Recycle: -1,
	})
	for _, want := range []string{"slots", "isolation", "language", "psm", "threshold", "second_look", "timeout", "max_pixels", "recycle"} {
		require.ErrorContains(t, err, want)
	}
	for _, lang := range []string{"-l", "eng;rm", "eng/../x"} {
		require.ErrorContains(t, tesseract.Config{Language: lang}.WithDefaults().Validate(), "language", lang)
	}
	require.NoError(t, tesseract.Config{Language: "eng+chi_sim"}.WithDefaults().Validate())
}

func BenchmarkReadText(b *testing.B) {
	if _, err := tesseract.Available(); err != nil {
		b.Skipf("SKIPPED: no Tesseract: %v", err)
	}
	px := &rewards.Pixels{Width: 512, Height: 512, Count: 1, RGB: []byte(strings.Repeat("\xff", 3*512*512))}
	r, err := tesseract.New(tesseract.Config{Slots: 1})
	require.NoError(b, err)
	defer r.Close()
	require.NoError(b, r.Warm(b.Context()))
	for b.Loop() {
		if _, err := r.ReadText(b.Context(), px, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func TestManyMayAskAtOnceWhatTesseractThereIs(t *testing.T) {
	t.Parallel()
	want, err := tesseract.Available()
	if err != nil {
		t.Skip("no Tesseract here: ", err)
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 20 {
				if got, err := tesseract.Available(); err != nil || got != want {
					t.Errorf("%q, %v; want %q", got, err, want) // from any goroutine
				}
			}
		})
	}
	all.Wait()
}
