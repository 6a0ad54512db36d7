package spool_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/spool"
)

// disk is a file system of so many bytes, whose operations fail as the test says.
type disk struct {
	mu     sync.Mutex
	room   int64              // bytes that files may have all in all; 0: any
	ops    int                // operations so far
	fail   func(op int) error // of the nth operation; nil: none fails
	slow   time.Duration      // what a sync takes
	syncs  int
	synced map[string][]byte // files by name, as they were synced last
}

func newDisk(room int64) *disk { return &disk{room: room, synced: map[string][]byte{}} }

// diskFile is one of its files.
type diskFile struct {
	spool.File
	disk *disk
	path string
}

func (d *disk) create(path string, flag int) (spool.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op(); err != nil {
		return nil, err
	}
	f, err := spool.Create(path, flag)
	if err != nil {
		return nil, err
	}
	return &diskFile{f, d, path}, nil
}

// op counts an operation and says whether it fails. The caller holds the mutex.
func (d *disk) op() error {
	d.ops++
	if d.fail != nil {
		return d.fail(d.ops)
	}
	return nil
}

// used is what all files have. The caller holds the mutex.
func (d *disk) used(dir string) (n int64) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
	}
	return n
}

// failing says which operations fail from now on, counted from one.
func (d *disk) failing(fail func(op int) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops, d.fail = 0, fail
}

// WriteAt writes half of what it should where it fails.
func (f *diskFile) WriteAt(b []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.op(); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], at)
		return n, err
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return 0, err
	}
	if more := at + int64(len(b)) - info.Size(); more > 0 && f.disk.room > 0 {
		if left := f.disk.room - f.disk.used(filepath.Dir(f.path)); more > left {
			n, _ := f.File.WriteAt(b[:max(int64(len(b))-more+max(left, 0), 0)], at)
			return n, &os.PathError{Op: "write", Path: f.path, Err: syscall.ENOSPC}
		}
	}
	return f.File.WriteAt(b, at)
}

func (f *diskFile) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.op(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *diskFile) Sync() error {
	time.Sleep(f.disk.slow)
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.op(); err != nil {
		return err
	}
	b, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	f.disk.syncs++
	f.disk.synced[filepath.Base(f.path)] = b
	return nil
}

// powerFails returns a folder with what a failure of the machine leaves behind: files as they
// were synced last, without those that were removed.
func (d *disk) powerFails(t *testing.T, dir string) string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	to := t.TempDir()
	for name, b := range d.synced {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			require.NoError(t, os.WriteFile(filepath.Join(to, name), b, 0o600))
		}
	}
	return to
}

// bound is within which time a sample is taken once the disk takes bytes again.
const bound = 5 * time.Second

// accepted puts a sample again and again, as clients do, until it is taken.
func accepted(t *testing.T, s *spool.Spool, r spool.Record, why string) {
	t.Helper()
	var err error
	for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = s.Put(r); err == nil {
			return
		}
	}
	require.NoError(t, err, "not taken within %v: %s", bound, why)
}

// kept lists the samples that are kept, and checks their bytes.
func kept(t *testing.T, s *spool.Spool) (ids []string) {
	t.Helper()
	require.NoError(t, s.Each(func(k *spool.Kept) error {
		b, err := k.Bytes()
		if err != nil {
			return err
		}
		if k.Kind == spool.Sample {
			assert.Equal(t, "of "+k.ID, string(k.Meta))
			assert.Len(t, b, bodyOf(k.ID))
			ids = append(ids, k.ID)
		}
		return nil
	}))
	return ids
}

// bodyOf is how many bytes the sample of that name has in these tests.
func bodyOf(id string) int { return 400 + 37*int(id[len(id)-1]) }

// done is what a gateway says of a sample that its client has the result of.
func done(s *spool.Spool, id string) {
	s.Later(result("r", 1, id))
	s.Later(drop(spool.Result, "r", 1, id))
}

// Every operation of a life fails once, and three, and thirty in a row: half of the bytes are
// written then, or none. No sample that was acknowledged is lost, none that is over stays for
// ever, nothing else is read, and a fresh sample is taken once the disk takes bytes again.
func TestWhicheverWriteFailsNoAcknowledgedSampleIsLostAndTheSpoolGoesOn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	for _, c := range []struct {
		errno syscall.Errno
		row   int
		fsync bool
	}{
		{syscall.ENOSPC, 1, false},
		{syscall.ENOSPC, 30, false},
		{syscall.EIO, 1, false},
		{syscall.EIO, 3, false},
		{syscall.ENOSPC, 3, true},
		{syscall.EIO, 1, true},
		{syscall.EIO, 3, true},
	} {
		t.Run(fmt.Sprintf("%v, %d in a row, fsync %v", c.errno, c.row, c.fsync), func(t *testing.T) {
			t.Parallel()
			last := 1
			for n := 0; n <= last; n++ {
				synctest.Test(t, func(t *testing.T) {
					if ops := failing(t, n, c.row, c.errno, c.fsync); n == 0 {
						last = ops
					}
				})
			}
		})
	}
}

