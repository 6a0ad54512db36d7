package hfcache

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// incomplete ends the name of a blob that is being written.
const incomplete = ".incomplete"

// lockPoll is how often a lock that somebody has is tried.
const lockPoll = 100 * time.Millisecond

// Entry is the description of a file by a hub.
type Entry struct {
	File
	Commit, ETag string
	// Sum means that the ETag is the SHA-256 of the bytes. Such a blob is checked before it is
	// finished, and an interrupted transfer can be resumed.
	Sum bool
}

// Slot is the place of a blob, with a lock if the file system supports locks. One goroutine owns
// the Slot and must close it.
type Slot struct {
	entry   Entry
	cache   Cache
	folder  string
	partial string
	keep    bool
	unlock  func()
}

// Begin waits for the lock of a blob and returns its place. waiting is called once if another
// process has the lock. The wait ends with ctx. Errors are those of the file system, such as for a
// read-only cache.
func (c Cache) Begin(ctx context.Context, e Entry, waiting func()) (*Slot, error) {
	folder, err := c.check(e.File)
	switch {
	case err != nil:
		return nil, err
	case !IsCommit(e.Commit):
		return nil, fmt.Errorf("%w: commit %.60q of %s", errUnsafe, e.Commit, e.Repository)
	case !IsETag(e.ETag) || e.Sum && !IsSum(e.ETag):
		return nil, fmt.Errorf("%w: ETag %.60q of %s in %s", errUnsafe, e.ETag, e.Path, e.Repository)
	}
	locks := filepath.Join(c.Dir, ".locks", folderName(e.Repository))
	for _, dir := range []string{locks, filepath.Join(folder, "blobs"), filepath.Dir(pointer(folder, e.Commit, e.Path))} {
		if err := os.MkdirAll(dir, 0o777); err != nil { // as the user's umask says, and as Python
			return nil, err
		}
	}
	unlock, locked, err := lock(ctx, filepath.Join(locks, e.ETag+".lock"), waiting)
	if err != nil {
		return nil, fmt.Errorf("%s in Hugging Face's cache: another program is downloading the file: %w", e.Path, err)
	}
	s := &Slot{entry: e, cache: c, folder: folder, unlock: unlock, keep: e.Sum && locked}
	if s.partial = partialOf(folder, e); !s.keep {
		s.partial = filepath.Join(folder, "blobs", e.ETag+"."+unique()+incomplete)
	}
	return s, nil
}

// partialOf is a name that no other writer has and this machine has each time, so
// that it can go on from there: the lock keeps others of this machine away, the name
// those of other machines, whose locks some file systems do not know.
func partialOf(folder string, e Entry) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	sum := sha256.Sum256([]byte("rewardloop on " + host))
	return filepath.Join(folder, "blobs", e.ETag+"."+hex.EncodeToString(sum[:4])+incomplete)
}

// IsPartial reports whether at is a path that Slot.Partial returned.
func IsPartial(at string) bool { return strings.HasSuffix(at, incomplete) }

// Left returns the number of bytes of an earlier transfer of the file that can be resumed.
func (c Cache) Left(e Entry) int64 {
	folder, err := c.check(e.File)
	if err != nil || !e.Sum || !IsSum(e.ETag) {
		return 0
	}
	info, err := os.Stat(partialOf(folder, e))
	if err != nil {
		return 0
	}
	return info.Size()
}

// Partial returns the path of the file to write, which may already contain the beginning of the
// bytes.
func (s *Slot) Partial() string { return s.partial }

// Ready returns the path of the blob if another process has finished it meanwhile, or else "".
func (s *Slot) Ready() string {
	for _, at := range []string{s.blob(), s.pointer()} {
		if regular(at) {
			return at
		}
	}
	return ""
}

func (s *Slot) blob() string    { return filepath.Join(s.folder, "blobs", s.entry.ETag) }
func (s *Slot) pointer() string { return pointer(s.folder, s.entry.Commit, s.entry.Path) }

