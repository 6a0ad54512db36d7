package claim

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rewardloop/rewardloop/wire"
)

// newShare makes a folder that only this user sees, and removes those of gateways that have
// ended without doing so.
func newShare(base string) (*share, error) {
	removeStale(base)
	dir, err := os.MkdirTemp(base, sharePrefix) // mode 0700
	if err != nil {
		return nil, err
	}
	var secret [markerBytes / 2]byte
	_, _ = rand.Read(secret[:]) // never fails
	s := &share{dir: dir, marker: hex.EncodeToString(secret[:])}
	s.lock, err = os.OpenFile(filepath.Join(dir, markerName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		// Locked before it has a content: removeStale leaves an empty one alone.
		if err = unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			_, err = s.lock.WriteString(s.marker)
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		if s.lock != nil {
			_ = s.lock.Close()
		}
		return nil, err
	}
	return s, nil
}

// removeStale removes the folders of this user whose markers nobody has locked any more.
func removeStale(base string) {
	dirs, err := filepath.Glob(filepath.Join(base, sharePrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if ours(dir) != nil {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, markerName), os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		info, err := f.Stat()
		if err == nil && info.Size() == markerBytes && unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = f.Close()
	}
}

// ours returns nil for a folder of this user that nobody else may write.
func ours(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || info.Mode().Perm() != 0o700 || int64(stat.Uid) != int64(os.Geteuid()) {
		return fmt.Errorf("%s is not a folder of this user with mode 0700", dir)
	}
	return nil
}

// look opens a gateway's folder and returns its marker. Only a folder of this user's, where we
// expect such folders, is looked at: a gateway must not learn what other files hold.
func look(base string, offer *wire.ClaimShared) (*view, string, error) {
	name := filepath.Base(offer.Dir)
	if filepath.Join(base, name) != offer.Dir || !strings.HasPrefix(name, sharePrefix) || offer.Files > stageFiles {
		return nil, "", errors.New("it is not where shared memory is looked for")
	}
	if err := ours(offer.Dir); err != nil {
		return nil, "", err
	}
	root, err := os.OpenRoot(offer.Dir)
	if err != nil {
		return nil, "", err
	}
	f, err := root.Open(markerName)
	if err != nil {
		_ = root.Close()
		return nil, "", err
	}
	defer func() { _ = f.Close() }()
	marker, err := io.ReadAll(io.LimitReader(f, markerBytes+1))
	if err != nil || len(marker) != markerBytes {
		_ = root.Close()
		return nil, "", fmt.Errorf("its marker has %d bytes: %w", len(marker), errors.Join(err))
	}
	return &view{dir: root, prefix: offer.Prefix}, string(marker), nil
}
