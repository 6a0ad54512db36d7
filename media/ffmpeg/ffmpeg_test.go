package ffmpeg_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/media/ffmpeg"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/clip"
	"github.com/rewardloop/rewardloop/testkit/executable"
)

// decoder is one with ffmpeg; a test without a bound of its own has half a minute.
func decoder(t *testing.T, cfg media.Config) *media.Decoder {
	t.Helper()
	clip.FFmpeg(t)
	r, err := ffmpeg.Find(cfg)
	require.NoError(t, err)
	require.NotNil(t, r)
	return with(t, cfg, r)
}

func with(t *testing.T, cfg media.Config, p media.Player) *media.Decoder {
	t.Helper()
	d, err := media.New(cfg)
	require.NoError(t, err)
	if p != nil {
		d.SetPlayer(p)
	}
	return d
}

func video(e rewards.Encoding, data []byte) *rewards.Media {
	return &rewards.Media{Kind: rewards.Video, Encoding: e, DType: "U8", Shape: []int{len(data)}, Data: data}
}

func TestAVideoIsDecodedToTheFramesOfFFmpegItself(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{})
	encode := func(name string, args ...string) []byte {
		return clip.Make(t, name, append(clip.Video(96, 64, 20), args...)...)
	}
	x264 := []string{"-c:v", "libx264", "-preset", "ultrafast", "-bf", "2"}
	for name, c := range map[string]struct {
		encoding rewards.Encoding
		file     []byte
		format   string
	}{
		"mp4, its index last":        {rewards.MP4, encode("a.mp4", x264...), "mp4"},
		"mp4, its index first":       {rewards.MP4, encode("a.mp4", append(x264, "-movflags", "faststart")...), "mp4"},
		"mp4 in fragments":           {rewards.MP4, encode("a.mp4", append(x264, "-movflags", "frag_keyframe+empty_moov")...), "mp4"},
		"mp4 of BT.709":              {rewards.MP4, encode("a.mp4", append(x264, "-colorspace", "bt709", "-color_trc", "bt709", "-color_primaries", "bt709")...), "mp4"},
		"mp4 of MPEG-4":              {rewards.MP4, encode("a.mp4", "-c:v", "mpeg4", "-bf", "2"), "mp4"},
		"mp4 with sound":             {rewards.MP4, withSound(t), "mp4"},
		"webm of VP9":                {rewards.WebM, encode("a.webm", "-c:v", "libvpx-vp9", "-deadline", "realtime"), "webm"},
		"webm of VP8, hidden frames": {rewards.WebM, encode("a.webm", "-c:v", "libvpx", "-auto-alt-ref", "1", "-lag-in-frames", "16", "-b:v", "100k"), "webm"},
		"gif":                        {rewards.GIF, encode("a.gif"), "gif"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := video(c.encoding, c.file)
			m.SetDecoder(d)
			px, err := m.Pixels(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []int{96, 64, 20}, []int{px.Width, px.Height, px.Count})
			want := clip.Raw(t, c.file, c.format)
			require.Len(t, px.RGB, len(want))
			assert.Zero(t, bytes.Compare(want, px.RGB), "the same bytes")
			if c.encoding != rewards.GIF { // in hundredths of a second
				assert.InDelta(t, 8, px.FPS, .01)
			}
			for choice, want := range map[string][]int{
				"first": {0}, "every:8": {0, 8, 16}, "uniform:4": {0, 5, 10, 15}, "uniform:40": numbers(20), "fps:2": {0, 4, 8, 12, 16},
			} {
				if c.encoding == rewards.GIF && choice == "fps:2" {
					continue
				}
				frames, err := rewards.ParseFrames(choice)
				require.NoError(t, err)
				v, giveBack, err := m.BorrowFrames(t.Context(), frames)
				require.NoError(t, err, choice)
				assert.Equal(t, want, v.Number, choice)
				assert.Equal(t, len(want), v.Count, "no other frame is kept")
				for i, n := range v.Number {
					assert.Zero(t, bytes.Compare(px.Frame(n), v.Bytes(i)), "%s: frame %d", choice, n)
				}
				giveBack()
			}
			m.Forget()
		})
	}
}

func withSound(t *testing.T) []byte {
	t.Helper()
	sound := []string{"-f", "lavfi", "-i", "sine=d=3"}
	return clip.Make(t, "a.mp4", append(append(sound, clip.Video(96, 64, 20)...), "-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac")...)
}

