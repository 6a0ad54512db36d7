package node_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// Pictures of ever other sizes are what makes arenas grow: until each child has met
// the largest that it meets, and no longer.
func TestMemoryStaysFlatOverPicturesOfVaryingSize(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	if err := ppocrHere(t); err != nil {
		missing(t, err)
	}
	count := 240
	if full() {
		count = 10_000
	}
	readers, err := node.NewReaders(config.Default().Pool)
	require.NoError(t, err)
	defer func() { require.NoError(t, readers.Close()) }()
	o := ocr.DefaultReader()
	o.Reader, o.Profile = ocr.ReaderPPOCR, ocr.ProfilePaddle2 // it does not enlarge small pictures
	r, err := readers.Reader(o)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same pictures every time
	read := func(n int) {
		var g errgroup.Group
		g.SetLimit(8)
		for range n {
			px := noise(rng, 32+rng.IntN(225), 32+rng.IntN(225))
			g.Go(func() error {
				_, err := r.ReadText(t.Context(), px, 0)
				return err
			})
		}
		require.NoError(t, g.Wait())
	}
	rss := func() (total int) {
		for _, pid := range readers.Children()["onnx cpu"].PIDs {
			total += resident(t, pid)
		}
		return total
	}
	const parts = 8
	restarts := readers.Children()["onnx cpu"].Restarts
	held := make([]int, parts)
	for i := range held {
		read(count / parts)
		held[i] = rss() >> 20
	}
	t.Logf("the children hold %v MiB after each eighth of %d pictures", held, count)
	require.Equal(t, restarts, readers.Children()["onnx cpu"].Restarts, "a new child would hide what the old one held")
	require.Less(t, float64(held[parts-1]), 1.15*float64(held[parts/2-1]), "the second half adds next to nothing")
}

// noise is a picture with one band of strokes, which looks enough like text to be read.
func noise(rng *rand.Rand, w, h int) *rewards.Pixels {
	px := &rewards.Pixels{Width: w, Height: h, Count: 1, RGB: make([]byte, 3*w*h)}
	for y := range h {
		for x := range w {
			v := byte(255)
			if y/20 == 1 && (x*7+y/3*5)%13 < 6 {
				v = byte(rng.IntN(64))
			}
			for c := range 3 {
				px.RGB[3*(y*w+x)+c] = v
			}
		}
	}
	return px
}

// resident is a process's memory in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")))
			require.NoError(t, err)
			return n << 10
		}
	}
	t.Fatalf("process %d says nothing of its memory", pid)
	return 0
}
