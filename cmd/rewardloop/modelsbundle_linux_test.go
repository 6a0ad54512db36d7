package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pywheel"
	"github.com/rewardloop/rewardloop/pool/ort"
)

// served starts a server and scores a picture and a text over HTTP. In a network namespace it
// unbundles first, after it has seen that there is no route.
const served = `
import fcntl, json, os, re, socket, struct, subprocess, sys, urllib.request
program, picture, bundle = sys.argv[1:]
if bundle:
    fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh22x", b"lo", 0x41))  # lo up
    try:
        socket.create_connection(("192.0.2.1", 80), 5)
        sys.exit("there is a network")
    except OSError as e:
        if "unreachable" not in str(e):
            sys.exit(f"there is a route: {e}")
    subprocess.run([program, "models", "unbundle", bundle], check=True, stdout=sys.stderr)
server = subprocess.Popen([program, "serve", "-c", "cfg.yaml"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
try:
    said, address = "", None
    for line in server.stderr:
        said += line
        address = re.search(r"msg=serving\b.*?(127\.0\.0\.1:\d+)", line)
        if address:
            break
    if not address:
        sys.exit(said)
    import threading
    threading.Thread(target=server.stderr.read, daemon=True).start()
    def post(kind, body):
        request = urllib.request.Request(f"http://{address[1]}/v1/score", data=body, headers={"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["results"][0]
    def part(name, content, file=""):
        return f'--frontier\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + content + b"\r\n"
    sample = {"reward": "picture", "prompt": 'A poster that says "Opal Bookshop"', "images": [{"file": "poster"}]}
    with open(picture, "rb") as f:
        body = part("samples", json.dumps(sample).encode()) + part("poster", f.read(), '; filename="p.jpg"') + b"--frontier--\r\n"
    text = {"reward": "text", "prompt": "p", "response": "a b"}
    print(json.dumps([post("multipart/form-data; boundary=frontier", body), post("application/json", json.dumps(text).encode())]))
finally:
    server.terminate()
    server.wait(60)
`

// carried is a machine with a network: models, ONNX Runtime, and a configuration that reads pictures
// with PP-OCR and has a Python entry with an environment.
func carried(t *testing.T) *envCalls {
	t.Helper()
	c := newEnvCalls(t)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	found, err := filepath.Glob(filepath.Join(root, ".cache", "models", "*PP-OCRv4*.onnx"))
	require.NoError(t, err)
	cls, err := filepath.Glob(filepath.Join(root, ".cache", "models", "ch_ppocr_mobile_v2*.onnx"))
	require.NoError(t, err)
	library := os.Getenv(ort.LibraryEnv)
	if library == "" {
		libraries, err := filepath.Glob(filepath.Join(root, ".cache", "ort", "*", "libonnxruntime.so.*"))
		require.NoError(t, err)
		if len(libraries) > 0 {
			library = libraries[0]
		}
	}
	if len(found) < 2 || len(cls) < 1 || library == "" {
		t.Skip("SKIPPED: make models and make ort bring PP-OCR and ONNX Runtime")
	}
	for _, at := range append(found, cls...) {
		at, err := filepath.EvalSymlinks(at)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(c.dir, "models"), 0o755))
		require.NoError(t, os.Symlink(at, filepath.Join(c.dir, "models", filepath.Base(at))))
	}
	_, err = pywheel.Contradictory(filepath.Join(c.dir, "wheels"))
	require.NoError(t, err)
	put(t, c.dir, "mine.py", []byte(`
import dep, old, sys

def compute_score(solution_str):
    return {"score": len(solution_str) + float(dep.__version__) / 4, "version": dep.__version__}
`))
	put(t, c.dir, "mine.txt", []byte("--no-index\n--find-links wheels\nold\n"))
	put(t, c.dir, "cfg.yaml", []byte(`
reward: {num_workers: 1, reward_functions: {size: {path: "builtin://jpeg_compressibility", required: true}}}
rewards:
  picture: {reward_functions: {read: {path: "builtin://ocr", required: true, reader: ppocr}}}
  text:
    reward_functions:
      mine: {path: mine.py, required: true, extra_keys: {version: string}, environment: {requirements: mine.txt}}
      bare: {path: mine.py, required: true, weight: 0, extra_keys: {version: string}, environment: {requirements: mine.txt}}
server: {listen: "127.0.0.1:0"}
`))
	c.vars = append(c.vars, "REWARDLOOP_MODELS="+filepath.Join(c.dir, "models"), ort.LibraryEnv+"="+library)
	return c
}

