package node_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
)

// start brings a node up on a free port.
func start(t *testing.T, overrides ...string) (n *node.Node, addr string) {
	t.Helper()
	return startWith(t, nil, overrides...)
}

// startWith is start with further scorers.
func startWith(t *testing.T, scorers []rewards.Spec, overrides ...string) (n *node.Node, addr string) {
	t.Helper()
	overrides = append([]string{"++server.listen=127.0.0.1:0"}, overrides...)
	cfg, err := config.Load("", overrides, os.LookupEnv)
	require.NoError(t, err)
	n, err = node.New(node.Options{Config: cfg, Version: "test", Scorers: scorers})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(n.Stop)
	at, err := n.Listen(t.Context())
	require.NoError(t, err)
	return n, at.String()
}

// picture is one golden OCR picture.
type picture struct {
	ID     string `json:"id"`
	Image  string `json:"image"`
	Prompt string `json:"prompt"`
	data   []byte
}

// pictures reads every nth golden OCR picture.
func pictures(t *testing.T, nth int) []picture {
	t.Helper()
	root := os.Getenv("REWARDLOOP_GOLDEN")
	if root == "" {
		root = filepath.Join("..", "testdata", "golden")
	}
	f, err := os.Open(filepath.Join(root, "ocr", "samples.jsonl"))
	if os.IsNotExist(err) {
		t.Skipf("no golden OCR pictures: %v", err)
	}
	require.NoError(t, err)
	defer f.Close()
	var all []picture
	lines := bufio.NewScanner(f)
	for i := 0; lines.Scan(); i++ {
		if i%nth != 0 {
			continue
		}
		var p picture
		require.NoError(t, json.Unmarshal(lines.Bytes(), &p))
		p.data, err = os.ReadFile(filepath.Join(root, "ocr", p.Image))
		require.NoError(t, err)
		all = append(all, p)
	}
	return all
}

func (p picture) sample(id string) *rewards.Sample {
	return &rewards.Sample{ID: id, Prompt: p.Prompt, Media: []*rewards.Media{{
		Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{len(p.data)}, Data: p.data,
	}}}
}

func TestANodeIsReadyWhenTheKnownPictureGetsItsKnownScore(t *testing.T) {
	t.Parallel()
	_, addr := start(t, "reward.custom_reward_function.path=builtin://jpeg_compressibility")
	transport := &http.Transport{DisableKeepAlives: true}
	require.Eventually(t, func() bool { // its workers' first word may be on its way
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/readyz", http.NoBody)
		require.NoError(t, err)
		res, err := transport.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode == http.StatusOK
	}, 20*time.Second, 10*time.Millisecond)
}

func TestANodeWithoutARewardIsRefused(t *testing.T) {
	t.Parallel()
	_, err := node.New(node.Options{Config: config.Default()})
	require.ErrorContains(t, err, "names no reward")
}
