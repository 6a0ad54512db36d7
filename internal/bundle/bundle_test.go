package bundle_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/bundle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree is a folder with a program, a library that does not compress and an empty file.
func tree(tb testing.TB) string {
	tb.Helper()
	folder := tb.TempDir()
	library := make([]byte, 100_000)
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // noise
	for i := range library {
		library[i] = byte(rng.Uint32()) //nolint:gosec // truncation is meant
	}
	for name, f := range map[string]struct {
		text []byte
		mode os.FileMode
	}{
		"bin/program":          {[]byte("#!/bin/sh\necho it runs\n"), 0o755},
		"lib/liba.so":          {library, 0o644},
		"lib/libb.so":          {bytes.Repeat([]byte{0}, 1_000_000), 0o644},
		"testdata/empty":       {nil, 0o640},
		"testdata/a b/ü.jsonl": {[]byte("{}\n"), 0o600},
	} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		require.NoError(tb, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(tb, os.WriteFile(path, f.text, f.mode))
		require.NoError(tb, os.Chmod(path, f.mode))
	}
	return folder
}

// packed is a bundle of the tree in parts of 16 KiB.
func packed(tb testing.TB) (folder string, m bundle.Manifest) {
	tb.Helper()
	files, err := bundle.Tree(tree(tb))
	require.NoError(tb, err)
	folder = tb.TempDir()
	m, err = bundle.Pack(tb.Context(), folder, bundle.Options{Name: "small", PartSize: 16 << 10}, files)
	require.NoError(tb, err)
	return folder, m
}

// refused joins, and requires that nothing is left where root would be.
func refused(t *testing.T, folder string, want error, text string) {
	t.Helper()
	parent := t.TempDir()
	_, err := bundle.Join(t.Context(), folder, filepath.Join(parent, "root"), 0)
	require.ErrorIs(t, err, want)
	require.ErrorContains(t, err, text)
	left, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Empty(t, left)
}

// rewrite changes the manifest, its id following.
func rewrite(t *testing.T, folder string, change func(m *bundle.Manifest)) {
	t.Helper()
	path := filepath.Join(folder, bundle.ManifestName)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var m bundle.Manifest
	require.NoError(t, json.Unmarshal(text, &m))
	change(&m)
	files, err := json.Marshal(m.Files)
	require.NoError(t, err)
	id := sha256.Sum256(files)
	m.ID = hex.EncodeToString(id[:])
	for i := range m.Parts { // the parts follow, as someone who forges them would have them
		part := filepath.Join(folder, m.PartName(i))
		text, err := os.ReadFile(part)
		if err != nil {
			continue
		}
		copy(text[8:], id[:])
		require.NoError(t, os.WriteFile(part, text, 0o600))
		sum := sha256.Sum256(text)
		m.Parts[i] = bundle.Part{Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:])}
	}
	text, err = json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

func TestWhatWasPackedIsJoinedWithItsModes(t *testing.T) {
	t.Parallel()
	folder, m := packed(t)
	require.Greater(t, len(m.Parts), 3)
	for i, p := range m.Parts {
		info, err := os.Stat(filepath.Join(folder, m.PartName(i)))
		require.NoError(t, err)
		require.Equal(t, p.Size, info.Size())
		require.LessOrEqual(t, info.Size(), int64(16<<10))
	}
	root := filepath.Join(t.TempDir(), "root")
	joined, err := bundle.Join(t.Context(), folder, root, 0)
	require.NoError(t, err)
	require.Equal(t, m, joined)
	files, err := bundle.Tree(root)
	require.NoError(t, err)
	require.Len(t, files, len(m.Files))
	for i, f := range files {
		text, err := os.ReadFile(f.Path)
		require.NoError(t, err)
		info, err := os.Stat(f.Path)
		require.NoError(t, err)
		sum := sha256.Sum256(text)
		require.Equal(t, m.Files[i].Name, f.Name)
		require.Equal(t, m.Files[i].SHA256, hex.EncodeToString(sum[:]))
		require.Equal(t, m.Files[i].Mode, map[os.FileMode]string{0o755: "755", 0o644: "644", 0o640: "640", 0o600: "600"}[info.Mode()])
	}
	_, err = bundle.Join(t.Context(), folder, root, 0)
	require.Error(t, err, "the root is there already")
}

func TestTheSameFilesMakeTheSameBundle(t *testing.T) {
	t.Parallel()
	_, a := packed(t)
	_, b := packed(t)
	require.Equal(t, a, b)
}