// scoredBeside runs the client beside a server of its own.
func scoredBeside(t *testing.T, command []string, dir string, vars []string, folder string) (both []struct {
	Outcome string         `json:"outcome"`
	Score   float64        `json:"reward_score"`
	Extra   map[string]any `json:"reward_extra_info"`
},
) {
	t.Helper()
	picture, err := filepath.Abs(filepath.Join("..", "..", "testdata", "golden", "ocr", "g00_1.jpg"))
	require.NoError(t, err)
	args := append(command, needPython(t), "-c", served, binary(t), picture, folder)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, vars
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s", said.String(), out)
	require.NoError(t, json.Unmarshal(out, &both), "%s\n%s", said.String(), out)
	require.Len(t, both, 2)
	return both
}

func TestABundleServesInANetworkNamespaceWithoutARoute(t *testing.T) {
	t.Parallel()
	c := carried(t)
	if out, err := exec.Command("unshare", "--net", "true").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no network namespace can be made here: %v: %s", err, out)
	}
	got := c.do(t, "models", "bundle", "-c", "cfg.yaml", "--out", "bundle", "--part-size", "8MiB", "--yes")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "model ppocr-v4-mobile, 16.2 MB\n  licence Apache-2.0, Baidu (PaddleOCR)")
	require.Contains(t, got.stdout, "2 packages, for rewards.text.reward_functions.bare, rewards.text.reward_functions.mine")
	notices, err := os.ReadFile(filepath.Join(c.dir, "bundle", noticesName))
	require.NoError(t, err)
	require.Contains(t, string(notices), "licence Apache-2.0, Baidu (PaddleOCR)")
	require.Contains(t, string(notices), "dep 1.0: Apache-2.0")

	require.Equal(t, exitOK, c.do(t, "env", "make", "-c", "cfg.yaml", "--yes").code)
	outside := scoredBeside(t, nil, c.dir, c.vars, "")
	require.Equal(t, "scored", outside[0].Outcome)
	require.Equal(t, "scored", outside[1].Outcome)
	require.InDelta(t, 1, outside[0].Score, 0.01)
	require.InDelta(t, 3.25, outside[1].Score, 1e-9)
	require.Equal(t, "1.0", outside[1].Extra["reward/mine/version"])

	// The other machine has the configuration and the bundle, and nothing of what they were made of.
	for _, name := range []string{"models", "wheels"} {
		require.NoError(t, os.RemoveAll(filepath.Join(c.dir, name)))
	}
	require.NoError(t, os.RemoveAll(c.envs))
	fresh := t.TempDir()
	vars := c.vars
	for _, name := range []string{"REWARDLOOP_MODELS", "REWARDLOOP_ENVS", ort.LibraryEnv} {
		vars = without(vars, name)
	}
	vars = append(vars, "REWARDLOOP_MODELS="+filepath.Join(fresh, "models"), "REWARDLOOP_ENVS="+filepath.Join(fresh, "envs"))
	inside := scoredBeside(t, []string{"unshare", "--net"}, c.dir, vars, "bundle")
	for i := range outside {
		require.Equal(t, outside[i].Outcome, inside[i].Outcome)
		require.InDelta(t, outside[i].Score, inside[i].Score, 1e-9)
	}
	require.Equal(t, "1.0", inside[1].Extra["reward/mine/version"])
	require.FileExists(t, filepath.Join(fresh, "models", "manifest.json"))
}

func TestADiskWithoutRoomForABundleIsRefusedBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	folder := bundled(t)
	dir := SmallDisk(t, 1<<20)
	got := modelsIn(t.Context(), map[string]string{"REWARDLOOP_MODELS": dir, "REWARDLOOP_ENVS": t.TempDir()}, "unbundle", folder)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "not enough disk space: the bundle needs 3.0 MB and "+dir+" has ")
	empty(t, dir)
}
