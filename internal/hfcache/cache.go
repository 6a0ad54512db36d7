package hfcache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// ErrNotCached means that the cache does not have the file or the revision.
var ErrNotCached = errors.New("not in Hugging Face's cache")

// errUnsafe: a name could lead out of the cache.
var errUnsafe = errors.New("unsafe name")

var (
	commitForm     = regexp.MustCompile(`^[0-9a-f]{40}$`)
	sumForm        = regexp.MustCompile(`^[0-9a-f]{64}$`)
	repositoryForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$`)
	etagForm       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// Cache is a cache of models. A Cache with an empty Dir contains nothing.
type Cache struct {
	Dir string
	// NoLinks stores real files in snapshots instead of links, as on systems without links.
	NoLinks bool
}

// File is a file of a model's repository at a revision: a commit, a branch, a tag, or a ref such as
// refs/pr/1.
type File struct{ Repository, Revision, Path string }

// Found is a file of the cache.
type Found struct {
	// Path is the path of the file's bytes, which may be a link.
	Path string
	// Commit is the commit of the revision.
	Commit string
	// ETag is the name of the blob; empty for a real file in a snapshot.
	ETag string
	// Absent means that the commit has no such file. Path is then empty.
	Absent bool
}

// IsCommit reports whether revision is a full commit, which always means the same files.
func IsCommit(revision string) bool { return commitForm.MatchString(revision) }

// IsSum reports whether etag is a SHA-256, as for large files.
func IsSum(etag string) bool { return sumForm.MatchString(etag) }

// IsETag reports whether etag is valid as the name of a blob.
func IsETag(etag string) bool { return etagForm.MatchString(etag) }

// repository is the folder of a repository.
func (c Cache) repository(name string) (string, error) {
	if !repositoryForm.MatchString(name) || strings.Contains(name, "--") || strings.Contains(name, "..") {
		return "", fmt.Errorf("%w: repository %q: want owner/name", errUnsafe, name)
	}
	return filepath.Join(c.Dir, folderName(name)), nil
}

func folderName(repository string) string {
	return "models--" + strings.ReplaceAll(repository, "/", "--")
}

// check refuses what would lead out of the cache, and returns the repository's folder.
func (c Cache) check(f File) (string, error) {
	for what, name := range map[string]string{"revision": f.Revision, "file": f.Path} {
		if name == "." || path.Clean(name) != name || !filepath.IsLocal(filepath.FromSlash(name)) || strings.ContainsAny(name, "\\\x00") {
			return "", fmt.Errorf("%w: %s %q of %s", errUnsafe, what, name, f.Repository)
		}
	}
	return c.repository(f.Repository)
}

// Find returns a file of a snapshot, or a Found with Absent if the commit has no such file. The
// error wraps ErrNotCached if the file is not in the cache, including for a damaged ref.
func (c Cache) Find(f File) (Found, error) {
	folder, err := c.check(f)
	if err != nil {
		return Found{}, err
	}
	if c.Dir == "" {
		return Found{}, fmt.Errorf("%w: no folder for the cache: set HF_HOME", ErrNotCached)
	}
	commit, err := c.commit(folder, f.Revision)
	if err != nil {
		return Found{}, err
	}
	at := pointer(folder, commit, f.Path)
	if regular(at) {
		return Found{Path: at, Commit: commit, ETag: blobOf(at)}, nil
	}
	if regular(absence(folder, commit, f.Path)) {
		return Found{Commit: commit, Absent: true}, nil
	}
	return Found{}, fmt.Errorf("%w %s: %s of %s at %s", ErrNotCached, c.Dir, f.Path, f.Repository, f.Revision)
}

// Blob returns the path of the blob with that SHA-256 in a repository's folder, for any revision,
// or "" if there is none.
func (c Cache) Blob(repository, sum string) string {
	folder, err := c.repository(repository)
	if err != nil || c.Dir == "" || !IsSum(sum) {
		return ""
	}
	if at := filepath.Join(folder, "blobs", sum); regular(at) {
		return at
	}
	return ""
}

// Snapshot returns the folder with the files of a revision. The folder contains only the files that
// were requested before.
func (c Cache) Snapshot(repository, revision string) (string, error) {
	folder, err := c.check(File{Repository: repository, Revision: revision, Path: "any"})
	if err != nil {
		return "", err
	}
	if c.Dir == "" {
		return "", fmt.Errorf("%w: no folder for the cache: set HF_HOME", ErrNotCached)
	}
	commit, err := c.commit(folder, revision)
	if err != nil {
		return "", err
	}
	at := filepath.Join(folder, "snapshots", commit)
	if info, err := os.Stat(at); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%w %s: %s at %s", ErrNotCached, c.Dir, repository, revision)
	}
	return at, nil
}

// commit is what a revision means in the cache.
func (c Cache) commit(folder, revision string) (string, error) {
	if IsCommit(revision) {
		return revision, nil
	}
	at := filepath.Join(folder, "refs", filepath.FromSlash(revision))
	text, err := readSmall(at, 256)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w %s: revision %s of %s", ErrNotCached, c.Dir, revision, filepath.Base(folder))
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrNotCached, err)
	}
	commit := strings.TrimSpace(text)
	if !IsCommit(commit) {
		return "", fmt.Errorf("%w: %s has %.60q in place of a commit: remove the file", ErrNotCached, at, commit)
	}
	return commit, nil
}

func pointer(folder, commit, file string) string {
	return filepath.Join(folder, "snapshots", commit, filepath.FromSlash(file))
}

func absence(folder, commit, file string) string {
	return filepath.Join(folder, ".no_exist", commit, filepath.FromSlash(file))
}

func regular(at string) bool {
	info, err := os.Stat(at)
	return err == nil && info.Mode().IsRegular()
}

// blobOf is the ETag of the blob that a pointer leads to. Only the pointer itself is
// followed: the blob may be a link into a store that names files otherwise.
func blobOf(pointer string) string {
	target, err := os.Readlink(pointer)
	if err != nil || filepath.Base(filepath.Dir(target)) != "blobs" {
		return ""
	}
	return filepath.Base(target)
}