func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func TestWhatChosenFramesTakeIsBooked(t *testing.T) {
	t.Parallel()
	const frame = 96 * 64 * 3
	d := decoder(t, media.Config{BudgetBytes: 1 << 20})
	m := video(rewards.MP4, clip.MP4(t, 96, 64, 100))
	m.SetDecoder(d)
	_, _, err := m.Borrow(t.Context())
	require.ErrorIs(t, err, rewards.BadInput)
	require.ErrorContains(t, err, "decoding needs up to 1843200 bytes, more than the budget of 1048576")
	v, giveBack, err := m.BorrowFrames(t.Context(), rewards.EvenFrames(8))
	require.NoError(t, err)
	assert.Equal(t, 8, v.Count)
	assert.EqualValues(t, 8*frame, d.Booked())
	giveBack()
	assert.EqualValues(t, 8*frame, d.Booked(), "they are kept in case they are read again")
	m.Forget()
	assert.Zero(t, d.Booked())
}

func TestWithoutFFmpegAFileIsRefusedByName(t *testing.T) {
	t.Parallel()
	r, err := ffmpeg.Find(media.Config{FFmpeg: media.FFmpegOff})
	require.NoError(t, err)
	require.Nil(t, r)
	d, err := media.New(media.Config{})
	require.NoError(t, err)
	_, err = d.Decode(t.Context(), video(rewards.GIF, []byte("GIF89a, more or less")))
	require.ErrorIs(t, err, rewards.UnsupportedEncoding)
	require.ErrorContains(t, err, "install ffmpeg 5.1 or newer")
	blame, permanent := rewards.BlameOf(err)
	assert.Equal(t, rewards.BlameWorker, blame)
	assert.True(t, permanent)

	for path, want := range map[string]string{"bin/ffmpeg": "or a full path", "/no/ffmpeg": "no such program"} {
		_, err = ffmpeg.Find(media.Config{FFmpeg: path})
		require.ErrorContains(t, err, want)
	}
}

// fake is a decoder with a script in place of ffmpeg.
func fake(t *testing.T, cfg media.Config, script string) *media.Decoder {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	cfg.FFmpeg = filepath.Join(t.TempDir(), "ffmpeg")
	executable.Write(t, cfg.FFmpeg, "#!/bin/sh\n"+script)
	r, err := ffmpeg.Find(cfg)
	require.NoError(t, err)
	return with(t, cfg, r)
}

// two says that there are two frames, and then runs a script in place of decoding them.
func two(script string) string {
	return `case "$*" in *framecrc*)
	printf '#tb 0: 1/8\n#codec_id 0: h264\n#dimensions 0: 4x2\n0, 0, 0, 1, 9, 0x0\n0, 1, 1, 1, 9, 0x0\n'
	exit 0
esac
` + script
}

func TestAProgramThatMisbehavesIsEndedWithinItsLimits(t *testing.T) {
	t.Parallel()
	const frame = `printf 'P6\n4 2\n255\n012345678901234567890123'` + "\n"
	for name, c := range map[string]struct{ script, want string }{
		"it lists packets for ever":      {`printf '#codec_id 0: h264\n#dimensions 0: 4x2\n'; while :; do echo '0, 0, 0, 1, 9, 0x0'; done`, "more frames than pool.decode.max_frames of 100"},
		"it writes a line for ever":      {`while :; do printf xxxxxxxxxxxxxxxxxxxx; done`, "buffer full"},
		"it writes frames for ever":      {two("while :; do " + frame + "done"), "more frames than the 2 packets"},
		"it writes nothing for ever":     {`while :; do :; done`, "ffmpeg_timeout"},
		"it sleeps":                      {`exec sleep 1000`, "took longer than pool.decode.ffmpeg_timeout of 1s"},
		"it sleeps with its output shut": {`exec >&-; exec sleep 1000`, "took longer than pool.decode.ffmpeg_timeout of 1s"},
		"its frames are larger":          {two(`printf 'P6\n4 4\n255\n'`), "frame 0 of this mp4 is 4×4, but its header has 4×2"},
		"its frames change":              {two(frame + `printf 'P6\n2 2\n255\n'`), "frame 1 of this mp4 is 2×2"},
		"its frames end early":           {two(`printf 'P6\n4 2\n255\n0123'`), "frame 0 of this mp4 ends early"},
		"its frames are none":            {two(`printf 'GIF89a'`), "ends within the header"},
		"its frames are another format":  {two(`printf 'P5\n4 2\n255\n'`), "has a frame that begins"},
		"it makes no frame":              {two(`exit 0`), "no frame of this mp4 can be decoded"},
		"it lists nothing":               {`exit 0`, "this mp4 has no video"},
		"it ends with no word":           {`exit 3`, "exit status 3"},
		"it cannot read the file":        {`echo '[mov @ 0x1234] moov atom not found' >&2; exit 1`, "ffmpeg cannot decode this file: moov atom not found"},
		"a picture without pixels":       {`printf '#codec_id 0: h264\n#dimensions 0: 0x2\n0, 0, 0, 1, 9, 0x0\n'`, "a picture of 0×2 has no pixels"},
		"a picture beyond the limit":     {`printf '#codec_id 0: h264\n#dimensions 0: 65535x65535\n0, 0, 0, 1, 9, 0x0\n'`, "beyond the limit of 16777216 pixels"},
		"a video of a day":               {`printf '#tb 0: 1/1\n#codec_id 0: h264\n#dimensions 0: 4x2\n0, 0, 0, 86400, 9, 0x0\n'`, "lasts 86400 s or more; pool.decode.max_length is 10m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := media.Config{MaxFrames: 100}
			if c.want == "ffmpeg_timeout" || c.want == "took longer than pool.decode.ffmpeg_timeout of 1s" {
				cfg.FFmpegTimeout = time.Second
			}
			d := fake(t, cfg, c.script)
			_, err := d.Decode(t.Context(), video(rewards.MP4, []byte("\x00\x00\x00\x08ftyp")))
			require.ErrorIs(t, err, rewards.BadInput)
			require.ErrorContains(t, err, c.want)
			assert.Zero(t, d.Booked())
		})
	}
}