func TestAMissingPartIsNamed(t *testing.T) {
	t.Parallel()
	folder, m := packed(t)
	for _, i := range []int{1, 2} {
		require.NoError(t, os.Remove(filepath.Join(folder, m.PartName(i))))
	}
	refused(t, folder, bundle.ErrMissing, "small.001")
	refused(t, folder, bundle.ErrMissing, "small.002")
}

func TestADamagedPartIsNamed(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(text []byte) []byte{
		"one bit":      func(text []byte) []byte { text[5000] ^= 1; return text },
		"its magic":    func(text []byte) []byte { text[0] ^= 1; return text },
		"its place":    func(text []byte) []byte { text[43] ^= 1; return text },
		"cut":          func(text []byte) []byte { return text[:len(text)-1] },
		"almost empty": func(text []byte) []byte { return text[:7] },
		"empty":        func([]byte) []byte { return nil },
		"longer":       func(text []byte) []byte { return append(text, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, m := packed(t)
			path := filepath.Join(folder, m.PartName(1))
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, damage(text), 0o600))
			refused(t, folder, bundle.ErrDamaged, "small.001")
		})
	}
}

func TestAPartOfAnotherBundleIsNamed(t *testing.T) {
	t.Parallel()
	folder, m := packed(t)
	other := t.TempDir()
	files, err := bundle.Tree(tree(t))
	require.NoError(t, err)
	_, err = bundle.Pack(t.Context(), other, bundle.Options{Name: "small", PartSize: 16 << 10}, files[:2])
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(other, m.PartName(1)))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, m.PartName(1)), text, 0o600))
	refused(t, folder, bundle.ErrForeign, "small.001")
	text, err = os.ReadFile(filepath.Join(folder, m.PartName(2)))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, m.PartName(1)), text, 0o600))
	refused(t, folder, bundle.ErrDamaged, "small.001") // of this bundle, at another place
}

func TestAPathOutsideTheFolderIsNamed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	for _, name := range []string{"../out", "/etc/passwd", "a/../../out", "", ".", "a//b", `a\..\b`, "a/\x00"} {
		folder, _ := packed(t)
		rewrite(t, folder, func(m *bundle.Manifest) { m.Files[0].Name = name })
		refused(t, folder, bundle.ErrPath, "")
	}
}

func TestALinkIsNamed(t *testing.T) {
	t.Parallel()
	folder, _ := packed(t)
	rewrite(t, folder, func(m *bundle.Manifest) { m.Files[0].Mode = "120777" })
	refused(t, folder, bundle.ErrLink, "bin/program")

	source := tree(t)
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(source, "lib", "libc.so")))
	files, err := bundle.Tree(source)
	require.NoError(t, err)
	into := t.TempDir()
	_, err = bundle.Pack(t.Context(), into, bundle.Options{Name: "small"}, files)
	require.ErrorIs(t, err, bundle.ErrLink)
	require.ErrorContains(t, err, "libc.so")
	left, err := os.ReadDir(into)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestABombIsNamed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	folder, _ := packed(t)
	_, err := bundle.Join(t.Context(), folder, filepath.Join(t.TempDir(), "root"), 1_000_000)
	require.ErrorIs(t, err, bundle.ErrBomb)
	require.ErrorContains(t, err, "1000000")

	rewrite(t, folder, func(m *bundle.Manifest) { m.Files[0].Size = 1 << 62 })
	refused(t, folder, bundle.ErrBomb, "bin/program")

	// The stream goes on behind what is declared; and one file is declared as smaller or larger.
	folder, _ = packed(t)
	rewrite(t, folder, func(m *bundle.Manifest) { m.Files = m.Files[:len(m.Files)-2] })
	refused(t, folder, bundle.ErrBomb, "more than the")
	folder, _ = packed(t)
	rewrite(t, folder, func(m *bundle.Manifest) { m.Files[2].Size /= 2 })
	refused(t, folder, bundle.ErrDamaged, "lib/libb.so")
	folder, _ = packed(t)
	rewrite(t, folder, func(m *bundle.Manifest) { m.Files[2].Size *= 2 })
	refused(t, folder, bundle.ErrDamaged, "lib/libb.so")
}

