package models_test

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/hfcache"
	"github.com/rewardloop/rewardloop/models"
)

const (
	repository = "owner/name"
	commit     = "0123456789abcdef0123456789abcdef01234567"
	gitETag    = "89abcdef0123456789abcdef0123456789abcdef" // of config.json
)

// stubHub is a hub with one repository, in the protocol that huggingface_hub speaks:
// large files are redirected to another host, which is TLS as the real one is.
type stubHub struct {
	*httptest.Server
	other *httptest.Server
	files map[string][]byte // a .bin is large

	mu    sync.Mutex
	refs  map[string]string
	asked []string // "METHOD path" of the hub, and "GET other" with the Range
	sum   string   // announced in place of the right one
	fault string   // X-Error-Code of every answer of the hub
	// half: the next answer of the other host sends half of the file, says so on
	// sent, and goes on when go_ is closed.
	half bool
	sent chan struct{}
	go_  chan struct{}
}

func newStubHub(t *testing.T) *stubHub {
	t.Helper()
	h := &stubHub{
		files: map[string][]byte{"onnx/model.bin": body, "config.json": []byte(`{"a": 1}`)},
		refs:  map[string]string{"main": commit, "refs/pr/1": commit, commit: commit},
		sent:  make(chan struct{}, 8), go_: make(chan struct{}),
	}
	h.other = httptest.NewTLSServer(http.HandlerFunc(h.deliver))
	h.Server = httptest.NewServer(http.HandlerFunc(h.answer))
	// Another name than that of the other host: releases of huggingface_hub before 2 compare names alone.
	h.URL = strings.Replace(h.URL, "127.0.0.1", "localhost", 1)
	t.Cleanup(h.other.Close)
	t.Cleanup(h.Close)
	return h
}

func (h *stubHub) note(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, what)
}

func (h *stubHub) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = nil
}

// breakOff has the next large file stop after its first half.
func (h *stubHub) breakOff() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.half = true
}

// requests are those that begin so.
func (h *stubHub) requests(prefix string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.asked), func(s string) bool { return !strings.HasPrefix(s, prefix) })
}

func (h *stubHub) answer(w http.ResponseWriter, r *http.Request) {
	h.note(r.Method + " " + r.URL.EscapedPath())
	if h.fault != "" {
		w.Header().Set("X-Error-Code", h.fault)
		w.WriteHeader(map[string]int{"GatedRepo": http.StatusForbidden, "RepoNotFound": http.StatusUnauthorized}[h.fault])
		return
	}
	revision, file, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"+repository+"/resolve/"), "/")
	revision, err := url.PathUnescape(revision)
	if err != nil || h.refs[revision] == "" {
		w.Header().Set("X-Error-Code", "RevisionNotFound")
		http.NotFound(w, r)
		return
	}
	w.Header().Set("X-Repo-Commit", h.refs[revision])
	text, is := h.files[file]
	switch {
	case !is:
		w.Header().Set("X-Error-Code", "EntryNotFound")
		http.NotFound(w, r)
	case strings.HasSuffix(file, ".bin"):
		sum := hexSum(text)
		if h.sum != "" {
			sum = h.sum
		}
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(text)))
		w.Header().Set("X-Linked-ETag", `"`+sum+`"`)
		http.Redirect(w, r, h.other.URL+"/"+file, http.StatusFound)
	default:
		w.Header().Set("ETag", `W/"`+gitETag+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
	}
}

func (h *stubHub) deliver(w http.ResponseWriter, r *http.Request) {
	h.note("GET other " + r.Header.Get("Range"))
	text := h.files[strings.TrimPrefix(r.URL.Path, "/")]
	h.mu.Lock()
	half := h.half
	h.half = false
	h.mu.Unlock()
	if half {
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		_, _ = w.Write(text[:len(text)/2])
		w.(http.Flusher).Flush()
		h.sent <- struct{}{}
		select {
		case <-h.go_:
		case <-r.Context().Done():
			return
		}
		_, _ = w.Write(text[len(text)/2:])
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

// certificate is a file with what the other host is trusted by.
func (h *stubHub) certificate(t *testing.T) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "other.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.other.Certificate().Raw})
	require.NoError(t, os.WriteFile(at, text, 0o600))
	return at
}

// cachedStore is a store of this hub beside an empty cache.
func (h *stubHub) cachedStore(t *testing.T) models.Store {
	t.Helper()
	s := store(t, h.URL)
	dir := t.TempDir()
	s.Dir, s.Hub = filepath.Join(dir, "store"), hfcache.Cache{Dir: filepath.Join(dir, "hub")}
	s.Transport = h.other.Client().Transport
	return s
}

// ofHub is a model of the stub's two files, whose sums nobody knows.
func ofHub(revision string) models.Model {
	return models.Model{Name: "m", Licence: models.Licence{SPDX: "MIT"}, Files: []models.File{
		{Role: "model", Name: "m/model.bin", Source: "hf://" + repository + "/onnx/model.bin@" + revision},
		{Role: "config", Name: "m/config.json", Source: "hf://" + repository + "/config.json@" + revision},
	}}
}

// tree lists what is below a folder: links with their targets, files with their modes and sums.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	require.NoError(t, filepath.Walk(dir, func(at string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, at)
		line := name + " " + info.Mode().String()
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			target, linkErr := os.Readlink(at)
			require.NoError(t, linkErr)
			line += " " + target
		case info.Mode().IsRegular():
			text, readErr := os.ReadFile(at)
			require.NoError(t, readErr)
			line += " " + hexSum(text)
		}
		all = append(all, line)
		return err
	}))
	return all
}

func sameFile(t *testing.T, a, b string) {
	t.Helper()
	one, err := os.Stat(a)
	require.NoError(t, err)
	other, err := os.Stat(b)
	require.NoError(t, err)
	require.True(t, os.SameFile(one, other), "%s and %s are two files", a, b)
}
