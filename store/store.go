package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/metric"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Record is a sample with its final result.
type Record struct {
	Run    string
	Epoch  uint64
	Split  rewards.Split
	Step   int64
	Reward string // the profile
	// Header is that of the sample. Result must not change afterwards.
	Header   *wire.Header
	Result   *wire.Result
	Message  []byte // Result as JSON; nil: the store encodes it
	Finished time.Time
}

// SampleKey identifies a sample in a store.
type SampleKey struct {
	Run   string
	Epoch uint64
	ID    string
}

// StepEnd contains what is known of a step that has ended. A nil field is unknown.
type StepEnd struct {
	Run      string
	Epoch    uint64
	Split    rewards.Split
	Step     int64
	Expected int // number of declared samples; 0: none were declared
	// Exposed is the time in seconds from the arrival of the last sample to the last result, Rollout the time
	// until the last sample arrived, Makespan the time until the last result was available.
	Exposed, Rollout, Makespan *float64
}

// Described is the configuration of a reward to which a digest belongs.
type Described struct {
	Digest, Reward, Version string
	// YAML is the configuration as printed by rewardloop config print. Hashes are the SHA-256 of code and
	// models by name.
	YAML   string
	Hashes map[string]string
}

// Options are the parameters of Open.
type Options struct {
	Path    string
	Decode  media.Config          // limits of the pictures from which thumbnails are made
	Player  media.Player          // plays videos in files; nil: such videos have no thumbnails
	Log     *slog.Logger          // nil: discarded
	Metrics prometheus.Registerer // nil: metrics are counted but not exported
}

// What waits to be written or made into thumbnails, at most.
const (
	maxRows        = 1 << 16
	maxRowBytes    = 64 << 20
	maxPayloads    = 128 << 20
	maxPictures    = 32 << 20
	batchRows      = 1000
	batchWait      = 200 * time.Millisecond
	retryFirst     = time.Second
	retryMost      = 30 * time.Second
	busyTimeout    = 5 * time.Second // of another process that writes the file
	closeTimeout   = 10 * time.Second
	checkSizeEvery = 16 // batches
)

// pageSize is larger than usual: rows of samples are 1 to 4 KB, which then take less room and fewer writes.
const pageSize = "page_size(16384)"

// ErrInUse means that another process writes the file.
var ErrInUse = errors.New("another process is writing to the file")

// Store writes results to a file. The methods of a Store are safe for concurrent use, and except Close never
// wait for the disk.
type Store struct {
	cfg     Config
	path    string
	log     *slog.Logger
	db      *sql.DB // of the writer
	lock    *os.File
	count   *counter
	decoder *media.Decoder
	reader  *Reader

	metrics storeMetrics
	latest  atomic.Int64 // key of the newest row
	rows    atomic.Int64
	bytes   atomic.Int64
	put     atomic.Int64 // when the last result came, in nanoseconds since 1970

	mu       sync.Mutex
	queue    []work        // guarded by mu
	writing  int           // guarded by mu; how much of the queue was taken and is being written
	rowBytes int64         // guarded by mu; of queue without payloads
	payloads int64         // guarded by mu; bytes of those in queue
	pictures []picture     // guarded by mu; that wait for thumbnails
	picBytes int64         // guarded by mu
	closed   bool          // guarded by mu
	fault    error         // guarded by mu; why nothing is written now
	dropped  uint64        // guarded by mu; rows
	said     time.Time     // guarded by mu; when a row that cannot be written was told of last
	wake     chan struct{} // capacity 1
	paint    chan struct{} // capacity 1
	stop     chan struct{}
	done     sync.WaitGroup
}

type storeMetrics struct {
	written, lost               prometheus.Counter
	dropped, thumbnails, failed *prometheus.CounterVec
}

// work is what the writer has to do: exactly one of the fields is set.
type work struct {
	record  *Record
	payload *payload
	thumb   *thumbnail
	step    *StepEnd
	config  *Described
}

type payload struct {
	key  SampleKey
	data []byte
}