func TestAManifestThatIsNoneIsNamed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(m *bundle.Manifest){
		"format 2":         func(m *bundle.Manifest) { m.Format = 2 },
		"name":             func(m *bundle.Manifest) { m.Name = "../x" },
		"setuid":           func(m *bundle.Manifest) { m.Files[0].Mode = "4755" },
		"no files":         func(m *bundle.Manifest) { m.Files = nil },
		"no parts":         func(m *bundle.Manifest) { m.Parts = nil },
		"one name twice":   func(m *bundle.Manifest) { m.Files[1].Name = m.Files[0].Name },
		"file and folder":  func(m *bundle.Manifest) { m.Files[1].Name = m.Files[0].Name + "/x" },
		"folder and file":  func(m *bundle.Manifest) { m.Files[1].Name = "bin" },
		"sum":              func(m *bundle.Manifest) { m.Files[1].SHA256 = "x" },
		"too large a part": func(m *bundle.Manifest) { m.Name, m.Parts[0].Size = "gone", bundle.MaxPart+1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, _ := packed(t)
			rewrite(t, folder, change)
			refused(t, folder, bundle.ErrManifest, "")
		})
	}
	folder, _ := packed(t)
	path := filepath.Join(folder, bundle.ManifestName)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(text, "{}"...), 0o600))
	refused(t, folder, bundle.ErrManifest, "has data after its end")
	require.NoError(t, os.WriteFile(path, bytes.Replace(text, []byte("bin/program"), []byte("bin/another"), 1), 0o600))
	refused(t, folder, bundle.ErrManifest, "id")
	require.NoError(t, os.Remove(path))
	refused(t, folder, bundle.ErrManifest, "no such file")
}

func TestPackingLeavesNothingWhereItEndsEarly(t *testing.T) {
	t.Parallel()
	files, err := bundle.Tree(tree(t))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	into := t.TempDir()
	_, err = bundle.Pack(ctx, into, bundle.Options{Name: "small"}, files)
	require.ErrorIs(t, err, context.Canceled)
	folder, _ := packed(t)
	before, err := os.ReadDir(folder)
	require.NoError(t, err)
	_, err = bundle.Pack(t.Context(), folder, bundle.Options{Name: "small", PartSize: 16 << 10}, files)
	require.ErrorIs(t, err, os.ErrExist)
	after, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, after, len(before))
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = bundle.Join(ctx, folder, filepath.Join(into, "root"), 0)
	require.ErrorIs(t, err, context.Canceled)
	left, err := os.ReadDir(into)
	require.NoError(t, err)
	require.Empty(t, left)
}

// FuzzJoin reads manifests and parts of anybody's making: whatever they are, Join ends, writes
// no more than 64 KiB, and nothing where it refuses them.
func FuzzJoin(f *testing.F) {
	var stream bytes.Buffer
	z, err := zstd.NewWriter(&stream)
	require.NoError(f, err)
	_, err = z.Write([]byte("hello"))
	require.NoError(f, err)
	require.NoError(f, z.Close())
	f.Add([]byte(`{"format":1,"name":"a","id":"","files":[{"name":"b","mode":"644","size":5,"sha256":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}],"parts":[]}`), stream.Bytes())
	f.Add([]byte(`{"format":1,"files":[{"name":"../b","mode":"120777","size":-5}]}`), []byte("rlbundl1"))
	f.Fuzz(func(t *testing.T, text, stream []byte) {
		parent := t.TempDir()
		folder := filepath.Join(parent, "parts")
		require.NoError(t, os.Mkdir(folder, 0o755))
		var m bundle.Manifest
		if json.Unmarshal(text, &m) == nil && filepath.IsLocal(m.PartName(0)) && len(m.Name) < 100 && filepath.Base(m.PartName(0)) == m.PartName(0) {
			files, err := json.Marshal(m.Files)
			require.NoError(t, err)
			id := sha256.Sum256(files)
			m.ID = hex.EncodeToString(id[:])
			part := append(append(append([]byte("rlbundl1"), id[:]...), 0, 0, 0, 0), stream...)
			sum := sha256.Sum256(part)
			m.Parts = []bundle.Part{{Size: int64(len(part)), SHA256: hex.EncodeToString(sum[:])}}
			if os.WriteFile(filepath.Join(folder, m.PartName(0)), part, 0o600) != nil {
				return
			}
			text, err = json.Marshal(m)
			require.NoError(t, err)
		}
		require.NoError(t, os.WriteFile(filepath.Join(folder, bundle.ManifestName), text, 0o600))
		joined, err := bundle.Join(t.Context(), folder, filepath.Join(parent, "root"), 64<<10)
		left, readErr := os.ReadDir(parent)
		require.NoError(t, readErr)
		if err != nil {
			require.Len(t, left, 1)
			return
		}
		require.Len(t, left, 2)
		files, err := bundle.Tree(filepath.Join(parent, "root"))
		require.NoError(t, err)
		require.Len(t, files, len(joined.Files))
	})
}
