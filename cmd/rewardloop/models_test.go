package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/models"
)

// modelsIn calls the command with a folder and an environment of its own.
func modelsIn(ctx context.Context, vars map[string]string, args ...string) outcome {
	var stdout, stderr lockedBuffer
	code := run(ctx, append([]string{"models"}, args...), env{
		stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr,
		getenv: func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
	})
	return outcome{code, stdout.String(), stderr.String()}
}

// hub serves one file as a Hugging Face endpoint would and counts who asks.
func hub(t *testing.T, content []byte) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/owner/repository/resolve/c0ffee/onnx/model.onnx" {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	t.Cleanup(s.Close)
	return s, &asked
}

// noPython is a program that fails, in place of Python: nothing can be downloaded by pip.
func noPython(t *testing.T) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(at, []byte("#!/bin/sh\nexit 1\n"), 0o700))
	return at
}

func TestModelsListNamesFilesSizesLicencesSourcesAndWhatIsHere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := models.Find("ppocr-v4-mobile")
	require.NoError(t, err)
	got := modelsIn(t.Context(), map[string]string{"REWARDLOOP_MODELS": dir}, "list", m.Name, "pickscore-v1")
	require.Equal(t, exitOK, got.code, got.stderr)
	for _, f := range m.Files {
		require.Regexp(t, f.Role+` +`+f.Name+` +[0-9.]+ MB +absent +`+f.Source, got.stdout)
	}
	require.Contains(t, got.stdout, m.Name+"  absent, 16.2 MB, Apache-2.0")
	require.Contains(t, got.stdout, "folder: "+dir+"\n")

	put(t, dir, m.Files[0].Name, make([]byte, m.Files[0].Size))
	got = modelsIn(t.Context(), nil, "list", "--json", "--dir", dir)
	require.Equal(t, exitOK, got.code, got.stderr)
	var answer struct {
		Folder string
		Models []struct {
			Name            string
			Catalogue, Here bool
			Paths           []struct {
				Path string
				Here bool
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &answer))
	require.Equal(t, dir, answer.Folder)
	require.Len(t, answer.Models, len(models.Catalogue()))
	for _, is := range answer.Models {
		require.True(t, is.Catalogue)
		require.False(t, is.Here, "of ppocr-v4-mobile one file of three")
		if is.Name == m.Name {
			require.True(t, is.Paths[0].Here)
			require.Equal(t, filepath.Join(dir, m.Files[0].Name), is.Paths[0].Path)
		}
	}
}

func TestModelsPullBringsAFileOfAHubOnceAndVerifyHoldsIt(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("weights "), 100_000)
	srv, asked := hub(t, content)
	dir := t.TempDir()
	vars := map[string]string{"REWARDLOOP_MODELS": dir, "HF_ENDPOINT": srv.URL}
	const source = "hf://owner/repository/onnx/model.onnx@c0ffee"

	got := modelsIn(t.Context(), vars, "pull", source, "--dry-run")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "would be downloaded into "+dir)
	require.Zero(t, asked.Load(), "--dry-run asks nobody")

	got = modelsIn(t.Context(), vars, "pull", source)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "pulled and verified 1 of 1 files (0.8 MB in "+dir+")")
	require.Contains(t, got.stdout, "licence is not known here")
	require.Contains(t, got.stderr, "owner/repository/onnx/model.onnx: downloading\n")
	require.Contains(t, got.stderr, "recorded: ")

	srv.Close()
	got = modelsIn(t.Context(), vars, "pull", source)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "here already and verified, nothing was downloaded")
	require.Contains(t, modelsIn(t.Context(), vars, "pull", "--dry-run", source).stdout, "nothing would be downloaded")
	require.EqualValues(t, 2, asked.Load(), "once for its size and once for it")

	got = modelsIn(t.Context(), vars, "list", "owner/repository/onnx/model.onnx")
	require.Contains(t, got.stdout, "owner/repository/onnx/model.onnx  here, 0.8 MB, LicenseRef-unknown")
	got = modelsIn(t.Context(), vars, "verify")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Regexp(t, `^ok +owner/repository/onnx/model.onnx  sha256 [0-9a-f]{64}\n$`, got.stdout)

	put(t, dir, "owner/repository/onnx/model.onnx", bytes.ToUpper(content))
	got = modelsIn(t.Context(), vars, "verify")
	require.Equal(t, exitFailure, got.code)
	require.Equal(t, "DIFFERS  owner/repository/onnx/model.onnx\n", got.stdout)
	require.Contains(t, got.stderr, "recorded at the first pull")
	require.Contains(t, got.stderr, "`rewardloop models pull "+source+"` mends it")
}

func TestModelsPullTakesAFileFromAStick(t *testing.T) {
	t.Parallel()
	stick, dir := t.TempDir(), t.TempDir()
	put(t, stick, "scorer.onnx", []byte("weights"))
	got := modelsIn(t.Context(), nil, "pull", "--dir", dir, filepath.Join(stick, "scorer.onnx"))
	require.Equal(t, exitOK, got.code, got.stderr)
	brought, err := os.ReadFile(filepath.Join(dir, "scorer.onnx"))
	require.NoError(t, err)
	require.Equal(t, "weights", string(brought))
	require.Equal(t, exitOK, modelsIn(t.Context(), nil, "verify", "scorer.onnx", "--dir", dir).code)
}