func TestAProgramThatIsNoFFmpegIsTheWorkersFault(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"echo \"Unrecognized option 'fps_mode'.\" >&2; exit 1":                "is older than 5.1",
		"echo 'x: error while loading shared libraries: libav' >&2; exit 127": "does not start",
	} {
		_, err := fake(t, media.Config{}, script).Decode(t.Context(), video(rewards.MP4, []byte("\x00\x00\x00\x08ftyp")))
		require.ErrorIs(t, err, rewards.Internal)
		require.ErrorContains(t, err, want)
		blame, permanent := rewards.BlameOf(err)
		assert.Equal(t, rewards.BlameWorker, blame)
		assert.True(t, permanent)
	}
}

// running is the process of a command line, or 0.
func running(command string) int {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil && string(text) == command {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}

func TestADecodingThatIsCancelledLeavesNoProcess(t *testing.T) {
	t.Parallel()
	d := fake(t, media.Config{}, `exec sleep 98765`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { // ends when it is cancelled; the test waits for it
		_, err := d.Decode(ctx, video(rewards.MP4, []byte("\x00\x00\x00\x08ftyp")))
		done <- err
	}()
	var child int
	require.Eventually(t, func() bool { child = running("sleep\x0098765\x00"); return child != 0 }, 30*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	assert.NoFileExists(t, filepath.Join("/proc", strconv.Itoa(child)), "it has been reaped")
	assert.Zero(t, d.Booked())
}

func TestNothingIsLeftOfADecodingWhoseProcessIsKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	program := filepath.Join(t.TempDir(), "ffmpeg")
	executable.Write(t, program, "#!/bin/sh\nexec sleep 87654\n")
	self, err := os.Executable()
	require.NoError(t, err)
	parent := exec.CommandContext(t.Context(), self, "decode", program)
	require.NoError(t, parent.Start())
	require.Eventually(t, func() bool { return running("sleep\x0087654\x00") != 0 }, 30*time.Second, time.Millisecond)
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	require.Eventually(t, func() bool { return running("sleep\x0087654\x00") == 0 }, 30*time.Second, time.Millisecond)
}

func TestAFileOfAnotherEncodingNeverReachesFFmpeg(t *testing.T) {
	t.Parallel()
	d := with(t, media.Config{}, nil)
	for name, c := range map[string]struct {
		encoding rewards.Encoding
		data     string
		want     string
	}{
		"a webm":     {rewards.MP4, "\x1a\x45\xdf\xa3", "the bytes are a file of encoding webm, but the sample declares mp4"},
		"a playlist": {rewards.MP4, "#EXTM3U\n/etc/passwd\n", "do not begin as a file of encoding mp4"},
		"nothing":    {rewards.GIF, "", "these 0 bytes do not begin as a file of encoding gif"},
		"an AVIF":    {rewards.MP4, "\x00\x00\x00\x20ftypavif", "do not begin as a file of encoding mp4"},
	} {
		_, err := d.Decode(t.Context(), video(c.encoding, []byte(c.data)))
		require.ErrorIs(t, err, rewards.BadInput, name)
		require.ErrorContains(t, err, c.want, name)
	}
	image := video(rewards.GIF, []byte("GIF89a"))
	image.Kind = rewards.Image
	_, err := d.Decode(t.Context(), image)
	require.ErrorContains(t, err, "an image with encoding gif: send it as a video")
}
