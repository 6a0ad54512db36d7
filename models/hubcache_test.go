package models_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/hfcache"
	"github.com/rewardloop/rewardloop/models"
)

func read(t *testing.T, at string) string {
	t.Helper()
	text, err := os.ReadFile(at)
	require.NoError(t, err)
	return string(text)
}

// stages notes what a pull tells of.
func stages(into *[]models.Event) models.Options {
	return models.Options{Progress: func(e models.Event) {
		if e.Stage != models.Downloading {
			*into = append(*into, e)
		}
	}}
}

func count(events []models.Event, stage models.Stage) (n int) {
	for _, e := range events {
		if e.Stage == stage {
			n++
		}
	}
	return n
}

func TestADownloadFillsTheHubsCacheAndIsKeptOnce(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))

	folder := filepath.Join(s.Hub.Dir, "models--owner--name")
	require.Equal(t, commit, read(t, filepath.Join(folder, "refs", "main")), "without a newline")
	target, err := os.Readlink(filepath.Join(folder, "snapshots", commit, "onnx", "model.bin"))
	ok(t, err)
	require.Equal(t, "../../../blobs/"+hexSum(body), target)
	target, err = os.Readlink(filepath.Join(folder, "snapshots", commit, "config.json"))
	ok(t, err)
	require.Equal(t, "../../blobs/"+gitETag, target)
	require.FileExists(t, filepath.Join(s.Hub.Dir, ".locks", "models--owner--name", hexSum(body)+".lock"))
	sameFile(t, filepath.Join(folder, "blobs", hexSum(body)), filepath.Join(s.Dir, "m", "model.bin"))
	left, err := filepath.Glob(filepath.Join(folder, "blobs", "*"))
	ok(t, err)
	require.Len(t, left, 2, "nothing but the blobs: %q", left)

	// Another store takes the same files, of the branch after a question, of the commit without one.
	for revision, asked := range map[string]int{"main": 2, commit: 0} {
		h.forget()
		other := s
		other.Dir = filepath.Join(t.TempDir(), "other")
		var said []models.Event
		ok(t, other.Pull(t.Context(), ofHub(revision), stages(&said)))
		require.Len(t, h.requests("HEAD"), asked)
		require.Empty(t, h.requests("GET"))
		require.Equal(t, 2, count(said, models.Taken))
		require.Zero(t, count(said, models.Planned), "nothing is to come")
		sameFile(t, filepath.Join(folder, "blobs", hexSum(body)), filepath.Join(other.Dir, "m", "model.bin"))
	}
}

func TestARefWithSlashesIsAskedForAndKept(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	ok(t, s.Pull(t.Context(), ofHub("refs/pr/1"), models.Options{}))
	require.Contains(t, h.requests("HEAD"), "HEAD /owner/name/resolve/refs%2Fpr%2F1/config.json")
	require.Equal(t, commit, read(t, filepath.Join(s.Hub.Dir, "models--owner--name", "refs", "refs", "pr", "1")))
	found, err := s.Hub.Find(hfcache.File{Repository: repository, Revision: "refs/pr/1", Path: "config.json"})
	ok(t, err)
	require.Equal(t, commit, found.Commit)
}

func TestAFileOfAKnownSumIsTakenFromWhateverRevisionBroughtIt(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	ok(t, s.Pull(t.Context(), ofHub("refs/pr/1"), models.Options{}))
	h.Close()
	m := ofHub("v2")
	m.Files = m.Files[:1]
	m.Files[0].SHA256, m.Files[0].Size = hexSum(body), int64(len(body))
	s.Dir = filepath.Join(t.TempDir(), "other")
	ok(t, s.Pull(t.Context(), m, models.Options{}))
}

func TestAnInterruptedDownloadGoesOnInTheHubsCache(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	s.Attempts = 1
	h.breakOff()
	ctx, cancel := withCause(t)
	require.ErrorContains(t, s.Pull(ctx, ofHub("main"), models.Options{Progress: func(e models.Event) {
		if e.Stage == models.Downloading {
			cancel(errors.New("interrupted"))
		}
	}}), "interrupted")
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
	got := h.requests("GET other")
	require.Len(t, got, 2)
	require.Contains(t, got[1], "bytes=", "the rest alone")
	left, err := filepath.Glob(filepath.Join(s.Hub.Dir, "models--owner--name", "blobs", "*incomplete*"))
	ok(t, err)
	require.Empty(t, left)
}

