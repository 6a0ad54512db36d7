// Package clip creates videos and sounds for tests with ffmpeg.
package clip

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// FFmpeg returns the path of ffmpeg. If ffmpeg is not installed, FFmpeg skips the test, or fails it
// if REQUIRE_FFMPEG is 1.
func FFmpeg(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts ffmpeg")
	}
	path, err := exec.LookPath("ffmpeg")
	switch {
	case err == nil:
		return path
	case os.Getenv("REQUIRE_FFMPEG") == "1":
		t.Fatal("REQUIRE_FFMPEG is 1 and no ffmpeg is on PATH")
	}
	t.Skip("SKIPPED: no ffmpeg on PATH: apt-get install ffmpeg")
	return ""
}

// Make returns the file that ffmpeg writes with the given arguments, in the format of the name's
// extension.
func Make(t testing.TB, name string, args ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	Run(t, nil, append(args, path)...)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Run runs ffmpeg with the given standard input and returns its standard output.
func Run(t testing.TB, input []byte, args ...string) []byte {
	t.Helper()
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(t.Context(), FFmpeg(t), append([]string{"-v", "error", "-y"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("ffmpeg %q: %v: %s", args, err, complaints.String())
	}
	return out.Bytes()
}

// Video returns the arguments for a moving test picture of the given size, at 8 frames per second;
// each frame shows the number of its second.
func Video(width, height, frames int) []string {
	return []string{"-f", "lavfi", "-i", fmt.Sprintf("testsrc2=s=%dx%d:r=8", width, height), "-frames:v", fmt.Sprint(frames), "-pix_fmt", "yuv420p"}
}

// MP4 returns the test picture of Video as an H.264 file whose index comes last, as encoders write
// it.
func MP4(t testing.TB, width, height, frames int) []byte {
	t.Helper()
	return Make(t, "clip.mp4", append(Video(width, height, frames), "-c:v", "libx264", "-preset", "ultrafast")...)
}

// Raw returns the frames of a file, decoded by ffmpeg, as 8-bit RGB.
func Raw(t testing.TB, file []byte, format string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clip."+format)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return Run(t, nil, "-i", path, "-map", "0:v:0", "-fps_mode", "passthrough", "-sws_flags", "bilinear", "-pix_fmt", "rgb24", "-f", "rawvideo", "-")
}