// Open opens the file, creates it if necessary, and starts to write. The error is ErrInUse, ErrNewer, or that
// of the system.
func Open(ctx context.Context, cfg Config, o Options) (_ *Store, err error) {
	cfg = cfg.WithDefaults()
	s := &Store{
		cfg: cfg, path: o.Path, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		wake: make(chan struct{}, 1), paint: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	if s.decoder, err = media.New(media.Config{
		MaxPixels: o.Decode.MaxPixels, MaxFrames: o.Decode.MaxFrames, MaxLength: o.Decode.MaxLength, BudgetBytes: 256 << 20,
	}); err != nil {
		return nil, err
	}
	if o.Player != nil {
		s.decoder.SetPlayer(o.Player)
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer func() {
		if err != nil {
			_ = s.release() // what was opened before the error
			err = fmt.Errorf("store: %s: %w", o.Path, err)
		}
	}()
	if s.lock, err = lockFile(o.Path + ".lock"); err != nil {
		return nil, err
	}
	// Only this user may read prompts; SQLite's other files get the rights of this one.
	if f, err := os.OpenFile(o.Path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	} else if err := f.Close(); err != nil {
		return nil, err
	}
	if s.db, err = sql.Open("sqlite", dsn(o.Path, "rwc", pageSize, "auto_vacuum(INCREMENTAL)", "journal_mode(WAL)", "synchronous(NORMAL)")); err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(1)
	if err := migrate(ctx, s.db); err != nil {
		return nil, err
	}
	lost, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	if s.reader, err = OpenReader(o.Path); err != nil {
		return nil, err
	}
	s.register(o.Metrics) // once: who has an error tries again
	s.metrics.lost.Add(float64(lost))
	s.done.Go(s.write)     // ends with Close
	s.done.Go(s.paintings) // likewise
	return s, nil
}

// dsn names a file with pragmas of each connection.
func dsn(path, mode string, pragmas ...string) string {
	q := url.Values{"mode": {mode}, "_txlock": {"immediate"}}
	for _, p := range append(pragmas, fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds())) {
		q.Add("_pragma", p)
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// look takes in what the file holds, and says how many results the process before has taken and not written.
func (s *Store) look(ctx context.Context) (lost int64, err error) {
	var written, created, rows, key int64
	if err := s.db.QueryRowContext(ctx, "SELECT (SELECT value FROM meta WHERE name = 'written'), (SELECT value FROM meta WHERE name = 'created'), "+
		"(SELECT count(*) FROM results), (SELECT ifnull(max(key), 0) FROM results)").Scan(&written, &created, &rows, &key); err != nil {
		return 0, err
	}
	s.rows.Store(rows)
	s.latest.Store(key)
	s.measure(ctx)
	if s.count, err = openCounter(s.path + ".taken"); err != nil {
		return 0, err
	}
	if s.count.file() == created {
		lost = max(0, s.count.value()-written)
	}
	if lost > 0 {
		s.log.WarnContext(ctx, "the store lacks results, because the previous process ended before it wrote them", "results", lost, "file", s.path)
	}
	s.count.set(written)
	s.count.setFile(created)
	return lost, nil
}

func (s *Store) register(reg prometheus.Registerer) {
	m := metric.For(reg, "store")
	s.metrics = storeMetrics{
		written: m.Counter("results_written_total", "Results that were written into the store's file."),
		lost:    m.Counter("results_lost_total", "Results that a previous process had queued for the store and not written before it ended; trainers did get these results."),
		dropped: m.Counters("dropped_total", "Results, payloads and pictures that the store left out because its queue was full or its disk failed, by what they are.",
			metric.By("what", "result", "payload", "picture")),
		thumbnails: m.Counters("thumbnails_total", "Pictures and videos whose thumbnail was made or could not be made, by outcome.", metric.By("outcome", "made", "failed")),
		failed:     m.Counters("writes_failed_total", "Batches that the store could not write, by reason.", metric.By("reason", "full", "other")),
	}
	m.Gauge("bytes", "Bytes of the store's file.", func() float64 { return float64(s.bytes.Load()) })
	m.Gauge("results", "Results in the store's file.", func() float64 { return float64(s.rows.Load()) })
	m.Gauge("queue_pictures", "Pictures and videos that wait for their thumbnails to be made.", func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(len(s.pictures))
	})
	m.Gauge("queue_results", "Results, thumbnails and payloads that wait to be written into the store's file.", func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(len(s.queue) + s.writing)
	})
}

// Reader returns a reader of the rows that have been written. Close of the Store closes the reader.
func (s *Store) Reader() *Reader { return s.reader }

// Latest returns the key of the newest row. Keys grow.
func (s *Store) Latest() int64 { return s.latest.Load() }

// Put queues a record to be written. If the queue is full, the record is counted and left out. The record must
// not change afterwards.
func (s *Store) Put(r Record) {
	size := recordSize(&r)
	s.put.Store(time.Now().UnixNano())
	s.mu.Lock()
	full := s.closed || len(s.queue) >= maxRows || s.rowBytes+size > maxRowBytes
	if full {
		s.dropped++
	} else {
		s.push(work{record: &r})
		s.rowBytes += size
		s.count.set(s.count.value() + 1)
	}
	s.mu.Unlock()
	if full {
		s.metrics.dropped.WithLabelValues("result").Inc()
	}
}

// push adds to the queue, and wakes the writer where it does not know of the queue or waits until a batch is full. The caller holds mu.
func (s *Store) push(w work) {
	s.queue = append(s.queue, w)
	if n := len(s.queue); n == 1 || n == batchRows {
		poke(s.wake)
	}
}

// EndStep queues the times of a step that has ended.
func (s *Store) EndStep(e StepEnd) { s.enqueue(work{step: &e}) }

// Describe queues the configuration to which a digest belongs.
func (s *Store) Describe(d Described) { s.enqueue(work{config: &d}) }

// enqueue takes what is small and rare.
func (s *Store) enqueue(w work) {
	s.mu.Lock()
	if !s.closed && len(s.queue) < maxRows+4096 {
		s.push(w)
	}
	s.mu.Unlock()
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// State is the state of a Store.
type State struct {
	On         bool   `json:"on"`
	File       string `json:"file"`
	Rows       int64  `json:"rows"`
	Bytes      int64  `json:"bytes"`
	LimitBytes int64  `json:"limit_bytes"`
	Dropped    uint64 `json:"dropped"`
	Error      string `json:"error"`
}

// State returns the current state.
func (s *Store) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := State{On: true, File: s.path, Rows: s.rows.Load(), Bytes: s.bytes.Load(), LimitBytes: s.cfg.Bytes, Dropped: s.dropped}
	if s.fault != nil {
		st.Error = s.fault.Error()
	}
	return st
}

// Close writes the queued items, within 10 s, and closes the file.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.done.Wait()
		return nil
	}
	s.closed = true // from here on the counter stays
	s.mu.Unlock()
	close(s.stop)
	s.done.Wait()
	return s.release()
}

