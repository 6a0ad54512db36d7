package export_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/hfcache"
	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/internal/pywheel"
	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/models/export"
)

// begin is what a program of these tests does first: half of a model.
const begin = `import json, os, pathlib, subprocess, sys, time
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
(out / "model.onnx").write_text("weights")
def parity(**more):
    row = {"format": 1, "name": "logits of 1", "value": 2e-7, "limit": 1e-4, "unit": "of the largest value", "comparisons": 4}
    (out / "parity.json").write_text(json.dumps(row | more))
    (out / "scorer.json").write_text(json.dumps({"arguments": sys.argv[1:]}))
`

// newExporter exports with a program in place of clip.py, by the Python of this machine.
func newExporter(t *testing.T, program string) export.Exporter {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("SKIPPED: no program is run without python3 on PATH: %v", err)
	}
	return export.Exporter{
		Models: models.Store{Dir: t.TempDir()}, Interpreter: python,
		Programs: fstest.MapFS{"clip.py": {Data: []byte(begin + program)}, "requirements.txt": {Data: []byte("--no-index\n")}},
	}
}

// mine is a checkpoint in a folder.
func mine(t *testing.T) export.Recipe {
	t.Helper()
	return export.Recipe{Family: "clip", Model: t.TempDir(), Licence: "MIT"}
}

// nothingIn holds that an export which failed has left neither a model nor half of one.
func nothingIn(t *testing.T, s models.Store) {
	t.Helper()
	found, err := os.ReadDir(s.Dir)
	require.NoError(t, err)
	for _, f := range found {
		require.True(t, strings.HasSuffix(f.Name(), ".lock"), f.Name())
	}
}

func TestAnExportIsInTheStoreWithItsParity(t *testing.T) {
	t.Parallel()
	x := newExporter(t, `print("loading\x1b[2J"); print("50 %", end="\r"); parity()`)
	var said []string
	var asked export.Plan
	o := export.Options{
		Output: func(line string, passing bool) { said = append(said, fmt.Sprint(line, passing)) },
		Agree:  func(_ context.Context, p export.Plan) error { asked = p; return nil },
	}
	r := mine(t)
	is, err := x.Export(t.Context(), "mine", r, o)
	require.NoError(t, err)
	assert.Equal(t, []string{"loading [2Jfalse", "50 %true"}, said, "nothing of it moves a terminal's cursor")
	assert.Nil(t, asked.Packages)
	assert.Equal(t, []export.Weights{{Name: r.Model, Licence: "MIT", Here: true}}, asked.Weights)
	assert.InDelta(t, 2e-7, is.Parity.Value, 1e-12)
	assert.False(t, is.Here)
	dir, err := x.Models.Resolve("mine")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "scorer.json"))
	require.NoError(t, err)
	assert.Contains(t, string(text), `"--name", "mine", "--source", "local", "--licence", "MIT", "--model", "`+r.Model+`"`)
	_, err = x.Models.Verify(t.Context(), is.Model)
	require.NoError(t, err)

	o.Agree = func(context.Context, export.Plan) error { return errors.New("nobody is asked again") }
	is, err = x.Export(t.Context(), "mine", r, o)
	require.NoError(t, err)
	assert.True(t, is.Here)
	assert.InDelta(t, 2e-7, is.Parity.Value, 1e-12)
	_, err = x.Export(t.Context(), "mine", r, export.Options{Again: true})
	require.NoError(t, err)
}

func TestAnExportThatFailsLeavesNothingAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		program string
		is      error
		says    []string
	}{
		"raises":           {`raise ValueError("no such layer")`, export.ErrProgram, []string{"clip.py of mine", "ValueError: no such layer"}},
		"says it is wrong": {`sys.exit("export failed: image_embeds of 3: off by 0.3 from PyTorch, at most 0.0001 is right")`, export.ErrParity, []string{"off by 0.3", "nothing was kept"}},
		"is above":         {`parity(value=0.3)`, export.ErrParity, []string{"logits of 1 differs by 0.3 from PyTorch, want at most 0.0001"}},
		"is no number":     {`parity(value=float("nan"))`, export.ErrParity, []string{"parity.json"}},
		"has no limit":     {`parity(limit=0)`, export.ErrParity, []string{"a limit above 0"}},
		"compares nothing": {``, export.ErrParity, []string{"wrote no parity.json"}},
		"is killed":        {`os.kill(os.getpid(), 9)`, export.ErrProgram, []string{"by the kernel if memory was short"}},
		"lacks a package":  {`import no_such_package`, export.ErrProgram, []string{"leave --interpreter out"}},
		"fills the disk":   {`raise OSError(28, "No space left on device")`, pyenv.ErrSpace, []string{"make room"}},
		"has no network":   {`raise OSError("We couldn't connect to the hub")`, export.ErrProgram, []string{"check the network"}},
		"leaves a link":    {`parity(); (out / "tokenizer.json").symlink_to("/etc/passwd")`, models.ErrName, []string{"not a regular file"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newExporter(t, tt.program)
			_, err := x.Export(t.Context(), "mine", mine(t), export.Options{})
			require.ErrorIs(t, err, tt.is)
			for _, text := range tt.says {
				require.ErrorContains(t, err, text)
			}
			nothingIn(t, x.Models)
		})
	}
}