// TestPullOfAChild is the process that the next test kills.
func TestPullOfAChild(t *testing.T) { //nolint:paralleltest // It is alone in its process.
	dir := os.Getenv("REWARDLOOP_TEST_CHILD_DIR")
	if dir == "" {
		t.Skip("only for the test that kills it")
	}
	s := models.Store{Dir: filepath.Join(dir, "store")}
	s.Hub.Dir, s.Endpoint = filepath.Join(dir, "hub"), os.Getenv("REWARDLOOP_TEST_CHILD_HUB")
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
}

func TestAPullThatWasKilledHalfWayGoesOn(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	h.breakOff()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPullOfAChild$")
	child.Env = append(os.Environ(), "REWARDLOOP_TEST_CHILD_DIR="+filepath.Dir(s.Dir), "REWARDLOOP_TEST_CHILD_HUB="+h.URL,
		"SSL_CERT_FILE="+h.certificate(t))
	ok(t, child.Start())
	<-h.sent
	partial := filepath.Join(s.Hub.Dir, "models--owner--name", "blobs", hexSum(body)+".*.incomplete")
	require.Eventually(t, func() bool {
		left, _ := filepath.Glob(partial)
		if len(left) != 1 {
			return false
		}
		info, err := os.Stat(left[0])
		return err == nil && info.Size() > 0
	}, patience, tick)
	ok(t, child.Process.Kill())
	_ = child.Wait() // it was killed
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
	got := h.requests("GET other")
	require.Len(t, got, 2)
	require.Contains(t, got[1], "bytes=")
	require.Equal(t, string(body), read(t, filepath.Join(s.Dir, "m", "model.bin")))
}

func TestBytesThatAreAllThereButUnnamedAreNotAskedForAgain(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	e := hfcache.Entry{File: hfcache.File{Repository: repository, Revision: "main", Path: "onnx/model.bin"}, Commit: commit, ETag: hexSum(body), Sum: true}
	slot, err := s.Hub.Begin(t.Context(), e, nil)
	ok(t, err)
	ok(t, os.WriteFile(slot.Partial(), body, 0o600))
	slot.Close()
	require.EqualValues(t, len(body), s.Hub.Left(e))
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
	require.Empty(t, h.requests("GET other"))
}

func TestOfflineTakesWhatTheCacheHasAndNamesWhatItLacks(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	s.Offline = "HF_HUB_OFFLINE=1"
	want(t, s.Pull(t.Context(), ofHub("main"), models.Options{}), models.ErrOffline,
		"HF_HUB_OFFLINE=1", s.Hub.Dir, "onnx/model.bin@main", "config.json@main", "unset the variable")
	require.Empty(t, h.requests(""))

	s.Offline = ""
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
	h.forget()
	s.Offline, s.Dir = "TRANSFORMERS_OFFLINE=yes", filepath.Join(t.TempDir(), "other")
	m := ofHub("main")
	m.Files = append(m.Files, models.File{Role: "more", Name: "m/more.json", Source: "hf://" + repository + "/more.json@main", Optional: true})
	var said []models.Event
	ok(t, s.Pull(t.Context(), m, stages(&said)))
	require.Equal(t, 1, count(said, models.Lacking))
	require.Empty(t, h.requests(""))
}

func TestTheLastAnswerCountsWhereTheHubCannotBeReached(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
	h.Close()
	s.Dir = filepath.Join(t.TempDir(), "other")
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
}

func TestAWrongSumIsRefusedAndLeavesNoBlob(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	h.sum = hexSum([]byte("other"))
	s := h.cachedStore(t)
	want(t, s.Pull(t.Context(), ofHub("main"), models.Options{}), models.ErrChecksum, "endpoint announces", h.sum)
	left, err := filepath.Glob(filepath.Join(s.Hub.Dir, "models--owner--name", "blobs", "*"))
	ok(t, err)
	require.Empty(t, left)

	m := ofHub("main")
	m.Files[0].SHA256 = hexSum(body)
	h.forget()
	want(t, s.Pull(t.Context(), m, models.Options{}), models.ErrChecksum, h.sum, hexSum(body))
	require.Empty(t, h.requests("GET"), "the announcement is enough")
}

