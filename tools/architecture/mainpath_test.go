package architecture_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/png"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/disintegration/imaging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
)

// given are the packages that the service is to be built with: what it must call of each,
// in what binary, and which of its own packages calls it.
var given = []struct{ pkg, function, caller, tag string }{
	{"github.com/gorilla/websocket", "(*Upgrader).Upgrade", "internal/wsconn", ""},
	{"github.com/gorilla/websocket", "(*Conn).NextReader", "internal/wsconn", ""},
	{"github.com/gorilla/websocket", "(*Conn).NextWriter", "internal/wsconn", ""},
	{"github.com/gin-gonic/gin", "New", "server", ""},
	{"github.com/gin-gonic/gin", "(*Engine).Use", "server", ""},
	{"github.com/disintegration/imaging", "Resize", "media", ""},
	{"github.com/yalue/onnxruntime_go", "InitializeEnvironment", "pool/ort", "cgo"},
	{"github.com/yalue/onnxruntime_go", "NewDynamicAdvancedSession", "pool/ort", "cgo"},
	{"github.com/otiai10/gosseract/v2", "(*Client).SetImageFromBytes", "rewards/ocr/tesseract", "tesseract"},
	{"github.com/otiai10/gosseract/v2", "(*Client).GetBoundingBoxes", "rewards/ocr/tesseract", "tesseract"},
}

// finders is, for every symbol of a linked binary, the one by which the linker came upon it.
// It begins with what the runtime needs and with main.main, and drops what it does not come upon.
func finders(t *testing.T, tags string) map[string]string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it builds the program")
	}
	// A tag of its own: Go keeps what a linker said, not knowing that this one was asked to, and
	// would print it again when the same program is built otherwise.
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", tags+",dumpdep", "-ldflags=-dumpdep",
		"-o", filepath.Join(t.TempDir(), "rewardloop"), "./cmd/rewardloop")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out[:min(len(out), 4096)])
	bare := strings.NewReplacer(" <UsedInIface>", "", " <ReflectMethod>", "")
	finder := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		from, to, ok := strings.Cut(bare.Replace(lines.Text()), " -> ")
		if _, known := finder[to]; ok && !known {
			finder[to] = from
		}
	}
	require.NoError(t, lines.Err())
	require.Greater(t, len(finder), 10_000, "the linker has told little")
	return finder
}

// way is how the linker came upon a symbol: from main.main, or from what came before it.
func way(finder map[string]string, to string) []string {
	path := []string{to}
	for len(path) < 1000 {
		last := path[len(path)-1]
		from, ok := finder[last]
		if !ok || last == "main.main" {
			break
		}
		path = append(path, from)
	}
	slices.Reverse(path)
	return path
}

// The five packages are on the path of the command: not merely in the module's list, nor
// among what it imports, but called by the package that is their corner, in code that
// main.main reaches. The linker keeps nothing else.
func TestTheGivenPackagesAreOnTheMainPath(t *testing.T) {
	t.Parallel()
	said, err := exec.CommandContext(t.Context(), "scripts/tags.sh").Output()
	require.NoError(t, err)
	tags := strings.TrimSpace(string(said))
	cgo, err := exec.CommandContext(t.Context(), "go", "env", "CGO_ENABLED").Output()
	require.NoError(t, err)
	finder := finders(t, tags)
	for _, g := range given {
		t.Run(g.pkg[strings.LastIndex(g.pkg, "/")+1:]+" "+g.function, func(t *testing.T) {
			t.Parallel()
			if g.tag == "tesseract" && !strings.Contains(tags, g.tag) {
				t.Skip("SKIPPED: the headers of Tesseract are not here, so it is not compiled in")
			}
			if g.tag != "" && strings.TrimSpace(string(cgo)) != "1" {
				t.Skip("SKIPPED: no cgo, so it is not compiled in")
			}
			path := way(finder, g.pkg+"."+g.function)
			said := strings.ReplaceAll(strings.Join(path, " → "), module+"/", "")
			require.Equal(t, "main.main", path[0], "main does not reach it: %s", said)
			require.True(t, strings.HasPrefix(path[len(path)-2], module+"/"+g.caller+"."), "%s does not call it: %s", g.caller, said)
			t.Log(said)
		})
	}
	// Were everything kept, this would prove nothing.
	_, kept := finder["github.com/disintegration/imaging.Sharpen"]
	assert.False(t, kept, "the linker keeps what nothing calls")
}

