package models_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/models"
)

// fakeHub is an endpoint in the manner of Hugging Face's: large files are
// redirected to another host, small ones come from it.
type fakeHub struct {
	*httptest.Server
	elsewhere *httptest.Server // where the bytes of large files are
	large     map[string][]byte
	small     map[string][]byte

	mu    sync.Mutex
	asked []string // "METHOD path" of the endpoint
	taken []string // the Range of each GET elsewhere
	// breaks: that many answers of elsewhere end after half of the file.
	breaks int
	token  string // that elsewhere was handed; it must stay empty
}

func newHub(t *testing.T, large, small map[string][]byte) *fakeHub {
	t.Helper()
	h := &fakeHub{large: large, small: small}
	h.elsewhere = httptest.NewTLSServer(http.HandlerFunc(h.deliver))
	h.Server = httptest.NewServer(http.HandlerFunc(h.answer))
	t.Cleanup(h.elsewhere.Close)
	t.Cleanup(h.Close)
	return h
}

func (h *fakeHub) answer(w http.ResponseWriter, r *http.Request) {
	_, path, _ := strings.Cut(r.URL.Path, "/resolve/")
	_, path, _ = strings.Cut(path, "/")
	h.mu.Lock()
	h.asked = append(h.asked, r.Method+" "+path)
	h.mu.Unlock()
	if text, is := h.large[path]; is {
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(text)))
		w.Header().Set("X-Linked-ETag", `"`+hexSum(text)+`"`)
		http.Redirect(w, r, h.elsewhere.URL+"/"+path, http.StatusFound)
		return
	}
	text, is := h.small[path]
	if !is {
		w.Header().Set("X-Error-Code", "EntryNotFound")
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", `"`+hexSum(text)+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

func (h *fakeHub) deliver(w http.ResponseWriter, r *http.Request) {
	text := h.large[strings.TrimPrefix(r.URL.Path, "/")]
	h.mu.Lock()
	h.taken = append(h.taken, r.Header.Get("Range"))
	h.token += r.Header.Get("Authorization")
	breaks := h.breaks > 0
	h.breaks--
	h.mu.Unlock()
	w.Header().Set("ETag", `"strong"`)
	if breaks {
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		_, _ = w.Write(text[:len(text)/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

// storeAt is a store that asks the hub and trusts its other host.
func storeAt(t *testing.T, h *fakeHub) models.Store {
	t.Helper()
	s := store(t, h.URL)
	s.Transport, s.Token = h.elsewhere.Client().Transport, "secret"
	return s
}

func (h *fakeHub) count(method string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(h.asked), func(s string) bool { return !strings.HasPrefix(s, method) }))
}

// weights is a hub with CLIP's files, made up.
func weights() (large, small map[string][]byte) {
	return map[string][]byte{"onnx/vision_model.onnx": body, "onnx/text_model.onnx": bytes.ToUpper(body)},
		map[string][]byte{"tokenizer.json": []byte(`{"model": {}}`), "preprocessor_config.json": []byte("{}")}
}

// unsized is a model of the catalogue as if nothing were known of its files.
func unsized(t *testing.T, name string) models.Model {
	t.Helper()
	m := mustFind(t, name)
	m.Files = slices.Clone(m.Files)
	for i, f := range m.Files {
		if strings.HasPrefix(f.Source, "hf://") {
			m.Files[i].Size, m.Files[i].SHA256 = 0, ""
		}
	}
	return m
}

func TestAModelOfAHubComesWholeWithItsSizesSaidFirst(t *testing.T) {
	t.Parallel()
	h := newHub(t, first(weights()), second(weights()))
	h.breaks = 1
	s, m := storeAt(t, h), unsized(t, "clip-vit-large-patch14")
	var stages []models.Event
	watch := models.Options{Progress: func(e models.Event) { stages = append(stages, e) }}
	require.NoError(t, s.Pull(t.Context(), m, watch))

	side, is := m.File("sidecar")
	require.True(t, is)
	total := 2*int64(len(body)) + int64(len(`{"model": {}}`)+len("{}")) + side.Size
	require.Equal(t, models.Event{Model: m.Name, Stage: models.Planned, Total: total, Files: 5}, stages[0], "before anything is downloaded")
	require.Equal(t, 4, h.count("HEAD"), "one for each file whose size is not known")
	require.Len(t, h.taken, 3, "the large files, one of them in two parts, and no HEAD")
	require.Equal(t, fmt.Sprintf("bytes=%d-", len(body)/2), h.taken[1])
	require.Empty(t, h.token, "the token is the endpoint's")

	folder, err := s.Folder(m)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(s.Dir, "clip-vit-large-patch14"), folder)
	text, err := os.ReadFile(filepath.Join(folder, "scorer.json"))
	require.NoError(t, err)
	require.Contains(t, string(text), `"logit_scale": 100.0`)

	h.Close()
	require.NoError(t, s.Pull(t.Context(), m, models.Options{}), "no network is needed any more")
	_, err = s.Verify(t.Context(), m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "scorer.json"), []byte("{}"), 0o600))
	_, err = s.Verify(t.Context(), m)
	require.ErrorIs(t, err, models.ErrChecksum, "the program knows its own files' sums")
	require.NoError(t, s.Pull(t.Context(), m, models.Options{}), "and writes them without a network")
}

func TestAnOptionalFileMayBeLackingAndIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	large, small := weights()
	delete(small, "preprocessor_config.json")
	h := newHub(t, large, small)
	s, m := storeAt(t, h), unsized(t, "clip-vit-base-patch32")
	var lacking []string
	require.NoError(t, s.Pull(t.Context(), m, models.Options{Progress: func(e models.Event) {
		if e.Stage == models.Lacking {
			lacking = append(lacking, e.File)
		}
	}}))
	require.Equal(t, []string{"clip-vit-base-patch32/preprocessor_config.json"}, lacking)
	require.True(t, s.Have(m))
	h.Close()
	require.NoError(t, s.Pull(t.Context(), m, models.Options{}))
	found, err := s.Verify(t.Context(), m)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(found, func(st models.Status) bool { return st.Absent && st.OK && !st.Present }))
}

func TestAnOptionalFileThatWasHereAndIsLostIsMissed(t *testing.T) {
	t.Parallel()
	h := newHub(t, first(weights()), second(weights()))
	s, m := storeAt(t, h), unsized(t, "clip-vit-base-patch32")
	require.NoError(t, s.Pull(t.Context(), m, models.Options{}))
	lost := filepath.Join(s.Dir, "clip-vit-base-patch32", "preprocessor_config.json")
	require.NoError(t, os.Remove(lost))
	_, err := s.Verify(t.Context(), m)
	require.ErrorIs(t, err, models.ErrMissing)
	require.NoError(t, s.Pull(t.Context(), m, models.Options{}))
	require.FileExists(t, lost)
}

func TestAWrongRevisionIsNotTakenForAnOptionalFileThatIsLacking(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Error-Code", "RevisionNotFound")
		http.NotFound(w, r)
	}))
	t.Cleanup(srv.Close)
	want(t, store(t, srv.URL).Pull(t.Context(), unsized(t, "clip-vit-base-patch32"), models.Options{}),
		models.ErrFetch, "preprocessor_config.json", "repository and revision")
}

func TestARequiredFileThatIsLackingEndsThePull(t *testing.T) {
	t.Parallel()
	large, small := weights()
	delete(large, "onnx/text_model.onnx")
	h := newHub(t, large, small)
	s := storeAt(t, h)
	m := unsized(t, "clip-vit-base-patch32")
	want(t, s.Pull(t.Context(), m, models.Options{}), models.ErrFetch, "onnx/text_model.onnx", "no such file")
	_, err := s.Folder(m)
	want(t, err, models.ErrMissing, "clip-vit-base-patch32/text_model.onnx", "`rewardloop models pull clip-vit-base-patch32`")
	if strings.Contains(err.Error(), "vision_model") {
		t.Fatal(err)
	}
}

func TestBytesThatAreNotTheAnnouncedOnesAreRefusedAtTheFirstPullToo(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Linked-ETag", `"`+hexSum([]byte("other"))+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	}))
	t.Cleanup(srv.Close)
	want(t, store(t, srv.URL).Pull(t.Context(), hub(""), models.Options{}), models.ErrChecksum, "endpoint announces", hexSum(body))
}

