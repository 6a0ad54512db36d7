package ffmpeg_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/clip"
)

const readWithPyAV = `
import sys, av
with av.open(sys.argv[1]) as container, open(sys.argv[2], "wb") as out:
    for frame in container.decode(video=0):
        out.write(frame.to_ndarray(format="rgb24").tobytes())
`

// 97 MB of frames: as a trainer that reads its clip with PyAV would send them raw.
func TestPymodelsAClipHasTheFramesThatPyAVGives(t *testing.T) {
	t.Parallel()
	python := os.Getenv("REWARDLOOP_PYMODELS_PYTHON")
	if os.Getenv("REWARDLOOP_PYMODELS") != "1" || python == "" {
		t.Skip("SKIPPED: make test-pymodels compares a clip with PyAV")
	}
	const width, height, frames = 832, 480, 81
	d := decoder(t, media.Config{})
	for encoding, args := range map[rewards.Encoding][]string{
		rewards.MP4:  {"-c:v", "libx264", "-preset", "ultrafast", "-bf", "2"},
		rewards.WebM: {"-c:v", "libvpx-vp9", "-deadline", "realtime"},
	} {
		name := "clip." + string(encoding)
		file := clip.Make(t, name, append(clip.Video(width, height, frames), args...)...)
		dir := t.TempDir()
		in, out := filepath.Join(dir, name), filepath.Join(dir, "frames.rgb")
		require.NoError(t, os.WriteFile(in, file, 0o600))
		said, err := exec.CommandContext(t.Context(), python, "-c", readWithPyAV, in, out).CombinedOutput()
		require.NoError(t, err, "%s", said)
		want, err := os.ReadFile(out)
		require.NoError(t, err)
		m := video(encoding, file)
		m.SetDecoder(d)
		px, err := m.Pixels(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []int{width, height, frames}, []int{px.Width, px.Height, px.Count})
		require.Len(t, px.RGB, len(want), name)
		furthest := 0
		for i, v := range px.RGB {
			furthest = max(furthest, int(v)-int(want[i]), int(want[i])-int(v))
		}
		assert.LessOrEqual(t, furthest, 2, "%s: levels of 255", name)
		t.Logf("%s: the furthest value is %d of 255 levels from PyAV's", name, furthest)
		m.Forget()
	}
}
