package spool

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
)

var (
	// ErrInUse means that another process uses the folder.
	ErrInUse = errors.New("spool folder is in use")
	// ErrFull means that there is no space for a sample, within Config.MaxBytes or on the disk.
	ErrFull = errors.New("spool full")
	// ErrInvalid means that a record can never be written.
	ErrInvalid = errors.New("spool: no such record")
	// errClosed is returned after Close.
	errClosed = errors.New("spool is closed")
	// ErrDamaged means that the bytes of a record are not those that were written.
	ErrDamaged = errors.New("damaged record")
	// errVersion is a segment that another release has written.
	errVersion = errors.New("spool was written by another release")
)

// Config configures a Spool. Dir is required; any other field with the zero value gets its default.
type Config struct {
	// Dir is the folder, which Open makes if it does not exist. MaxBytes is the maximum size of the
	// files, including the reserve and dead records, which may use an eighth of it. Results and
	// other records that samples leave behind are written even beyond MaxBytes. Fsync is FsyncNone
	// or FsyncGroup.
	Dir      string
	MaxBytes int64
	Fsync    string
	// SegmentBytes is the size at which a new file is begun. The default is MaxBytes/16, at most
	// 64 MiB.
	SegmentBytes int64
	// Free returns the number of free bytes on the file system of a folder. With a nil Free, a full
	// disk is detected by the write that fails.
	Free func(dir string) (int64, error)
	Log  *slog.Logger // nil: no log

	create func(path string, flag int) (file, error) // opens for writing
}

// The values of Config.Fsync. With FsyncNone, Put returns when a record survives the process; with
// FsyncGroup, when it survives a crash of the machine.
const (
	FsyncNone  = "none"
	FsyncGroup = "group"
)

// Keys implements keys.Described for the keys of a durable gateway's folder.
func (c *Config) Keys(k *keys.Set) {
	k.Text(&c.Dir, "spool_dir", "", "Folder of a durable gateway for acknowledged samples and their results. Each gateway needs its own folder.")
	k.Size(&c.MaxBytes, "spool_bytes", 16<<30, "Maximum bytes of the files in spool_dir; clients keep further samples until there is room. At least 8/7 of loop.message_bytes.").Min(1 << 20)
	k.Choice(&c.Fsync, "spool_fsync", []string{FsyncNone, FsyncGroup}, "fsync policy of the spool. none: a power failure may lose acknowledged samples. group: one fsync every few milliseconds for all waiting samples; no acknowledged sample is lost.")
}

// synced says that a record is to survive the machine.
func (c Config) synced() bool { return c.Fsync == FsyncGroup }

// WithDefaults returns a copy of c in which the defaults are set.
func (c Config) WithDefaults() Config {
	keys.Fill(&c)
	c.SegmentBytes = cmp.Or(c.SegmentBytes, max(1, min(c.MaxBytes/16, 64<<20)))
	if c.create == nil {
		c.create = create
	}
	return c
}

// Validate returns an error that lists all invalid fields.
func (c Config) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("spool: a folder is needed"))
	}
	if c.SegmentBytes < 1 {
		errs = append(errs, fmt.Errorf("spool: segment_bytes must be positive, not %d", c.SegmentBytes))
	}
	return errors.Join(append(errs, keys.Validate("spool", &c))...)
}

// Stats is the state of a spool.
type Stats struct {
	Bytes    int64  // total size of all segments
	Reserve  int64  // size of the file that is reserved for a full disk
	Live     int64  // total size of the live records
	Records  int    // number of live records
	Segments int    // number of files
	Skipped  uint64 // number of damaged or half-written records since Open
	Refused  uint64 // number of samples for which there was no space, or that could not be written
	Failed   uint64 // number of failed writes
}

// Spool is an open folder. It is safe for concurrent use.
type Spool struct {
	cfg  Config
	log  *slog.Logger
	lock *os.File
	wake chan struct{} // capacity 1: the queue has something
	stop chan struct{}
	done chan struct{} // closed when the writer has returned

	// mu is held while files are read or written, as long as the disk takes. Guarded by it:
	mu       sync.Mutex
	segments []*segment // oldest first; the last is being written
	number   uint64     // of the latest segment
	reserve  int64      // bytes of the reserve; 0: there is none
	runs     map[string]*kept
	live     int64
	records  int
	seq      uint64
	closed   bool
	stats    Stats     // the counters
	told     time.Time // when the log was told last of trouble
	commit   *commit   // who waits for the next fsync

	trouble atomic.Pointer[trouble] // written with mu held; nil: samples are taken
	ask     chan struct{}           // capacity 1: somebody waits for an fsync
	synced  chan struct{}           // closed when the goroutine that syncs has returned

	// qmu is taken inside mu or alone; nothing waits under it.
	qmu   sync.Mutex
	queue []Record // guarded by qmu
}

