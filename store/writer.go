package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"time"

	"modernc.org/sqlite"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// write is the only writer: it takes what waits, batch by batch, until Close.
func (s *Store) write() {
	w := &writer{store: s, names: map[string]int64{}}
	pause, batches := time.Duration(0), 0
	for {
		more, closing := s.waitForWork(pause)
		if !more {
			return
		}
		batch := s.take()
		if len(batch) == 0 {
			if closing {
				return
			}
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		err := w.batch(ctx, batch)
		if err == nil && batches%checkSizeEvery == 0 {
			err = w.trim(ctx)
		}
		cancel()
		batches++
		if err != nil {
			w.forget()
			pause = min(max(2*pause, retryFirst), retryMost)
			s.failed(err, batch)
			if closing {
				return // what is left was counted as taken: the next process says so
			}
			continue
		}
		s.recovered()
		pause = 0
	}
}

// waitForWork waits until there is something to write and a batch may be full, after a pause that follows a failure.
func (s *Store) waitForWork(pause time.Duration) (more, closing bool) {
	if pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
			return true, false
		case <-s.stop:
			return true, true
		}
	}
	select {
	case <-s.wake:
	case <-s.stop:
		return true, true
	}
	t := time.NewTimer(batchWait)
	defer t.Stop()
	for {
		s.mu.Lock()
		n := len(s.queue)
		s.mu.Unlock()
		if n >= batchRows {
			return true, false
		}
		select {
		case <-s.wake:
		case <-t.C:
			poke(s.wake) // there may be more than the batch
			return true, false
		case <-s.stop:
			return true, true
		}
	}
}

// take takes a batch from the queue.
func (s *Store) take() []work {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.queue), batchRows)
	batch := s.queue[:n:n]
	s.queue = s.queue[n:]
	if len(s.queue) == 0 {
		s.queue = nil
	}
	for _, w := range batch {
		s.weigh(w, -1)
	}
	return batch
}

// weigh adds the weight of work to what waits, or takes it away. The caller holds mu.
func (s *Store) weigh(w work, sign int64) {
	switch {
	case w.record != nil:
		s.rowBytes += sign * recordSize(w.record)
	case w.payload != nil:
		s.payloads += sign * int64(len(w.payload.data))
	}
}

// recordSize is about what a record holds in memory.
func recordSize(r *Record) int64 { return int64(2*len(r.Header.JSON())) + 1024 }

// failed puts a batch back in front, as far as there is room, and says why once.
func (s *Store) failed(err error, batch []work) {
	reason := "other"
	const sqliteFull = 13 // SQLITE_FULL
	if e := (*sqlite.Error)(nil); errors.As(err, &e) && e.Code()&0xff == sqliteFull {
		reason = "full"
	}
	s.metrics.failed.WithLabelValues(reason).Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.fault == nil
	s.fault = err
	for _, w := range batch {
		s.weigh(w, 1)
	}
	s.queue = append(batch, s.queue...)
	if first {
		s.log.Warn("the store cannot write results; rewards are not affected, and it tries again", "file", s.path, "error", err, "waiting", len(s.queue))
	}
}

func (s *Store) recovered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		s.log.Info("the store writes results again", "file", s.path, "left_out", s.dropped)
		s.fault = nil
	}
}

// writer is what the writing goroutine has.
type writer struct {
	store *Store
	names map[string]int64 // their ids
}

// forget drops what a transaction that was rolled back may have put in.
func (w *writer) forget() { clear(w.names) }

// batch writes in one transaction.
func (w *writer) batch(ctx context.Context, batch []work) (err error) {
	tx, err := w.store.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreDone(tx.Rollback()))
		}
	}()
	b := &transaction{writer: w, ctx: ctx, tx: tx, columns: map[columnKey]*column{}}
	defer b.close()
	rows := int64(0)
	for _, item := range batch {
		switch {
		case item.record != nil:
			err = b.record(item.record)
			rows++
		case item.payload != nil:
			err = b.payload(item.payload)
		case item.thumb != nil:
			err = b.thumbnail(item.thumb)
		case item.step != nil:
			err = b.step(item.step)
		case item.config != nil:
			err = b.config(item.config)
		}
		if err != nil {
			return err
		}
	}
	if err = b.writeColumns(); err != nil {
		return err
	}
	if _, err = tx.ExecContext(ctx, "UPDATE meta SET value = value + ? WHERE name = 'written'", rows); err != nil {
		return err
	}
	if err = tx.Commit(); err != nil {
		return err
	}
	w.store.metrics.written.Add(float64(rows))
	w.store.rows.Add(rows)
	if b.last > 0 {
		w.store.latest.Store(b.last)
	}
	return nil
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// transaction writes one batch.
type transaction struct {
	*writer

	ctx    context.Context //nolint:containedctx // of the batch
	tx     *sql.Tx
	insert *sql.Stmt
	last   int64 // key

	columns map[columnKey]*column
}