// Finish renames the partial file, if fresh, to the blob, and sets the snapshot and the ref. Finish
// returns the path of the bytes.
func (s *Slot) Finish(fresh bool) (string, error) {
	if fresh {
		if err := settle(s.partial, s.blob()); err != nil {
			return "", err
		}
	}
	at, err := s.point(fresh)
	if err != nil {
		return "", err
	}
	return at, s.cache.ref(s.folder, s.entry.Revision, s.entry.Commit)
}

// point makes the snapshot have the file, and returns where its bytes are.
func (s *Slot) point(fresh bool) (string, error) {
	if !fresh && regular(s.pointer()) {
		return s.pointer(), nil
	}
	beside := s.pointer() + "." + unique()
	if !s.cache.NoLinks {
		target, err := filepath.Rel(filepath.Dir(s.pointer()), s.blob())
		if err == nil {
			err = os.Symlink(target, beside)
		}
		if err == nil {
			return s.blob(), rename(beside, s.pointer())
		}
	}
	if fresh { // nobody else points to it
		return s.pointer(), rename(s.blob(), s.pointer())
	}
	if err := copyFile(s.blob(), beside); err != nil {
		return "", err
	}
	return s.pointer(), rename(beside, s.pointer())
}

// Close releases the lock. The partial file of a blob with Sum is kept, so that the transfer can be
// resumed.
func (s *Slot) Close() {
	if !s.keep {
		_ = os.Remove(s.partial)
	}
	s.unlock()
}

// NoteAbsent records that a commit has no such file, and the commit of the revision.
func (c Cache) NoteAbsent(f File, commit string) error {
	folder, err := c.check(f)
	if err != nil {
		return err
	}
	if !IsCommit(commit) || c.Dir == "" {
		return nil
	}
	at := absence(folder, commit, f.Path)
	if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(at, nil, 0o666); err != nil {
		return err
	}
	return c.ref(folder, f.Revision, commit)
}

// NoteRevision records the current commit of a revision.
func (c Cache) NoteRevision(f File, commit string) error {
	folder, err := c.check(f)
	if err != nil || !IsCommit(commit) {
		return err
	}
	return c.ref(folder, f.Revision, commit)
}

// ref notes what a revision means, if that is news.
func (c Cache) ref(folder, revision, commit string) error {
	if revision == commit {
		return nil
	}
	at := filepath.Join(folder, "refs", filepath.FromSlash(revision))
	if text, err := readSmall(at, 256); err == nil && text == commit {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
		return err
	}
	beside := at + "." + unique() + ".tmp"
	if err := os.WriteFile(beside, []byte(commit), 0o666); err != nil {
		return err
	}
	return rename(beside, at)
}

// lock waits for a file's lock. A file system without locks gives none: they save
// work, and nothing relies on them.
func lock(ctx context.Context, at string, waiting func()) (unlock func(), locked bool, err error) {
	f, err := os.OpenFile(at, os.O_RDWR|os.O_CREATE, 0o664)
	if err != nil {
		return nil, false, err
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for told := false; ; told = true {
		switch taken, err := tryLock(f); {
		case err != nil:
			_ = f.Close()
			return func() {}, false, nil
		case taken:
			return func() { _ = f.Close() }, true, nil
		}
		if !told && waiting != nil {
			waiting()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = f.Close()
			return nil, false, context.Cause(ctx)
		}
	}
}

func unique() string {
	var some [4]byte
	_, _ = rand.Read(some[:]) // never fails
	return hex.EncodeToString(some[:])
}

// rename gives a file its name, or removes it.
func rename(from, to string) error {
	err := os.Rename(from, to)
	if err != nil {
		_ = os.Remove(from)
	}
	return err
}

// settle gives a finished file its name, for good.
func settle(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(from, to)
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(to)
		}
	}()
	_, err = io.Copy(out, in)
	return err
}