func TestADamagedBlobIsReplacedAndNotWrittenThrough(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	ok(t, s.Pull(t.Context(), ofHub(commit), models.Options{}))
	blob := filepath.Join(s.Hub.Dir, "models--owner--name", "blobs", hexSum(body))
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	ok(t, os.WriteFile(elsewhere, []byte("damaged"), 0o600))
	ok(t, os.Remove(blob))
	ok(t, os.Symlink(elsewhere, blob))
	s.Dir = filepath.Join(t.TempDir(), "other")
	m := ofHub(commit)
	m.Files[0].SHA256 = hexSum(body)
	var said []models.Event
	ok(t, s.Pull(t.Context(), m, stages(&said)))
	require.Equal(t, 1, count(said, models.Retrying))
	require.Equal(t, string(body), read(t, blob))
	require.Equal(t, "damaged", read(t, elsewhere))
}

func TestReadingACacheChangesNothingInIt(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
	readOnly(t, s.Hub.Dir)
	before := tree(t, s.Hub.Dir)
	s.Dir = filepath.Join(t.TempDir(), "other")
	s.Offline = "HF_HUB_OFFLINE=1"
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
	require.Equal(t, before, tree(t, s.Hub.Dir))
	require.Equal(t, string(body), read(t, filepath.Join(s.Dir, "m", "model.bin")))
}

// readOnly takes away the right to write; root has it all the same, and is held to not using it.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	for _, line := range tree(t, dir) {
		name, mode, _ := strings.Cut(line, " ")
		switch at := filepath.Join(dir, name); mode[0] {
		case 'd':
			ok(t, os.Chmod(at, 0o500)) //nolint:gosec // A folder has to be entered.
			t.Cleanup(func() { _ = os.Chmod(at, 0o700) })
		case '-':
			ok(t, os.Chmod(at, 0o400))
		}
	}
}

func TestACacheThatCannotBeWrittenLeavesTheFileToTheStore(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	file := filepath.Join(t.TempDir(), "file")
	ok(t, os.WriteFile(file, nil, 0o600))
	s.Hub.Dir = filepath.Join(file, "hub")
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
	require.Equal(t, string(body), read(t, filepath.Join(s.Dir, "m", "model.bin")))
}