// Open locks the folder and reads the heads of the records in it.
func Open(cfg Config) (*Spool, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	held, err := lock(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	s := &Spool{
		cfg: cfg, log: cfg.Log, lock: held, runs: map[string]*kept{},
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		commit: newCommit(), ask: make(chan struct{}, 1), synced: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.recover(); err != nil {
		return nil, errors.Join(err, s.closeFiles(), held.Close())
	}
	go s.write() // ends on Close, which waits for it
	if cfg.synced() {
		go s.syncer() // ends after it, and Close waits for it as well
	} else {
		close(s.synced)
	}
	return s, nil
}

// Put writes a record and returns when the kernel has it, or with FsyncGroup when the disk has it.
// All queued records are written before. A sample is refused with ErrFull if the disk or
// Config.MaxBytes has no space for it. After a sample was refused for any reason, Trouble returns
// the reason until samples are accepted again. A record that can never be written is refused with
// ErrInvalid.
func (s *Spool) Put(r Record) error {
	if err := r.check(); err != nil {
		return err
	}
	if most := s.cfg.MaxBytes - s.cfg.MaxBytes/8; r.size() > most {
		return fmt.Errorf("%w: %d bytes, and seven eighths of queue.spool_bytes are %d", ErrInvalid, r.size(), most)
	}
	if r.Sum == 0 && len(r.Body) > 0 {
		r.Sum = crc32.Checksum(r.Body, castagnoli())
	}
	s.mu.Lock()
	err := s.put(r)
	c := s.commit
	if err == nil && s.cfg.synced() {
		c = s.join()
	}
	s.mu.Unlock()
	if err != nil || !s.cfg.synced() {
		return err
	}
	<-c.done // as long as the disk takes
	if c.err != nil && r.Kind == Sample {
		s.Later(Record{Kind: Drop, Of: Sample, Run: r.Run, Epoch: r.Epoch, ID: r.ID})
	}
	return c.err
}

func (s *Spool) put(r Record) error {
	if r.Kind != Sample {
		if err := s.drain(); err != nil {
			return err
		}
		return s.append([]Record{r})
	}
	err := s.ready(r.size())
	if err == nil {
		err = s.append([]Record{r})
	}
	if err != nil {
		s.stats.Refused++
		return s.fail(err, r.size())
	}
	s.trouble.Store(nil)
	return nil
}

// Later queues a record and never blocks. Records are written in the order in which they were
// queued, except that on a full disk small records are written first. The queue is limited by the
// records that were put: while the queue cannot be written, Put fails too.
func (s *Spool) Later(r Record) {
	if err := r.check(); err != nil { // names are bounded long before
		s.log.Error("a record was not written to the spool", "error", err)
		return
	}
	s.qmu.Lock()
	s.queue = append(s.queue, r)
	s.qmu.Unlock()
	s.wakeUp()
}

func (s *Spool) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Flush writes the queued records.
func (s *Spool) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drain()
}

// Stats returns the current state.
func (s *Spool) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Bytes, st.Reserve, st.Live, st.Records, st.Segments = s.bytes()-s.reserve, s.reserve, s.live, s.records, len(s.segments)
	return st
}

// Close writes the queued records and unlocks the folder.
func (s *Spool) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	err := s.drain()
	s.closed = true
	s.mu.Unlock()
	close(s.stop)
	<-s.done
	<-s.synced
	return errors.Join(err, s.closeFiles(), s.lock.Close())
}

func (s *Spool) closeFiles() error {
	f := s.active().file
	if f == nil {
		return nil
	}
	if s.cfg.synced() {
		return errors.Join(f.Sync(), f.Close())
	}
	return f.Close()
}

// retryAfter is the pause after a write that the system refused.
const retryAfter = 250 * time.Millisecond

// write is the spool's one goroutine: it writes what nobody waits for, gives back the room
// of what is dead, and finds out when a spool in trouble may be written again.
func (s *Spool) write() {
	defer close(s.done)
	again := time.NewTimer(retryAfter)
	defer again.Stop()
	for {
		wake := s.wake
		if s.Trouble() != nil {
			wake = nil // all that is queued meanwhile is looked at together
			again.Reset(retryAfter)
		}
		select {
		case <-s.stop:
			return
		case <-wake:
		case <-again.C:
		}
		_ = s.Flush() // what went wrong is the trouble
		s.tidy()
		s.recovered()
	}
}

// batchBytes is about how much of the queue is written at once.
const batchBytes = 1 << 20

// drain writes the queue. What could not be written stays in it. The caller holds mu.
func (s *Spool) drain() error {
	if s.closed {
		return errClosed
	}
	s.qmu.Lock()
	queue := s.queue
	s.queue = nil
	s.qmu.Unlock()
	if len(queue) == 0 {
		return nil
	}
	err := s.keepReserve()
	if err == nil {
		queue, err = s.writeAll(queue)
	}
	if err == nil {
		return nil
	}
	queue = s.makeDo(queue)
	s.qmu.Lock()
	s.queue = append(queue, s.queue...)
	s.qmu.Unlock()
	if len(queue) == 0 {
		return nil
	}
	return s.fail(err, 0)
}

// writeAll writes a queue, and returns what could not be written.
func (s *Spool) writeAll(queue []Record) ([]Record, error) {
	for len(queue) > 0 {
		var batch []Record
		n, size := 0, 0
		for ; n < len(queue) && size < batchBytes; n++ {
			r := queue[n]
			if r.Fill != nil {
				r.Body = r.Fill()
			}
			r.Sum = crc32.Checksum(r.Body, castagnoli())
			batch = append(batch, r)
			size += int(r.size())
		}
		if err := s.append(batch); err != nil {
			return queue, err
		}
		queue = queue[n:]
	}
	return nil, nil
}
