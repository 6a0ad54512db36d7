package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

func TestNoPathLeavesTheMediaRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	picture, _ := drawing(t, 3)
	secret := put(t, dir, "secret.png", picture)
	put(t, dir, "root/in/a.png", picture)
	put(t, dir, "frames/1.png", picture)
	require.NoError(t, os.Symlink(secret, filepath.Join(dir, "root", "link.png")))
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "root", "up")))
	require.NoError(t, os.Symlink("in/a.png", filepath.Join(dir, "root", "within.png")))
	escapes := []string{
		`"image": "../secret.png"`, `"image": "in/../../secret.png"`, `"image": "` + secret + `"`, `"image": "link.png"`,
		`"image": "up/secret.png"`, `"images": ["in/a.png", "../secret.png"]`, `"video": "../frames"`, `"video": ["in/a.png", "link.png"]`,
	}
	lines := []string{`{"id": "a", "image": "in/a.png"}`, `{"id": "b", "image": "in/../in/a.png"}`, `{"id": "c", "image": "within.png"}`}
	stays := len(lines)
	for _, e := range escapes {
		lines = append(lines, `{"id": "x", `+e+`}`)
	}
	got, out := scored(t, dir, lines, "--media-root", filepath.Join(dir, "root"))
	require.Equal(t, exitFailure, got.code)
	for i, r := range out {
		if i < stays {
			require.Equal(t, rewards.Scored, r.Outcome, lines[i])
			continue
		}
		require.Equal(t, rewards.Rejected, r.Outcome, lines[i])
		require.Contains(t, r.Errors[0].Message, "--media-root", lines[i])
	}
}

func TestTheFramesOfAVideoAreAFolderInNaturalOrderOrAList(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, want := drawing(t, 2)
	second, other := drawing(t, 10)
	put(t, dir, "v/frame_2.png", first)
	put(t, dir, "v/frame_10.png", second)
	put(t, dir, "v/.thumbs", []byte("not a frame"))
	got, out := scored(t, dir, []string{
		`{"id": "folder", "video": "v"}`, `{"id": "list", "video": ["v/frame_10.png", "v/frame_2.png"]}`, `{"id": "images", "images": ["v/frame_2.png", "v/frame_10.png"]}`,
	})
	require.Equal(t, exitOK, got.code, got.stderr)
	// The reward looks at the first frame.
	require.InDelta(t, want, *out[0].RewardScore, 1e-12)
	require.InDelta(t, other, *out[1].RewardScore, 1e-12)
	require.InDelta(t, want, *out[2].RewardScore, 1e-12)
}

func TestTooManyFramesAndTooLargePicturesAreRejectedBeforeTheyAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	picture, _ := drawing(t, 2)
	for i := range 9 {
		put(t, dir, fmt.Sprintf("v/%d.png", i), picture)
	}
	big := put(t, dir, "big.png", picture)
	require.NoError(t, os.Truncate(big, 8<<20)) // sparse
	got, out := scored(t, dir, []string{`{"id": "v", "video": "v"}`, `{"id": "big", "image": "big.png"}`, `{"id": "a", "image": "v/1.png"}`},
		"++pool.decode.max_frames=8", "++loop.message_bytes=4MiB")
	require.Equal(t, exitFailure, got.code, got.stderr)
	require.Contains(t, out[0].Errors[0].Message, "9 frames")
	require.Contains(t, out[1].Errors[0].Message, "8388608 bytes")
	require.Equal(t, rewards.TooLarge, out[1].Errors[0].Class)
	require.Equal(t, rewards.Scored, out[2].Outcome)
}