// shows is an OpenAI-compatible engine that keeps the pictures it is shown.
func shows(t *testing.T, answer string) (url string, shown chan image.Image) {
	t.Helper()
	shown = make(chan image.Image, 64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		const head = `"data:image/png;base64,`
		for _, part := range strings.Split(string(body), head)[1:] {
			coded, _, _ := strings.Cut(part, `"`)
			data, err := base64.StdEncoding.DecodeString(coded)
			assert.NoError(t, err)
			img, err := png.Decode(bytes.NewReader(data))
			assert.NoError(t, err)
			shown <- img
		}
		w.Header().Set("Content-Type", "application/json")
		said, err := json.Marshal(map[string]any{"choices": []any{map[string]any{
			"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": answer},
		}}, "usage": map[string]int{"prompt_tokens": 9, "completion_tokens": 3}})
		assert.NoError(t, err)
		_, _ = w.Write(said)
	}))
	t.Cleanup(s.Close)
	return s.URL, shown
}

// serving brings a node up as `rewardloop serve` does.
func serving(t *testing.T, overrides ...string) (n *node.Node, addr string) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	cfg, err := config.Load("", append([]string{"++server.listen=127.0.0.1:0"}, overrides...), os.LookupEnv)
	require.NoError(t, err)
	n, err = node.New(node.Options{Config: cfg, Version: "test"})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(n.Stop)
	at, err := n.Listen(t.Context())
	require.NoError(t, err)
	return n, at.String()
}

// dialled is a client of a run.
func dialled(t *testing.T, addr, run string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: run})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// scored has samples scored, all at once.
func scored(t *testing.T, c *client.Client, samples ...rewards.Sample) {
	t.Helper()
	futures := make([]*client.Future, len(samples))
	for i := range samples {
		var err error
		futures[i], err = c.Submit(t.Context(), &samples[i], 0)
		require.NoError(t, err)
	}
	for _, f := range futures {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
	}
}

// speckled is a picture of w × h pixels, raw and as imaging takes it.
func speckled(w, h int, seed uint64) (*rewards.Media, *image.NRGBA) {
	rng := rand.New(rand.NewPCG(seed, 0))
	raw, img := make([]byte, 0, 3*w*h), image.NewNRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		for c := range 3 {
			v := byte(rng.Uint32())
			raw = append(raw, v)
			img.Pix[4*i+c] = v
		}
		img.Pix[4*i+3] = 255
	}
	return &rewards.Media{Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{h, w, 3}, Data: raw}, img
}

// Scorers that resize what they show to a model do it with imaging, with little but their
// bound configured: what arrives at the engine is what imaging.Resize makes of the sample's
// own pixels with CatmullRom, bit for bit.
func TestScorersResizeWithImagingUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scorer, answer string
		more           []string
	}{
		"judge":    {"judge", "<score>0.5</score>", []string{"template=How good is this picture?"}},
		"pairwise": {"pairwise", "<result>A</result>", []string{"image_format=png"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, shown := shows(t, c.answer)
			const side, component = 32, "+reward.reward_functions.it."
			overrides := []string{
				"reward.reward_model.enable=true", "reward.reward_model.model_path=m", "reward.reward_model.rollout.name=external",
				"+reward.reward_model.rollout.base_urls=[" + engine + "/v1]",
				component + "path=builtin://" + c.scorer, component + "required=true", component + "resize=32",
			}
			for _, option := range c.more {
				overrides = append(overrides, component+option)
			}
			_, addr := serving(t, overrides...)
			first, large := speckled(97, 61, 1)
			second, larger := speckled(80, 120, 2)
			scored(t, dialled(t, addr, "resize"),
				rewards.Sample{ID: "a", UID: "g", GroupSize: 2, Prompt: "p", Media: []*rewards.Media{first}},
				rewards.Sample{ID: "b", UID: "g", GroupSize: 2, Prompt: "p", Media: []*rewards.Media{second}})
			want := map[string]bool{
				string(imaging.Resize(large, side, side, imaging.CatmullRom).Pix):  true,
				string(imaging.Resize(larger, side, side, imaging.CatmullRom).Pix): true,
			}
			seen := map[string]bool{}
			for close(shown); ; {
				img, more := <-shown
				if !more {
					break
				}
				pix := string(imaging.Clone(img).Pix)
				assert.True(t, want[pix], "a picture that imaging has not made")
				seen[pix] = true
			}
			assert.Len(t, seen, 2, "both pictures were shown")
		})
	}
}
