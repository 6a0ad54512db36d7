package claim

import (
	"crypto/subtle"
	"fmt"
	"os"
	"sync"

	"github.com/rewardloop/rewardloop/wire"
)

const (
	// sharePrefix begins the names of our folders in shared memory.
	sharePrefix = "rewardloop-claim-"
	markerName  = "marker"
	markerBytes = 64
	// stageFiles is how many staging files a connection has: with those of stageBytes it
	// takes at most 8 MiB.
	stageFiles = 8
)

// share is a gateway's folder in shared memory; a nil one offers nothing. Its marker is
// locked while the gateway lives, so that the next one can tell a folder that is left over.
type share struct {
	dir    string
	marker string
	lock   *os.File
}

// offer tells a connection where its staging files will be.
func (s *share) offer(serial int) *wire.ClaimShared {
	if s == nil {
		return nil
	}
	return &wire.ClaimShared{Dir: s.dir, Prefix: fmt.Sprintf("c%d", serial), Files: stageFiles}
}

// proves reports whether the worker has read the marker.
func (s *share) proves(marker string) bool {
	return s != nil && subtle.ConstantTimeCompare([]byte(marker), []byte(s.marker)) == 1
}

// ring returns the staging files of a connection, none of which exists yet.
func (s *share) ring(serial int) *ring { return &ring{share: s, serial: serial} }

// close removes the folder.
func (s *share) close() {
	if s != nil {
		_ = os.RemoveAll(s.dir)
		_ = s.lock.Close()
	}
}

// ring is the staging files of a connection.
type ring struct {
	share  *share
	serial int

	mu     sync.Mutex
	busy   [stageFiles]bool
	files  [stageFiles]*os.File // opened at first use
	closed bool
}

// take returns a file that nothing is in, -1 if there is none.
func (r *ring) take() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, busy := range r.busy {
		if !busy && !r.closed {
			r.busy[i] = true
			return i
		}
	}
	return -1
}

// free takes a file back and reports whether it was on its way.
func (r *ring) free(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i < 0 || i >= stageFiles || !r.busy[i] {
		return false
	}
	r.busy[i] = false
	return true
}

// write puts parts at the beginning of a file that take has returned.
func (r *ring) write(i int, parts [][]byte) error {
	f := r.files[i] // the pusher's alone until close, which comes after it
	if f == nil {
		var err error
		f, err = os.OpenFile(fmt.Sprintf("%s/c%d-%d", r.share.dir, r.serial, i), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		r.files[i] = f
	}
	at := int64(0)
	for _, p := range parts {
		n, err := f.WriteAt(p, at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// close removes the files. It is called by the pusher, or when that has ended.
func (r *ring) close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for i, f := range r.files {
		if f != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			r.files[i] = nil
		}
	}
}

// view is a worker's side of a ring. Its reader owns it.
type view struct {
	dir    *os.Root
	prefix string
	files  [stageFiles]*os.File
}

// read fills dst from offset at of a file.
func (v *view) read(i int, dst []byte, at int64) error {
	if i < 0 || i >= stageFiles {
		return fmt.Errorf("there is no staging file %d", i)
	}
	if v.files[i] == nil {
		f, err := v.dir.Open(fmt.Sprintf("%s-%d", v.prefix, i))
		if err != nil {
			return err
		}
		v.files[i] = f
	}
	_, err := v.files[i].ReadAt(dst, at)
	return err
}

func (v *view) close() {
	if v == nil {
		return
	}
	for _, f := range v.files {
		if f != nil {
			_ = f.Close()
		}
	}
	_ = v.dir.Close()
}
