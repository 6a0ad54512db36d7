package python_test

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// pixels are the numbers 0 to n-1.
func pixels(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// still gives the same pixels for every encoded picture.
type still struct{ px *rewards.Pixels }

func (d still) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) { return d.px, nil }

func TestPixelsArriveAsTheTrainersHaveThem(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	s := scorer(t, python.Config{}, python.Options{Path: "testdata/rewards.py", Name: "pixels", Pixels: "numpy"})
	warm(t, s)
	encoded := &rewards.Media{Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Data: []byte("png"), Shape: []int{3}}
	encoded.SetDecoder(still{&rewards.Pixels{Width: 2, Height: 1, Count: 1, RGB: pixels(6)}})
	tests := map[string]struct {
		media *rewards.Media
		shape string
		first float64 // the second element: it tells one order from another
	}{
		"HWC":     {&rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw, Layout: rewards.HWC, DType: "U8", Shape: []int{1, 2, 3}, Data: pixels(6)}, "(3, 1, 2)", 3},
		"CHW":     {&rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw, Layout: rewards.CHW, DType: "U8", Shape: []int{3, 1, 2}, Data: pixels(6)}, "(3, 1, 2)", 1},
		"THWC":    {&rewards.Media{Kind: rewards.Video, Encoding: rewards.Raw, Layout: rewards.THWC, DType: "U8", Shape: []int{2, 1, 2, 3}, Data: pixels(12)}, "(2, 3, 1, 2)", 3},
		"CTHW":    {&rewards.Media{Kind: rewards.Video, Encoding: rewards.Raw, Layout: rewards.CTHW, DType: "U8", Shape: []int{3, 2, 1, 2}, Data: pixels(12)}, "(2, 3, 1, 2)", 1},
		"encoded": {encoded, "(3, 1, 2)", 3},
	}
	for name, tt := range tests {
		got, err := score(t, s, &rewards.Sample{ID: name, Media: []*rewards.Media{tt.media}})
		require.NoError(t, err, name)
		assert.Equal(t, tt.shape, got.Extra["shape"], name)
		assert.InDelta(t, tt.first, got.Extra["first"], 0, name)
		assert.Equal(t, "uint8", got.Extra["dtype"], name)
	}
}

func TestLatentsAndNamedTensorsArrive(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	s := scorer(t, python.Config{}, python.Options{Path: "testdata/rewards.py", Name: "pixels", Pixels: "numpy"})
	latent := &rewards.Media{Kind: rewards.Latent, Encoding: rewards.Raw, Layout: "CHW", DType: "BF16", Shape: []int{1, 1, 3}, Data: []byte{0x80, 0x3f, 0x00, 0x40, 0x40, 0x40}}
	named := &rewards.Media{Kind: rewards.Latent, Encoding: rewards.Raw, Layout: "LD", DType: "F32", Shape: []int{2, 1}, Data: make([]byte, 8)}
	got, err := score(t, s, &rewards.Sample{
		ID: "a", Media: []*rewards.Media{latent, named}, ExtraInfo: json.RawMessage(`{"rewardloop_tensors":["prompt_embeds"]}`),
	})
	require.NoError(t, err)
	assert.InDelta(t, 6.0, got.Value, 0, "1 + 2 + 3 in bfloat16")
	assert.Equal(t, "(2, 1)", got.Extra["prompt_embeds"])
}

func TestASampleWithoutThePictureAFunctionNeedsIsABadInput(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{}, "first_byte")
	_, err := score(t, s, &rewards.Sample{ID: "text", Response: "x"})
	assert.Equal(t, rewards.BadInput, rewards.ClassOf(err))
	assert.ErrorContains(t, err, "needs solution_image")
}

func TestMediaMayBeFilesForTheTimeOfACall(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	needs(t, "PIL")
	for name, class := range map[string]rewards.Scorer{
		"a function": scorer(t, python.Config{}, python.Options{Path: "testdata/faults.py", Name: "Files", Pixels: "path"}),
		"a model":    faulty(t, newDevices(t, pool.Config{}), "Files", python.Options{Pixels: "path"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := func(kind rewards.Kind, layout rewards.Layout, dtype string, data []byte, shape ...int) *rewards.Media {
				return &rewards.Media{Kind: kind, Encoding: rewards.Raw, Layout: layout, DType: dtype, Shape: shape, Data: data, FPS: 5, SampleRate: 16000}
			}
			sample := &rewards.Sample{ID: "a", Media: []*rewards.Media{
				raw(rewards.Image, rewards.CHW, "U8", pixels(6), 3, 1, 2), raw(rewards.Image, rewards.HWC, "U8", pixels(2), 1, 2, 1),
				raw(rewards.Video, rewards.THWC, "U8", pixels(12), 2, 1, 2, 3),
				raw(rewards.Audio, "T", "I16", []byte{1, 0, 0xff, 0xff}, 2), raw(rewards.Latent, "LD", "F32", make([]byte, 8), 2, 1),
			}}
			var folder string
			var pid int
			for range 3 {
				got, err := score(t, class, sample)
				require.NoError(t, err)
				assert.Zero(t, got.Value, "files of the call before")
				seen, err := json.Marshal(got.Details["seen"])
				require.NoError(t, err)
				assert.JSONEq(t, `[[[[0,2,4],[1,3,5]]],[[0,1]],[[[[[0,1,2],[3,4,5]]],[[[6,7,8],[9,10,11]]]],5],[1,16000,[1,0,255,255]],[[0],[0]]]`, string(seen))
				folder = got.Extra["folder"].(string)
				require.DirExists(t, folder)
				n, err := strconv.Atoi(got.Extra["pid"].(string))
				require.NoError(t, err)
				pid = n
			}
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			require.Eventually(t, func() bool { _, err := os.Stat(folder); return os.IsNotExist(err) }, 30*time.Second, 5*time.Millisecond, "removed with its process")
		})
	}
}