func (s *Store) release() error {
	var errs []error
	if s.reader != nil {
		errs = append(errs, s.reader.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.count != nil {
		errs = append(errs, s.count.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// measure takes in how large the file is.
func (s *Store) measure(ctx context.Context) {
	var pages, size, free int64
	if s.db.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages) == nil && s.db.QueryRowContext(ctx, "PRAGMA page_size").Scan(&size) == nil &&
		s.db.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free) == nil {
		s.bytes.Store((pages - free) * size)
	}
}

// counter is a number in a file that survives the death of the process: how many results the store has taken. Beside it is which
// file they were for. Guarded by the store's mutex.
type counter struct{ mem []byte }

const counterSize = 16

func (c *counter) value() int64     { return int64(binary.LittleEndian.Uint64(c.mem[8:])) } //nolint:gosec // a bit pattern
func (c *counter) set(n int64)      { binary.LittleEndian.PutUint64(c.mem[8:], uint64(n)) } //nolint:gosec // a bit pattern
func (c *counter) file() int64      { return int64(binary.LittleEndian.Uint64(c.mem)) }     //nolint:gosec // a bit pattern
func (c *counter) setFile(id int64) { binary.LittleEndian.PutUint64(c.mem, uint64(id)) }    //nolint:gosec // a bit pattern
