package spool

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"sync"
	"time"
)

var (
	// ErrInUse is a folder that another process has.
	ErrInUse = errors.New("spool folder is in use")
	// ErrFull refuses a sample beyond Config.MaxBytes.
	ErrFull = errors.New("spool is full")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("spool is closed")
	// ErrDamaged is a record whose bytes are not those that were written.
	ErrDamaged = errors.New("damaged record")
	// ErrVersion is a segment that another release has written.
	ErrVersion = errors.New("spool was written by another release")
)

// Config of a Spool. Dir is required; the zero value of any other field takes its default.
type Config struct {
	// Dir is the folder; it is made if it is not there.
	Dir string
	// MaxBytes bounds the files: a sample beyond it is refused. What is dead and was not
	// given back yet counts, up to an eighth of it; results and what else samples leave
	// behind are written all the same. Defaults to 16 GiB.
	MaxBytes int64
	// SegmentBytes is when a new file is begun. Defaults to MaxBytes/16, at most 64 MiB.
	SegmentBytes int64
	Log          *slog.Logger // nil: discarded
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, 16<<30)
	c.SegmentBytes = cmp.Or(c.SegmentBytes, max(1, min(c.MaxBytes/16, 64<<20)))
	return c
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("spool: a folder is needed"))
	}
	if c.MaxBytes < 1 || c.SegmentBytes < 1 {
		errs = append(errs, fmt.Errorf("spool: max_bytes %d and segment_bytes %d must be positive", c.MaxBytes, c.SegmentBytes))
	}
	return errors.Join(errs...)
}

// Stats says how a spool is.
type Stats struct {
	Bytes    int64  // of all files
	Live     int64  // of records that are kept
	Records  int    // of these
	Segments int    // files
	Skipped  uint64 // damaged or half-written records, since Open
	Refused  uint64 // samples beyond MaxBytes
	Failed   uint64 // writes that the system refused
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
	runs     map[string]*kept
	bytes    int64 // of all segments
	live     int64
	records  int
	seq      uint64
	closed   bool
	stats    Stats // the counters

	// qmu is taken inside mu or alone; nothing waits under it.
	qmu   sync.Mutex
	queue []Record // guarded by qmu
}

// Open locks the folder and finds out what is kept in it.
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
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.recover(); err != nil {
		return nil, errors.Join(err, s.closeFiles(), held.Close())
	}
	go s.write() // ends on Close, which waits for it
	return s, nil
}

// Put writes a record and returns when the kernel has it. A sample beyond MaxBytes is
// refused with ErrFull. Everything that was queued before is written before it.
func (s *Spool) Put(r Record) error {
	if err := r.check(); err != nil {
		return err
	}
	if r.Sum == 0 && len(r.Body) > 0 {
		r.Sum = crc32.Checksum(r.Body, castagnoli())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.drain(); err != nil {
		return err
	}
	need := int64(fixedBytes + len(r.Run) + len(r.ID) + len(r.Meta) + len(r.Body))
	if r.Kind == Sample && s.bytes+need > s.cfg.MaxBytes {
		s.makeRoom(need)
		if s.bytes+need > s.cfg.MaxBytes {
			s.stats.Refused++
			return fmt.Errorf("%w: %d bytes are kept of at most %d", ErrFull, s.live, s.cfg.MaxBytes)
		}
	}
	return s.append([]Record{r})
}

// Later queues a record; it never waits. Records are written in the order in which they
// were queued. What waits is bounded by what was put: while the queue cannot be written,
// Put fails as well.
func (s *Spool) Later(r Record) {
	s.qmu.Lock()
	s.queue = append(s.queue, r)
	s.qmu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Flush writes what is queued.
func (s *Spool) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drain()
}

// Stats returns the present state.
func (s *Spool) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Bytes, st.Live, st.Records, st.Segments = s.bytes, s.live, s.records, len(s.segments)
	return st
}

// Close writes what is queued and gives the folder back.
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
	return errors.Join(err, s.closeFiles(), s.lock.Close())
}

func (s *Spool) closeFiles() error {
	if n := len(s.segments); n > 0 && s.segments[n-1].file != nil {
		return s.segments[n-1].file.Close()
	}
	return nil
}

// retryAfter is the pause after a write that the system refused.
const retryAfter = time.Second

// write is the spool's one goroutine: it writes what nobody waits for and gives back the
// room of what is dead.
func (s *Spool) write() {
	defer close(s.done)
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.wake:
		case <-again.C:
		}
		if err := s.Flush(); err != nil && !errors.Is(err, ErrClosed) {
			s.log.Error("spool cannot be written; it is tried again", "dir", s.cfg.Dir, "error", err)
			again.Reset(retryAfter)
		}
		s.tidy()
	}
}

// batchBytes is about how much of the queue is written at once.
const batchBytes = 1 << 20

// drain writes the queue. What could not be written stays in it. The caller holds mu.
func (s *Spool) drain() error {
	if s.closed {
		return ErrClosed
	}
	s.qmu.Lock()
	queue := s.queue
	s.queue = nil
	s.qmu.Unlock()
	for len(queue) > 0 {
		var batch []Record
		n, size := 0, 0
		for ; n < len(queue) && size < batchBytes; n++ {
			r := queue[n]
			if err := r.check(); err != nil { // names are bounded long before
				s.log.Error("record not kept", "error", err)
				continue
			}
			if r.Fill != nil {
				r.Body = r.Fill()
			}
			r.Sum = crc32.Checksum(r.Body, castagnoli())
			batch = append(batch, r)
			size += fixedBytes + len(r.Body) + len(r.Meta)
		}
		if err := s.append(batch); err != nil {
			s.qmu.Lock()
			s.queue = append(queue, s.queue...)
			s.qmu.Unlock()
			return err
		}
		queue = queue[n:]
	}
	return nil
}