func TestACacheOnAnotherDiskIsReadAndNotFilled(t *testing.T) {
	t.Parallel()
	other, err := os.MkdirTemp("/dev/shm", "rewardloop-test-*") //nolint:usetesting // t.TempDir is not there.
	if err != nil {
		t.Skipf("SKIPPED: there is no second file system: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(other) })
	h := newStubHub(t)
	s := h.cachedStore(t)
	ok(t, os.MkdirAll(s.Dir, 0o700))
	probe := filepath.Join(other, "probe")
	ok(t, os.WriteFile(probe, nil, 0o600))
	if os.Link(probe, filepath.Join(s.Dir, "probe")) == nil {
		t.Skip("SKIPPED: /dev/shm is the file system of the tests' folders")
	}
	filled := s.Hub
	ok(t, s.Pull(t.Context(), ofHub(commit), models.Options{}))

	s.Dir, s.Hub.Dir = filepath.Join(t.TempDir(), "alone"), filepath.Join(other, "hub")
	ok(t, s.Pull(t.Context(), ofHub(commit), models.Options{}))
	require.NoDirExists(t, filepath.Join(s.Hub.Dir, "models--owner--name"), "a second copy")

	s.Dir, s.Hub, s.Offline = filepath.Join(other, "store"), filled, "HF_HUB_OFFLINE=1"
	ok(t, s.Pull(t.Context(), ofHub(commit), models.Options{}))
	info, err := os.Lstat(filepath.Join(s.Dir, "m", "model.bin"))
	ok(t, err)
	require.True(t, info.Mode().IsRegular(), "a copy, which does not hang on the other disk")
}

func TestRealFilesStandInForLinks(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	s.Hub.NoLinks = true
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
	at := filepath.Join(s.Hub.Dir, "models--owner--name", "snapshots", commit, "onnx", "model.bin")
	info, err := os.Lstat(at)
	ok(t, err)
	require.True(t, info.Mode().IsRegular())
	sameFile(t, at, filepath.Join(s.Dir, "m", "model.bin"))
	s.Dir, s.Offline = filepath.Join(t.TempDir(), "other"), "HF_HUB_OFFLINE=1"
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
}

func TestAFileThatACommitLacksIsNotAskedForTwice(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	m := ofHub(commit)
	m.Files = append(m.Files, models.File{Role: "more", Name: "m/more.json", Source: "hf://" + repository + "/more.json@" + commit, Optional: true})
	ok(t, s.Pull(t.Context(), m, models.Options{}))
	require.FileExists(t, filepath.Join(s.Hub.Dir, "models--owner--name", ".no_exist", commit, "more.json"))
	h.forget()
	s.Dir = filepath.Join(t.TempDir(), "other")
	var said []models.Event
	ok(t, s.Pull(t.Context(), m, stages(&said)))
	require.Equal(t, 1, count(said, models.Lacking))
	require.Empty(t, h.requests(""))
}

func TestARepositoryThatIsClosedSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for fault, parts := range map[string][]string{
		"GatedRepo":    {"403", "agree on the repository's page", "HF_TOKEN", "hf auth login"},
		"RepoNotFound": {"401", "the repository does not exist or is private", "HF_TOKEN"},
	} {
		h := newStubHub(t)
		h.fault = fault
		want(t, h.cachedStore(t).Pull(t.Context(), ofHub("main"), models.Options{}), models.ErrFetch, parts...)
	}
	h := newStubHub(t)
	want(t, h.cachedStore(t).Pull(t.Context(), ofHub("nosuch"), models.Options{}), models.ErrFetch, "404", "revision")
}

func TestARepositoryOfTheCacheIsAModelsFolder(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	_, err := s.Resolve("owner/name")
	want(t, err, models.ErrMissing, "owner/name", "`hf download owner/name --revision main`")
	ok(t, s.Pull(t.Context(), ofHub("refs/pr/1"), models.Options{}))
	for _, name := range []string{"owner/name@refs/pr/1", "owner/name@" + commit} {
		at, err := s.Resolve(name)
		ok(t, err)
		require.Equal(t, filepath.Join(s.Hub.Dir, "models--owner--name", "snapshots", commit), at)
	}
	_, err = s.Resolve("owner/name")
	want(t, err, models.ErrMissing, "revision main")
}

func TestADeadlineEndsTheWaitForAnotherProgram(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	e := hfcache.Entry{File: hfcache.File{Repository: repository, Revision: "main", Path: "onnx/model.bin"}, Commit: commit, ETag: hexSum(body), Sum: true}
	slot, err := s.Hub.Begin(t.Context(), e, nil)
	ok(t, err)
	defer slot.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	require.ErrorContains(t, s.Pull(ctx, ofHub("main"), models.Options{Progress: func(e models.Event) {
		if e.Stage == models.Waiting {
			cancel(errors.New("the deadline"))
		}
	}}), "the deadline")
}

func TestAFileOfAnotherUserIsLinkedTo(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	ok(t, s.Pull(t.Context(), ofHub(commit), models.Options{}))
	blob := filepath.Join(s.Hub.Dir, "models--owner--name", "blobs", hexSum(body))
	refused := func(err error) func(from, to string) error {
		return func(from, to string) error { return &os.LinkError{Op: "link", Old: from, New: to, Err: err} }
	}
	at := filepath.Join(s.Dir, "m", "model.bin")
	ok(t, os.Remove(at))
	require.ErrorIs(t, models.Share(blob, at, refused(syscall.EXDEV)), syscall.EXDEV)
	require.NoFileExists(t, at)
	ok(t, models.Share(blob, at, refused(syscall.EPERM)))
	target, err := os.Readlink(at)
	ok(t, err)
	require.Equal(t, blob, target)
	_, err = s.Verify(t.Context(), ofHub(commit))
	ok(t, err)
}
