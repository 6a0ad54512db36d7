package ffmpeg_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/media/ffmpeg"
)

func TestMain(m *testing.M) {
	if code, child := subprocess.Main(os.Args[1:]); child {
		os.Exit(code)
	}
	if len(os.Args) == 3 && os.Args[1] == "decode" {
		decodeFor(os.Args[2])
	}
	goleak.VerifyTestMain(m)
}

// decodeFor is a process that decodes with a program until it is killed.
func decodeFor(program string) {
	r, err := ffmpeg.New(program)
	if err == nil {
		err = r.Play(context.Background(), media.Playing{Args: []string{media.Input}, Memory: 1 << 30, Time: time.Hour}, func(out io.Reader) error {
			_, err := io.Copy(io.Discard, out)
			return err
		})
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
