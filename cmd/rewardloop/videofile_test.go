package main_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/jpeg"
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	main "github.com/rewardloop/rewardloop/cmd/rewardloop"
	"github.com/rewardloop/rewardloop/rewards"
	clips "github.com/rewardloop/rewardloop/testkit/clip"
)

// The binary scores the file of a video that comes over HTTP, and shows a strip of its frames afterwards.
func TestAVideosFileOverHTTPIsScoredAndHasAThumbnail(t *testing.T) {
	t.Parallel()
	file := clips.MP4(t, 64, 48, 9)
	wav := clips.Make(t, "a.wav", "-f", "lavfi", "-i", "sine=d=1")
	_, addr := main.Serving(t, fmt.Sprintf("reward:\n  custom_reward_function: {path: \"builtin://jpeg_incompressibility\", reward_kwargs: {frames: \"uniform:3\"}}\nstore: {path: %s}\n",
		filepath.Join(t.TempDir(), "kept.db")))
	body, err := json.Marshal(map[string]any{
		"prompt": "a clock", "videos": []any{map[string]string{"b64": base64.StdEncoding.EncodeToString(file)}},
		"audios": []any{map[string]string{"b64": base64.StdEncoding.EncodeToString(wav)}},
	})
	require.NoError(t, err)
	answer, err := http.Post("http://"+addr+"/v1/score", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer answer.Body.Close()
	var scored struct {
		Results []struct {
			Outcome rewards.Outcome
			Details json.RawMessage
			Errors  json.RawMessage
		}
	}
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&scored))
	require.Len(t, scored.Results, 1)
	require.Equal(t, rewards.Scored, scored.Results[0].Outcome, "%s", scored.Results[0].Errors)
	assert.Contains(t, string(scored.Results[0].Details), `"frames":[0,3,6]`)

	var strip []byte
	require.Eventually(t, func() bool {
		got, err := http.Get("http://" + addr + "/v1/results/1/media/1") // its media are in the order of the request's keys: audios, videos
		if err != nil {
			return false
		}
		defer got.Body.Close()
		strip, err = io.ReadAll(got.Body)
		return err == nil && got.StatusCode == http.StatusOK
	}, 30*time.Second, 20*time.Millisecond, "no thumbnail was made")
	picture, err := jpeg.Decode(bytes.NewReader(strip))
	require.NoError(t, err)
	assert.Positive(t, picture.Bounds().Dx())

	playlist := base64.StdEncoding.EncodeToString([]byte("#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"))
	refused, err := http.Post("http://"+addr+"/v1/score", "application/json", bytes.NewReader([]byte(`{"videos": [{"b64": "`+playlist+`"}]}`)))
	require.NoError(t, err)
	defer refused.Body.Close()
	said, err := io.ReadAll(refused.Body)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, refused.StatusCode, 400, "%s", said)
	assert.NotContains(t, string(said), "root:")
}