func TestAnExportThatFailsKeepsTheOneThatWasThere(t *testing.T) {
	t.Parallel()
	x := newExporter(t, `parity()`)
	is, err := x.Export(t.Context(), "mine", mine(t), export.Options{})
	require.NoError(t, err)
	worse := newExporter(t, `parity(value=1)`)
	worse.Models = x.Models
	_, err = worse.Export(t.Context(), "mine", mine(t), export.Options{Again: true})
	require.ErrorIs(t, err, export.ErrParity)
	_, err = x.Models.Verify(t.Context(), is.Model)
	require.NoError(t, err)
}

// The program starts another one, as torch does, and both wait for ever.
func TestAnInterruptedExportEndsAllThatItStarted(t *testing.T) {
	t.Parallel()
	x := newExporter(t, `print(subprocess.Popen(["sleep", "600"]).pid); time.sleep(600)`)
	ctx, interrupt := context.WithCancelCause(t.Context())
	pid := 0
	why := errors.New("Ctrl-C")
	_, err := x.Export(ctx, "mine", mine(t), export.Options{Output: func(line string, _ bool) {
		_, _ = fmt.Sscan(line, &pid)
		interrupt(why)
	}})
	require.ErrorIs(t, err, why)
	require.Positive(t, pid)
	require.Eventually(t, func() bool { return gone(pid) }, 30*time.Second, 10*time.Millisecond)
	nothingIn(t, x.Models)
	_, err = newExporterIn(t, x.Models, `parity()`).Export(t.Context(), "mine", mine(t), export.Options{})
	require.NoError(t, err, "its lock is gone with the last of the group")
}

func newExporterIn(t *testing.T, s models.Store, program string) export.Exporter {
	t.Helper()
	x := newExporter(t, program)
	x.Models = s
	return x
}

// gone is true for a process that has ended, also where nobody has waited for it yet.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil && !errors.Is(err, fs.ErrPermission) || strings.Contains(string(text), ") Z ")
}

func TestAnExportEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	x := newExporter(t, `time.sleep(600)`)
	_, err := x.Export(t.Context(), "mine", mine(t), export.Options{Timeout: 200 * time.Millisecond})
	require.ErrorContains(t, err, "not done after 200ms (--timeout)")
	nothingIn(t, x.Models)
}

// The environment has a package that the program needs; packages and weights are agreed to in one question.
func TestAnExportMakesItsEnvironmentFirst(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it makes a Python environment")
	}
	x := newExporter(t, `import dep; assert sys.prefix != sys.base_prefix; parity(name="dep " + dep.__version__)`)
	find, err := pywheel.Contradictory(t.TempDir())
	require.NoError(t, err)
	x.Programs.(fstest.MapFS)["requirements.txt"] = &fstest.MapFile{Data: []byte(find + "new\n")} //nolint:forcetypeassert // newExporter made it
	x.Interpreter, x.Envs = "", pyenv.Store{Dir: t.TempDir()}
	no := export.Options{Agree: func(context.Context, export.Plan) error { return errors.New("no, thank you") }}
	_, err = x.Export(t.Context(), "mine", mine(t), no)
	require.ErrorContains(t, err, "no, thank you")
	nothingIn(t, x.Models)

	asked := 0
	yes := export.Options{Agree: func(_ context.Context, p export.Plan) error {
		asked++
		require.Len(t, p.Packages.Packages, 2)
		require.Len(t, p.Weights, 1)
		return nil
	}}
	is, err := x.Export(t.Context(), "mine", mine(t), yes)
	require.NoError(t, err)
	require.Equal(t, "dep 2.0", is.Parity.Name)
	require.Equal(t, 1, asked)

	x.Envs.Python, x.Envs.Dir = "/no/such/python", t.TempDir()
	_, err = x.Export(t.Context(), "other", mine(t), yes)
	require.ErrorIs(t, err, pyenv.ErrPython)
}

const commit = "0123456789abcdef0123456789abcdef01234567"

