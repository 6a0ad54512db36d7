package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	main "github.com/rewardloop/rewardloop/cmd/rewardloop"
	"github.com/rewardloop/rewardloop/rewards"
	clips "github.com/rewardloop/rewardloop/testkit/clip"
)

func TestScoreTakesTheFilesOfVideosAndSounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	put("a.mp4", clips.MP4(t, 64, 48, 9))
	put("b.gif", clips.Make(t, "b.gif", clips.Video(64, 48, 9)...))
	put("c.wav", clips.Make(t, "c.wav", "-f", "lavfi", "-i", "sine=d=1"))
	config := put("cfg.yaml", []byte("reward:\n  reward_functions:\n    size:\n      path: builtin://jpeg_incompressibility\n      frames: every:4\n"))
	in := put("in.jsonl", []byte(`{"id": "1", "video": "a.mp4", "audio": "c.wav"}
{"id": "2", "video": "b.gif"}
{"id": "3", "video": "c.wav"}
{"id": "4", "audio": "a.mp4"}
`))
	page := filepath.Join(dir, "report.html")
	main.Call(t, "score", "-c", config, "-i", in, "-o", page)
	report, err := os.ReadFile(page)
	require.NoError(t, err)
	out := filepath.Join(dir, "out.jsonl")
	_, said := main.Call(t, "score", "-c", config, "-i", in, "-o", out)
	lines, err := os.ReadFile(out)
	require.NoError(t, err, "%s", said)
	rows := strings.Split(strings.TrimSpace(string(lines)), "\n")
	require.Len(t, rows, 4)
	for _, line := range rows[:2] {
		var row struct {
			Outcome rewards.Outcome
			Details json.RawMessage
		}
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		require.Equal(t, rewards.Scored, row.Outcome, line)
		assert.Contains(t, strings.ReplaceAll(string(row.Details), " ", ""), `"frames":[0,4,8]`)
	}
	assert.Contains(t, string(lines), "c.wav is neither a folder nor a video")
	assert.Contains(t, string(lines), "a.mp4 is neither a WAV nor a FLAC file")
	assert.GreaterOrEqual(t, strings.Count(string(report), "data:image/jpeg;base64,"), 12, "six frames of each video")
}