func TestModelsVerifyWithoutNamesLooksOnlyAtWhatIsHere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got := modelsIn(t.Context(), nil, "verify", "--dir", dir)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "no models are in "+dir)

	m, err := models.Find("ppocr-v4-mobile")
	require.NoError(t, err)
	put(t, dir, m.Files[0].Name, make([]byte, m.Files[0].Size))
	put(t, dir, m.Files[2].Name, []byte("cut off"))
	got = modelsIn(t.Context(), nil, "verify", "--dir", dir)
	require.Equal(t, exitFailure, got.code)
	require.Equal(t, "DIFFERS  "+m.Files[0].Name+"\nDIFFERS  "+m.Files[2].Name+"\n", got.stdout, "each file once, though two models have it")
	require.Contains(t, got.stderr, m.Files[0].SHA256)
	require.Contains(t, got.stderr, "has 7 bytes, not 585532")

	got = modelsIn(t.Context(), nil, "verify", "--dir", dir, m.Name)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, m.Files[1].Name+": not found in ")
}

func TestModelsPullGoesOnAfterOneThatFails(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	stick, dir := t.TempDir(), t.TempDir()
	put(t, stick, "scorer.onnx", []byte("weights"))
	got := modelsIn(t.Context(), nil, "pull", "--dir", dir, "--python", noPython(t), "ppocr-v4-mobile", filepath.Join(stick, "scorer.onnx"))
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "no Python with pip")
	require.Contains(t, got.stdout, "scorer.onnx: pulled")
}

func TestModelsPullEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(srv.Close)
	got := modelsIn(t.Context(), map[string]string{"HF_ENDPOINT": srv.URL}, "pull", "--dir", t.TempDir(), "--timeout", "200ms", "hf://a/b/c.onnx@d")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "not done after 200ms (--timeout)")
}

func TestModelsPullEndsWhenInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	t.Cleanup(srv.Close)
	got := modelsIn(ctx, map[string]string{"HF_ENDPOINT": srv.URL}, "pull", "--dir", t.TempDir(), "hf://a/b/c.onnx@d")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "interrupted; downloads are kept")
}

func TestADamagedManifestIsNamedByEveryModelsCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "manifest.json", []byte("{"))
	for _, args := range [][]string{{"list"}, {"verify"}, {"pull", "ppocr-v4-mobile"}, {"pull", "--dry-run", "ppocr-v4-mobile"}} {
		got := modelsIn(t.Context(), nil, append(args, "--dir", dir)...)
		require.Equal(t, exitFailure, got.code, args)
		require.Contains(t, got.stderr, "damaged manifest "+filepath.Join(dir, "manifest.json"), args)
		if args[0] == "list" {
			require.Contains(t, got.stdout, "ppocr-v4-mobile", "the catalogue is known all the same")
		}
	}
}

func TestModelsRefusesWhatItWouldNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for says, args := range map[string][]string{
		"no command \"remove\"":      {"remove"},
		"unknown model \"x\"":        {"list", "x"},
		"pull what?":                 {"pull"},
		"no flag --accept-licence":   {"list", "--accept-licence"},
		"no flag --json":             {"verify", "--json"},
		"--timeout must be above 0":  {"pull", "--timeout", "0s", "ppocr-v4-mobile"},
		"unknown model \"ppocr-v5\"": {"pull", "ppocr-v5"},
		"unknown model \"ppocr-v4-mobil\"; did you mean ppocr-v4-mobile?": {"verify", "ppocr-v4-mobil"},
		"bad source":            {"pull", "ftp://host/model.onnx"},
		"is not a regular file": {"pull", "."},
	} {
		got := modelsIn(t.Context(), nil, append(args, "--dir", dir)...)
		require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
		require.Contains(t, got.stderr, strings.TrimSpace(says))
	}
}

// A bar is drawn over itself and taken away before a line.
func TestAPullShowsABarOnATerminalAndLinesElsewhere(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	play := func(bar bool) string {
		var out bytes.Buffer
		p := newPullProgress(&out, bar, models.Model{Name: "m", Files: make([]models.File, 2), Licence: models.Licence{SPDX: "MIT", Holder: "H", URL: "https://h"}})
		p.now = func() time.Time { return now }
		p.event(models.Event{Stage: models.Planned, Files: 2, Total: 50_000_000, Unknown: 1})
		for i := range int64(5) {
			p.event(models.Event{File: "m.onnx", Stage: models.Downloading, Done: i * 10_000_000, Total: 40_000_000})
			now = now.Add(5 * time.Second)
		}
		p.event(models.Event{File: "m.onnx", Stage: models.Pulled, Done: 40_000_000})
		p.event(models.Event{File: "n.onnx", Stage: models.Downloading, Note: "the wheel of p==1"})
		p.event(models.Event{File: "n.onnx", Stage: models.Retrying, Note: "again in 1s"})
		p.event(models.Event{File: "o.json", Stage: models.Lacking})
		p.end()
		require.Equal(t, 1, p.pulled)
		return out.String()
	}
	require.Equal(t, "m: 2 of 2 files to fetch, 50.0 MB, and 1 files of unknown size\n  licence MIT, H, https://h\n"+
		"m.onnx: downloading\n"+
		"m.onnx:  50 %  20.0 MB of 40.0 MB, 2.0 MB/s\n"+
		"m.onnx: 100 %  40.0 MB of 40.0 MB, 2.0 MB/s\n"+
		"m.onnx: 40.0 MB, and its sum is right\n"+
		"the wheel of p==1: downloading\n"+
		"n.onnx: retrying: again in 1s\n"+
		"o.json: the source has none, which is fine\n", play(false))
	drawn := play(true)
	require.Contains(t, drawn, "m.onnx  [============            ]  50 %  20.0 MB of 40.0 MB, 2.0 MB/s\r\x1b[Km.onnx  [===")
	require.Contains(t, drawn, "\r\x1b[Km.onnx: 40.0 MB, and its sum is right\n")
	require.NotContains(t, drawn, "downloading")
}