// failing lives one life whose nth operation fails, and returns how many operations it took.
func failing(t *testing.T, n, row int, errno syscall.Errno, fsync bool) (ops int) {
	t.Helper()
	dir, d := t.TempDir(), newDisk(0)
	cfg := spool.Config{Dir: dir, MaxBytes: 1 << 20, SegmentBytes: 4000, Fsync: mode(fsync)}.Over(d.create)
	s, err := spool.Open(cfg)
	require.NoError(t, err)
	d.failing(func(op int) error {
		if op >= n && op < n+row {
			return &os.PathError{Op: "write", Path: dir, Err: errno}
		}
		return nil
	})
	why := fmt.Sprintf("operation %d failed", n)
	s.Later(spool.Record{Kind: spool.Run, Run: "r", Epoch: 1})
	var live []string
	for i := range 16 {
		id := fmt.Sprint("x", i)
		if s.Put(sample("r", 1, id, make([]byte, bodyOf(id)))) == nil {
			live = append(live, id)
		}
		if i%3 > 0 && len(live) > 2 { // the oldest of them is over
			done(s, live[0])
			live = live[1:]
		}
		if i%5 == 4 {
			_ = s.Flush() // what fails is tried again
			s.Tidy()
		}
	}
	d.mu.Lock()
	ops = d.ops
	d.mu.Unlock()
	amid, err := spool.Open(spool.Config{Dir: image(t, s, dir)}) // the process is killed now
	require.NoError(t, err)
	require.Subset(t, kept(t, amid), live, why)
	require.NoError(t, amid.Close())
	d.failing(nil) // the fault is over
	accepted(t, s, sample("r", 1, "fresh9", make([]byte, bodyOf("fresh9"))), why)
	require.NoError(t, s.Trouble(), why)
	require.NoError(t, s.Flush(), why)
	live = append(live, "fresh9")
	require.Equal(t, live, kept(t, s), why)
	killed := image(t, s, dir)
	require.NoError(t, s.Close(), why)
	for _, dir := range []string{killed, dir} {
		cfg.Dir = dir
		again, err := spool.Open(cfg)
		require.NoError(t, err)
		require.Equal(t, live, kept(t, again), why)
		for _, id := range live {
			done(again, id)
		}
		accepted(t, again, sample("r", 1, "later1", make([]byte, bodyOf("later1"))), why)
		require.Equal(t, 2, again.Stats().Records, "%s: the run and the last sample", why)
		require.NoError(t, again.Close())
	}
	return ops
}

// A disk is filled by samples. Those that are over make room, although no byte is free to say
// that they are; while it is full, a gateway that was killed starts, and reads what is there.
func TestASpoolThatHasFilledItsDiskComesBackWhenItsSamplesAreOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		segment int64
		reserve bool // of the start after the kill
		over    int  // one of so many is over before it
	}{
		"one segment":                        {segment: 1 << 20, reserve: true, over: 4},
		"many segments":                      {segment: 5000, reserve: true, over: 4},
		"nothing is over before the kill":    {segment: 1 << 20, reserve: true, over: 1 << 20},
		"another has taken the reserve":      {segment: 5000, over: 1 << 20},
		"and there is one segment":           {segment: 1 << 20, over: 1 << 20},
		"and some were over, in one segment": {segment: 1 << 20, over: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, d := t.TempDir(), newDisk(60_000)
			cfg := spool.Config{Dir: dir, MaxBytes: 1 << 20, SegmentBytes: c.segment}.Over(d.create)
			s, err := spool.Open(cfg)
			require.NoError(t, err)
			s.Later(spool.Record{Kind: spool.Run, Run: "r", Epoch: 1})
			var live []string
			for i := 0; ; i++ {
				id := fmt.Sprint("x", i)
				if err = s.Put(sample("r", 1, id, make([]byte, bodyOf(id)))); err != nil {
					break
				}
				live = append(live, id)
			}
			require.ErrorIs(t, err, spool.ErrFull)
			require.ErrorIs(t, err, syscall.ENOSPC)
			require.Eventually(t, func() bool { // until the next try, a quarter of a second later
				return s.Put(sample("r", 1, "full", make([]byte, bodyOf("full")))) != nil && errors.Is(s.Trouble(), spool.ErrFull)
			}, 10*time.Second, time.Millisecond)
			require.Greater(t, len(live), 10)
			for i, id := range slices.Clone(live) {
				if i%c.over == c.over-1 {
					done(s, id)
					live = slices.DeleteFunc(live, func(o string) bool { return o == id })
				}
			}
			_ = s.Flush() // what the disk has no room for is tried again

			cfg.Dir = image(t, s, dir)
			_ = s.Close() // before its folder goes: until then it makes files there
			require.NoError(t, os.RemoveAll(dir))
			if !c.reserve {
				require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, "reserve")))
			}
			d.mu.Lock()
			d.room = d.used(cfg.Dir)
			d.mu.Unlock()
			again, err := spool.Open(cfg)
			require.NoError(t, err, "a start on a full disk")
			require.Equal(t, live, kept(t, again))
			for _, id := range live {
				done(again, id)
			}
			accepted(t, again, sample("r", 1, "fresh1", make([]byte, bodyOf("fresh1"))), name)
			require.NoError(t, again.Trouble())
			require.NoError(t, again.Flush())
			require.Equal(t, 2, again.Stats().Records)
			require.NoError(t, again.Close())
			last, err := spool.Open(cfg)
			require.NoError(t, err)
			require.Equal(t, []string{"fresh1"}, kept(t, last))
			require.Zero(t, last.Stats().Skipped)
			require.NoError(t, last.Close())
		})
	}
}