func TestADiskWithoutRoomIsRefusedBeforeTheDownload(t *testing.T) {
	t.Parallel()
	h := newHub(t, first(weights()), second(weights()))
	s, m := storeAt(t, h), unsized(t, "clip-vit-large-patch14")
	s.Free = func(dir string) (int64, error) {
		require.Equal(t, s.Dir, dir)
		return int64(len(body)), nil
	}
	want(t, s.Pull(t.Context(), m, models.Options{}), models.ErrNoSpace, "--dir", fmt.Sprint(len(body)))
	require.Zero(t, h.count("GET"))

	// What a broken transfer left need not come again.
	side, _ := m.File("sidecar")
	rest := int64(len(body)) + int64(len(`{"model": {}}`)+len("{}")) + side.Size
	part := filepath.Join(s.Dir, "clip-vit-large-patch14", "vision_model.onnx.part")
	require.NoError(t, os.MkdirAll(filepath.Dir(part), 0o700))
	require.NoError(t, os.WriteFile(part, body, 0o600))
	s.Free = func(string) (int64, error) { return rest, nil }
	require.NoError(t, s.Pull(t.Context(), m, models.Options{}))

	s.Dir, s.Free = t.TempDir(), func(string) (int64, error) { return 0, errors.New("no such question") }
	require.NoError(t, s.Pull(t.Context(), m, models.Options{}), "a file system that does not say is no full one")
}

func TestAnEndpointThatDoesNotSayItsSizesLeavesThemUnknown(t *testing.T) {
	t.Parallel()
	srv, _, _ := server(t, 0, same) // answers HEAD with 405
	var planned models.Event
	require.NoError(t, store(t, srv.URL).Pull(t.Context(), hub(""), models.Options{Progress: func(e models.Event) {
		if e.Stage == models.Planned {
			planned = e
		}
	}}))
	require.Equal(t, models.Event{Model: "m", Stage: models.Planned, Files: 1, Unknown: 1}, planned)
}

func TestALicenceIsRefusedBeforeAnybodyIsAsked(t *testing.T) {
	t.Parallel()
	h := newHub(t, first(weights()), second(weights()))
	for _, name := range []string{"qwen2.5-vl-3b", "qwen2.5-vl-3b-q4"} {
		want(t, storeAt(t, h).Pull(t.Context(), mustFind(t, name), models.Options{}),
			models.ErrLicence, "LicenseRef-Qwen-Research", "https://", "--accept-licence")
	}
	require.Empty(t, h.asked)
}

func first(a, _ map[string][]byte) map[string][]byte  { return a }
func second(_, b map[string][]byte) map[string][]byte { return b }