func (b *transaction) close() {
	if b.insert != nil {
		_ = b.insert.Close() // it goes with its transaction
	}
}

// name is the id of a name.
func (b *transaction) name(name string) (int64, error) {
	if id, ok := b.names[name]; ok {
		return id, nil
	}
	if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO names (name) VALUES (?) ON CONFLICT DO NOTHING", name); err != nil {
		return 0, err
	}
	var id int64
	if err := b.tx.QueryRowContext(b.ctx, "SELECT id FROM names WHERE name = ?", name).Scan(&id); err != nil {
		return 0, err
	}
	if len(b.names) > 10_000 {
		clear(b.names)
	}
	b.names[name] = id
	return id, nil
}

func (b *transaction) record(r *Record) error {
	run, err := b.name(r.Run)
	if err != nil {
		return err
	}
	reward, err := b.name(r.Reward)
	if err != nil {
		return err
	}
	if b.insert == nil {
		if b.insert, err = b.tx.PrepareContext(b.ctx, "INSERT INTO results (run, epoch, split, step, id, uid, reward, outcome, score, total_ms, finished, head, result) "+
			"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"); err != nil {
			return err
		}
	}
	result, err := wire.EncodeResult(r.Result)
	if err != nil { // a scorer put something there that JSON has not: the row says so without it
		bare := *r.Result
		bare.Details, bare.ExtraInfo = map[string]any{"store": "details and reward_extra_info are not JSON: " + err.Error()}, nil
		if result, err = wire.EncodeResult(&bare); err != nil {
			return err
		}
	}
	s := &r.Header.Sample
	var score any
	if r.Result.RewardScore != nil {
		score = *r.Result.RewardScore
	}
	res, err := b.insert.ExecContext(b.ctx, run, int64(r.Epoch), splitCode(r.Split), r.Step, r.Result.ID, s.UID, reward, //nolint:gosec // microseconds
		string(r.Result.Outcome), score, r.Result.TimingMS["total"], r.Finished.UnixMicro(), r.Header.JSON(), result)
	if err != nil {
		return err
	}
	b.count(run, r)
	b.last, err = res.LastInsertId()
	return err
}

// splitCode is how a split is written.
func splitCode(s rewards.Split) int64 {
	if s == rewards.Val {
		return 1
	}
	return 0
}

func (b *transaction) payload(p *payload) error {
	run, err := b.name(p.key.Run)
	if err == nil {
		_, err = b.tx.ExecContext(b.ctx, "INSERT INTO payloads (run, epoch, id, data) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", run, int64(p.key.Epoch), p.key.ID, p.data) //nolint:gosec // microseconds
	}
	return err
}

func (b *transaction) thumbnail(t *thumbnail) error {
	run, err := b.name(t.key.Run)
	if err == nil {
		_, err = b.tx.ExecContext(b.ctx, "INSERT INTO thumbnails (run, epoch, id, n, jpeg, width, height, frames) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
			run, int64(t.key.Epoch), t.key.ID, t.n, t.jpeg, t.width, t.height, t.frames) //nolint:gosec // microseconds
	}
	return err
}

