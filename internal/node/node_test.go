package node_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

// start brings a node up on a free port.
func start(t *testing.T, overrides ...string) (n *node.Node, url string) {
	t.Helper()
	overrides = append([]string{"++server.listen=127.0.0.1:0"}, overrides...)
	cfg, err := config.Load("", overrides, os.LookupEnv)
	require.NoError(t, err)
	n, err = node.New(node.Options{Config: cfg, Version: "test"})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(n.Stop)
	addr, err := n.Listen(t.Context())
	require.NoError(t, err)
	return n, addr.String()
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
		root = filepath.Join("..", "..", "testdata", "golden")
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

// reading is what a result says was read.
func reading(t *testing.T, details map[string]any) string {
	t.Helper()
	b, err := json.Marshal(details)
	require.NoError(t, err)
	return string(b)
}

func TestANodeIsReadyWhenTheKnownPictureGetsItsKnownScore(t *testing.T) {
	t.Parallel()
	_, addr := start(t, "reward.custom_reward_function.path=builtin://jpeg_compressibility")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/readyz", http.NoBody)
	require.NoError(t, err)
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
}

func TestANodeWithoutARewardIsRefused(t *testing.T) {
	t.Parallel()
	_, err := node.New(node.Options{Config: config.Default()})
	require.ErrorContains(t, err, "names no reward")
}

// The children that read are killed once a second, from outside, while 500 samples
// go over a real websocket: each gets one result, read from its own picture.
func TestFiveHundredSamplesWithATesseractChildKilledEverySecondGetOneResultEach(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	if _, err := tesseract.Available(); err != nil {
		t.Skipf("no Tesseract: %v", err)
	}
	if len(tesseract.Kinds()) == 0 {
		t.Skip("Tesseract is not compiled in: there are no lasting children to kill")
	}
	const samples = 500
	n, addr := start(t, "+reward.reward_functions.ocr.path=builtin://ocr", "+reward.reward_functions.ocr.required=true", "reward.num_workers=2", "++loop.workers.slots=2", "++pool.tesseract.slots=2")
	all := pictures(t, 4)
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "kills"})
	require.NoError(t, err)
	want := make([]string, len(all)) // the undisturbed readings
	for i, p := range all {
		f, err := c.Submit(t.Context(), p.sample("undisturbed-"+p.ID), 0)
		require.NoError(t, err)
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
		want[i] = reading(t, res.Details)
	}
	over, killed := make(chan struct{}), make(chan int)
	go func() { killed <- killChildren(n, over) }()
	futures := make([]*client.Future, samples)
	for i := range futures {
		futures[i], err = c.Submit(t.Context(), all[i%len(all)].sample(fmt.Sprint(i)), 0)
		require.NoError(t, err)
	}
	scored := 0
	for i, f := range futures {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		if res.Outcome != rewards.Scored { // hit on every try: failed by name
			require.Equal(t, rewards.Crashed, res.Errors[0].Class, res.Errors)
			continue
		}
		scored++
		require.Equal(t, want[i%len(all)], reading(t, res.Details), "sample %d has another picture's reading", i)
	}
	close(over)
	kills := <-killed
	t.Logf("%d of %d scored under %d kills", scored, samples, kills)
	require.Positive(t, kills)
	require.Greater(t, scored, samples*9/10)
	require.NoError(t, c.Close())
}

// killChildren kills a reading child every second and returns how many it killed.
func killChildren(n *node.Node, over <-chan struct{}) int {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for kills := 0; ; {
		select {
		case <-over:
			return kills
		case <-tick.C:
			if stats := n.Children()["tesseract"]; len(stats.PIDs) > 0 {
				if p, err := os.FindProcess(stats.PIDs[kills%len(stats.PIDs)]); err == nil && p.Kill() == nil {
					kills++
				}
			}
		}
	}
}