// hub says of every repository that it has a checkpoint, and the file of HPSv2.
func hub(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/models/") || strings.Contains(r.URL.Path, "/nobody/") {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"sha": %q, "cardData": {"license": "apache-2.0"}, "siblings": [{"rfilename": "model.safetensors", "size": 4000}, {"rfilename": "pytorch_model.bin", "size": 4000},
			{"rfilename": "config.json", "size": 30}, {"rfilename": "HPS_v2.1_compressed.pt", "size": 2000}, {"rfilename": "aesthetic-model.pth", "size": 7}]}`, commit)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestEveryModelOfTheCatalogueIsExportedFromCommitsThatAreSaidBefore(t *testing.T) {
	t.Parallel()
	want := map[string][]export.Weights{
		"pickscore-v1": {{Name: "yuvalkirstain/PickScore_v1", Size: 4030}, {Name: "laion/CLIP-ViT-H-14-laion2B-s32B-b79K", Size: 30}},
		"hpsv2.1":      {{Name: "hf://xswu/HPSv2/HPS_v2.1_compressed.pt", Size: 2000}},
		"aesthetic-v2": {{Name: "openai/clip-vit-large-patch14", Size: 4030}, {Name: "hf://trl-lib/ddpo-aesthetic-predictor/aesthetic-model.pth", Size: 7}},
	}
	for _, m := range models.Catalogue() {
		if m.Export == "" {
			continue
		}
		r, err := export.Find(m.Name)
		require.NoError(t, err)
		require.Equal(t, m.Licence.SPDX, r.Licence)
		require.Equal(t, "rewardloop models export "+m.Name, m.Export)
		x := newExporter(t, `parity()`)
		x.Models.Endpoint = hub(t)
		x.Programs.(fstest.MapFS)["aesthetic.py"] = x.Programs.(fstest.MapFS)["clip.py"] //nolint:forcetypeassert // newExporter made it
		var plan export.Plan
		_, err = x.Export(t.Context(), m.Name, r, export.Options{Agree: func(_ context.Context, p export.Plan) error { plan = p; return nil }})
		require.NoError(t, err)
		for i := range want[m.Name] {
			want[m.Name][i].Commit, want[m.Name][i].Licence = commit, "apache-2.0"
		}
		require.Equal(t, want[m.Name], plan.Weights)
		text, err := os.ReadFile(filepath.Join(x.Models.Dir, m.Name, "scorer.json"))
		require.NoError(t, err)
		require.Contains(t, string(text), "@"+commit)
		require.NotContains(t, string(text), "@main")
		delete(want, m.Name)
	}
	require.Empty(t, want)
}

func TestWeightsThatCannotBeHadEndAnExportBeforeAnythingIsDownloaded(t *testing.T) {
	t.Parallel()
	x := newExporter(t, `parity()`)
	x.Models.Endpoint = "http://127.0.0.1:1"
	never := export.Options{Agree: func(context.Context, export.Plan) error { return errors.New("asked") }}
	r := export.Recipe{Family: "clip", Model: "owner/name"}
	_, err := x.Export(t.Context(), "mine", r, never)
	require.ErrorContains(t, err, "the weights: download failed: owner/name: no answer from http://127.0.0.1:1")
	require.ErrorContains(t, err, "`hf download owner/name`")
	x.Models.Offline = "HF_HUB_OFFLINE=1"
	_, err = x.Export(t.Context(), "mine", r, never)
	require.ErrorContains(t, err, "HF_HUB_OFFLINE=1 forbids access to the hub")

	x.Models.Hub = hfcache.Cache{Dir: t.TempDir()}
	folder := filepath.Join(x.Models.Hub.Dir, "models--owner--name")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "snapshots", commit), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "refs"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "refs", "main"), []byte(commit), 0o600))
	_, err = x.Export(t.Context(), "mine", r, export.Options{})
	require.NoError(t, err, "the cache has them")

	x.Models.Endpoint, x.Models.Offline, x.Models.Hub = hub(t), "", hfcache.Cache{}
	r.Model = "nobody/name"
	_, err = x.Export(t.Context(), "yours", r, never)
	require.ErrorContains(t, err, "correct the name or the revision")
	_, err = x.Export(t.Context(), "yours", export.Recipe{Family: "clip", Args: []string{"--hpsv2", "hf://owner/name/other.pt"}}, never)
	require.ErrorContains(t, err, "owner/name@main has no other.pt")
}

func TestARecipeIsRefusedBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	x := export.Exporter{Models: models.Store{Dir: t.TempDir()}}
	for says, r := range map[string]export.Recipe{
		"want one of aesthetic, clip, siglip, text_rm": {Family: "os", Model: "owner/name"},
		"no checkpoint":                  {Family: "clip"},
		"is neither a folder":            {Family: "clip", Model: "./none"},
		"--out after --":                 {Family: "clip", Model: "owner/name", Args: []string{"--out=/etc"}},
		"want hf://owner/repository/fil": {Family: "clip", Args: []string{"--hpsv2", "hf://x"}},
	} {
		_, err := x.Export(t.Context(), "mine", r, export.Options{})
		require.ErrorIs(t, err, export.ErrRecipe)
		require.ErrorContains(t, err, says)
	}
	_, err := x.Export(t.Context(), "../mine", mine(t), export.Options{})
	require.ErrorIs(t, err, models.ErrName)
	_, err = export.Find("smolvlm-256m")
	require.ErrorContains(t, err, "`rewardloop models pull smolvlm-256m` downloads it")
	_, err = export.Find("nothing")
	require.ErrorIs(t, err, models.ErrUnknown)
	require.ErrorContains(t, err, "aesthetic-v2, hpsv2.1, pickscore-v1 to export")
}