func (b *transaction) step(e *StepEnd) error {
	run, err := b.name(e.Run)
	if err == nil {
		_, err = b.tx.ExecContext(b.ctx, "INSERT OR REPLACE INTO steps (run, epoch, split, step, expected, exposed, rollout, makespan) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			run, int64(e.Epoch), splitCode(e.Split), e.Step, e.Expected, orNull(e.Exposed), orNull(e.Rollout), orNull(e.Makespan)) //nolint:gosec // microseconds
	}
	return err
}

func orNull(v *float64) any {
	if v == nil {
		return nil
	}
	return *v
}

func (b *transaction) config(d *Described) error {
	hashes, err := json.Marshal(d.Hashes)
	if err == nil {
		_, err = b.tx.ExecContext(b.ctx, "INSERT OR IGNORE INTO configs (digest, reward, version, yaml, hashes, first) VALUES (?, ?, ?, ?, ?, ?)",
			d.Digest, d.Reward, d.Version, d.YAML, string(hashes), time.Now().UnixMicro())
	}
	return err
}

// columnKey names a column of a step.
type columnKey struct {
	run, epoch, split, step int64
	name                    string
}

// column is what the values of a batch add to one.
type column struct {
	n, failed      int64
	sum, squares   float64
	least, largest float64
}

// count adds a record to the columns of its step.
func (b *transaction) count(run int64, r *Record) {
	add := func(name string, v *float64) {
		key := columnKey{run, int64(r.Epoch), splitCode(r.Split), r.Step, name} //nolint:gosec // microseconds
		c := b.columns[key]
		if c == nil {
			c = &column{least: math.Inf(1), largest: math.Inf(-1)}
			b.columns[key] = c
		}
		if v == nil {
			c.failed++
			return
		}
		c.n++
		c.sum += *v
		c.squares += *v * *v
		c.least, c.largest = min(c.least, *v), max(c.largest, *v)
	}
	if r.Result.Outcome == rewards.OutcomeCancelled { // its client wanted none
		return
	}
	add("", r.Result.RewardScore)
	for name, v := range Components(r.Result) {
		add(name, v)
	}
}

const addColumn = `INSERT INTO columns (run, epoch, split, step, name, n, failed, sum, squares, least, largest, last) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET n = n + excluded.n, failed = failed + excluded.failed, sum = sum + excluded.sum, squares = squares + excluded.squares,
least = min(ifnull(least, excluded.least), ifnull(excluded.least, least)), largest = max(ifnull(largest, excluded.largest), ifnull(excluded.largest, largest)), last = excluded.last`

// writeColumns adds what the batch came to.
func (b *transaction) writeColumns() error {
	now := time.Now().UnixMicro()
	for k, c := range b.columns {
		var least, largest any
		if c.n > 0 {
			least, largest = c.least, c.largest
		}
		if _, err := b.tx.ExecContext(b.ctx, addColumn, k.run, k.epoch, k.split, k.step, k.name, c.n, c.failed, c.sum, c.squares, least, largest, now); err != nil {
			return err
		}
	}
	return nil
}

// trimRows is how many of the oldest rows are deleted at a time.
const trimRows = 2000

// trim deletes the oldest results while there are too many bytes of them, or they are too old.
func (w *writer) trim(ctx context.Context) error {
	s := w.store
	s.measure(ctx)
	for {
		var oldest sql.NullInt64
		if err := s.db.QueryRowContext(ctx, "SELECT finished FROM results ORDER BY key LIMIT 1").Scan(&oldest); errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		old := time.Now().Add(-s.cfg.Age).UnixMicro()
		if s.bytes.Load() <= s.cfg.Bytes && oldest.Int64 >= old {
			return nil
		}
		n, err := w.deleteOldest(ctx, old, s.bytes.Load() > s.cfg.Bytes)
		if err != nil {
			return err
		}
		s.rows.Add(-n)
		s.measure(ctx)
		if n == 0 {
			return nil
		}
	}
}

// deleteOldest deletes up to trimRows of the oldest rows with their media: those before a moment, or any.
func (w *writer) deleteOldest(ctx context.Context, before int64, whatever bool) (n int64, err error) {
	tx, err := w.store.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreDone(tx.Rollback()))
		}
	}()
	var last sql.NullInt64
	chosen := "SELECT key, finished FROM results ORDER BY key LIMIT ?"
	if err := tx.QueryRowContext(ctx, "SELECT max(key) FROM ("+chosen+") WHERE finished < ? OR ?", trimRows, before, whatever).Scan(&last); err != nil || !last.Valid {
		return 0, errors.Join(err, tx.Rollback())
	}
	of := " WHERE (run, epoch, id) IN (SELECT run, epoch, id FROM results WHERE key <= ?)"
	for _, table := range []string{"thumbnails", "payloads"} {
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+table+of, last.Int64); err != nil {
			return 0, err
		}
	}
	res, err := tx.ExecContext(ctx, "DELETE FROM results WHERE key <= ?", last.Int64)
	if err != nil {
		return 0, err
	}
	if n, err = res.RowsAffected(); err != nil {
		return 0, err
	}
	if _, err = tx.ExecContext(ctx, "DELETE FROM columns WHERE last < ?", before); err != nil { // curves are small: they stay as long as results may
		return 0, err
	}
	if err = tx.Commit(); err != nil {
		return 0, err
	}
	_, err = w.store.db.ExecContext(ctx, "PRAGMA incremental_vacuum(4096)")
	return n, err
}
