package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// write is the only writer: it takes what waits, batch by batch, until Close.
func (s *Store) write() {
	w := &writer{store: s, names: map[string]int64{}}
	pause, batches := time.Duration(0), 0
	alone := 0 // so many items are written one by one, because one of them cannot be written
	var end time.Time
	for {
		s.mu.Lock()
		s.writing = 0
		s.mu.Unlock()
		closing := s.waitForWork(pause, alone > 0)
		if closing && end.IsZero() {
			end = time.Now().Add(closeTimeout)
		}
		most := batchRows
		if alone > 0 {
			most = 1
		}
		batch := s.take(most)
		if len(batch) == 0 {
			if closing {
				return
			}
			continue
		}
		deadline := end
		if !closing {
			deadline = time.Now().Add(closeTimeout)
		}
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		err := w.batch(ctx, batch)
		alone = max(0, alone-len(batch))
		switch {
		case err == nil:
			clear(batch) // the queue's array holds it
			if batches%checkSizeEvery == 0 {
				err = w.trim(ctx)
			}
		case !unwritable(err):
			s.giveBack(batch)
		case len(batch) > 1:
			alone, err = len(batch), nil
			s.giveBack(batch)
		default:
			s.leaveOut(batch[0], err)
			err = nil
		}
		cancel()
		batches++
		if err != nil {
			pause = min(max(2*pause, retryFirst), retryMost)
			s.failed(err)
			if closing {
				return // what is left was counted as taken: the next process says so
			}
			continue
		}
		if alone == 0 {
			s.recovered()
		}
		pause = 0
	}
}

// waitForWork waits until there is something to write and a batch may be full, after a pause that follows a failure; not, if there is.
func (s *Store) waitForWork(pause time.Duration, there bool) (closing bool) {
	if pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
			return false
		case <-s.stop:
			return true
		}
	}
	if there {
		select {
		case <-s.stop:
			return true
		default:
			return false
		}
	}
	select {
	case <-s.wake:
	case <-s.stop:
		return true
	}
	t := time.NewTimer(batchWait)
	defer t.Stop()
	for {
		s.mu.Lock()
		n := len(s.queue)
		s.mu.Unlock()
		if n >= batchRows {
			return false
		}
		select {
		case <-s.wake:
		case <-t.C:
			return false
		case <-s.stop:
			return true
		}
	}
}

// take takes a batch from the queue, and has the writer come back where there is more.
func (s *Store) take(most int) []work {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.queue), most)
	if n < len(s.queue) {
		poke(s.wake)
	}
	batch := s.queue[:n:n]
	s.queue, s.writing = s.queue[n:], n
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

// giveBack puts a batch back in front, whose transaction was rolled back.
func (s *Store) giveBack(batch []work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range batch {
		s.weigh(w, 1)
	}
	s.queue, s.writing = append(batch, s.queue...), 0
	poke(s.wake)
}

// unwritable reports whether SQLite refuses a row for what is in it, so that it would never be written.
func unwritable(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH:
		return true
	}
	return false
}

// leaveOut drops what can never be written.
func (s *Store) leaveOut(w work, err error) {
	what := "payload"
	switch {
	case w.record != nil:
		what = "result"
	case w.thumb != nil:
		what = "picture"
	}
	s.metrics.dropped.WithLabelValues(what).Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.record != nil {
		s.dropped++
		s.count.set(s.count.value() - 1)
	}
	if time.Since(s.said) < time.Minute { // the counter has the others
		return
	}
	s.said = time.Now()
	s.log.Warn("the store cannot write a record and leaves the record out", "file", s.path, "what", what, "error", err)
}

// failed says once why nothing is written.
func (s *Store) failed(err error) {
	reason := "other"
	if e := (*sqlite.Error)(nil); errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_FULL {
		reason = "full"
	}
	s.metrics.failed.WithLabelValues(reason).Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.fault == nil
	s.fault = err
	if first {
		s.log.Warn("the store cannot write results; rewards are not affected, and the store retries", "file", s.path, "error", err, "waiting", len(s.queue))
	}
}

func (s *Store) recovered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		s.log.Info("the store has resumed writing results", "file", s.path, "left_out", s.dropped)
		s.fault = nil
	}
}

// writer is what the writing goroutine has.
type writer struct {
	store *Store
	names map[string]int64 // their ids

	rows  []driver.NamedValue // of a transaction: values of rows that are not written yet, resultColumns each
	block block               // of such rows
	json  []byte              // of a result
}

// batch writes in one transaction.
func (w *writer) batch(ctx context.Context, batch []work) (err error) {
	conn, err := w.store.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // back to the pool
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			clear(w.names) // some of them may have gone with the transaction
			err = errors.Join(err, ignoreDone(tx.Rollback()))
		}
	}()
	b := &transaction{writer: w, conn: conn, tx: tx, inserts: map[int]driver.Stmt{}, columns: map[columnKey]*column{}}
	defer b.close()
	w.rows = w.rows[:0]
	w.block.reset()
	rows := int64(0)
	for _, item := range batch {
		if err = ctx.Err(); err != nil { // statements are not told: that takes a goroutine for each of them
			return err
		}
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
	if err = b.writeRows(); err != nil {
		return err
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

	conn    *sql.Conn
	tx      *sql.Tx
	inserts map[int]driver.Stmt // by their number of rows
	last    int64               // key

	columns map[columnKey]*column
}

func (b *transaction) close() {
	for _, s := range b.inserts {
		_ = s.Close() // it goes with its transaction
	}
}

// exec is one statement, whose wait for a lock busyTimeout bounds.
func (b *transaction) exec(text string, args ...any) error {
	_, err := b.tx.ExecContext(context.Background(), text, args...)
	return err
}

// name is the id of a name.
func (b *transaction) name(name string) (int64, error) {
	if id, ok := b.names[name]; ok {
		return id, nil
	}
	if err := b.exec("INSERT INTO names (name) VALUES (?) ON CONFLICT DO NOTHING", name); err != nil {
		return 0, err
	}
	var id int64
	if err := b.tx.QueryRowContext(context.Background(), "SELECT id FROM names WHERE name = ?", name).Scan(&id); err != nil {
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
	result, err := b.encode(r)
	if err != nil {
		return err
	}
	b.block.add(r.Header.JSON())
	b.block.add(result)
	s := &r.Header.Sample
	var score any
	if r.Result.RewardScore != nil {
		score = *r.Result.RewardScore
	}
	for _, v := range [resultColumns]any{
		run, int64(r.Epoch), splitCode(r.Split), r.Step, r.Result.ID, s.UID, reward, //nolint:gosec // microseconds
		string(r.Result.Outcome), score, r.Result.TimingMS["total"], r.Finished.UnixMicro(),
	} {
		b.rows = append(b.rows, driver.NamedValue{Ordinal: len(b.rows) + 1, Value: v})
	}
	b.count(run, r)
	if len(b.rows) == blockRows*resultColumns || len(b.block.raw) >= blockBytes {
		return b.writeRows()
	}
	return nil
}

// encode is the JSON of a record's result, which is valid until the next call.
func (b *transaction) encode(r *Record) (out []byte, err error) {
	if r.Message != nil {
		return r.Message, nil
	}
	if out, err = wire.AppendResult(b.json[:0], r.Result); err != nil { // a scorer put something there that JSON has not: the row says so without it
		bare := *r.Result
		bare.Details, bare.ExtraInfo = map[string]any{"store": "details and reward_extra_info are not JSON: " + err.Error()}, nil
		if out, err = wire.AppendResult(b.json[:0], &bare); err != nil {
			return nil, err
		}
	}
	if b.json = out; cap(out) > blockBytes {
		b.json = nil
	}
	return out, nil
}

// resultColumns are those that a statement binds.
const resultColumns = 11

// writeRows writes the rows that wait, and their block.
func (b *transaction) writeRows() error {
	n := len(b.rows) / resultColumns
	if n == 0 {
		return nil
	}
	if err := b.conn.Raw(func(c any) error { return b.insert(c, n) }); err != nil {
		return err
	}
	if err := b.exec("INSERT INTO blocks (first, last, data) VALUES (?, ?, ?)", b.last-int64(n)+1, b.last, b.block.data()); err != nil {
		return err
	}
	b.rows = b.rows[:0]
	b.block.reset()
	return nil
}

// insert writes n rows, whose keys follow one another, with the driver's own statement: database/sql would look at each of the values once more.
func (b *transaction) insert(conn any, n int) (err error) {
	insert := b.inserts[n]
	if insert == nil {
		row := ", (?" + strings.Repeat(", ?", resultColumns-1) + ", x'', x'')"
		if insert, err = conn.(driver.ConnPrepareContext).PrepareContext(context.Background(), //nolint:forcetypeassert // this driver's
			"INSERT INTO results (run, epoch, split, step, id, uid, reward, outcome, score, total_ms, finished, head, result) VALUES "+strings.Repeat(row, n)[2:]); err != nil {
			return err
		}
		b.inserts[n] = insert
	}
	res, err := insert.(driver.StmtExecContext).ExecContext(context.Background(), b.rows) //nolint:forcetypeassert // this driver's
	if err != nil {
		return err
	}
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
		err = b.exec("INSERT OR REPLACE INTO payloads (run, epoch, id, data) VALUES (?, ?, ?, ?)", run, int64(p.key.Epoch), p.key.ID, p.data) //nolint:gosec // microseconds
	}
	return err
}

func (b *transaction) thumbnail(t *thumbnail) error {
	run, err := b.name(t.key.Run)
	if err == nil {
		err = b.exec("INSERT OR REPLACE INTO thumbnails (run, epoch, id, n, jpeg, width, height, frames) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			run, int64(t.key.Epoch), t.key.ID, t.n, t.jpeg, t.width, t.height, t.frames) //nolint:gosec // microseconds
	}
	return err
}

func (b *transaction) step(e *StepEnd) error {
	run, err := b.name(e.Run)
	if err == nil {
		err = b.exec("INSERT OR REPLACE INTO steps (run, epoch, split, step, expected, exposed, rollout, makespan) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
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
		err = b.exec("INSERT OR IGNORE INTO configs (digest, reward, version, yaml, hashes, first) VALUES (?, ?, ?, ?, ?, ?)",
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
		if math.IsNaN(*v) {
			c.failed++
			return
		}
		c.n++
		c.sum = finite(c.sum + *v)
		c.squares = finite(c.squares + *v**v)
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
ON CONFLICT DO UPDATE SET n = n + excluded.n, failed = failed + excluded.failed, sum = max(-1.7e308, min(1.7e308, sum + excluded.sum)),
squares = min(1.7e308, squares + excluded.squares),
least = min(ifnull(least, excluded.least), ifnull(excluded.least, least)), largest = max(ifnull(largest, excluded.largest), ifnull(excluded.largest, largest)), last = excluded.last`

// finite bounds a sum, so that no value of a reward makes it infinite, and the next one no number.
func finite(v float64) float64 { return max(-1.7e308, min(1.7e308, v)) }

// writeColumns adds what the batch came to.
func (b *transaction) writeColumns() error {
	now := time.Now().UnixMicro()
	for k, c := range b.columns {
		var least, largest any
		if c.n > 0 {
			least, largest = c.least, c.largest
		}
		if err := b.exec(addColumn, k.run, k.epoch, k.split, k.step, k.name, c.n, c.failed, c.sum, c.squares, least, largest, now); err != nil {
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
			return w.deleteMedia(ctx)
		} else if err != nil {
			return err
		}
		old := time.Now().Add(-s.cfg.Age).UnixMicro()
		if s.bytes.Load() <= s.cfg.Bytes && oldest.Int64 >= old {
			return nil
		}
		n, err := w.deleteOldest(ctx, old, w.tooMany())
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

// deleteMedia deletes what is left of media that belong to no result, where they alone are too many bytes: results may have been left
// out whose media were not.
func (w *writer) deleteMedia(ctx context.Context) error {
	if w.store.bytes.Load() <= w.store.cfg.Bytes {
		return nil
	}
	for _, text := range []string{"DELETE FROM payloads", "DELETE FROM thumbnails", "PRAGMA incremental_vacuum"} {
		if _, err := w.store.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	w.store.measure(ctx)
	return nil
}

// tooMany is how many rows are to be deleted for the file's size, so that there is some room again; 0: none. Few rows may be all there are.
func (w *writer) tooMany() int64 {
	bytes, limit, rows := w.store.bytes.Load(), w.store.cfg.Bytes, w.store.rows.Load()
	if bytes <= limit {
		return 0
	}
	return max(1, min(trimRows, int64(float64(rows)*(1-0.95*float64(limit)/float64(bytes)))))
}

// deleteOldest deletes up to trimRows of the oldest rows with their media: those before a moment, and so many whenever they are of.
func (w *writer) deleteOldest(ctx context.Context, before, many int64) (n int64, err error) {
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
	chosen := "SELECT key, finished, row_number() OVER (ORDER BY key) AS n FROM results ORDER BY key LIMIT ?"
	if err := tx.QueryRowContext(ctx, "SELECT max(key) FROM ("+chosen+") WHERE finished < ? OR n <= ?", trimRows, before, many).Scan(&last); err != nil || !last.Valid {
		return 0, errors.Join(err, tx.Rollback())
	}
	of := " WHERE (run, epoch, id) IN (SELECT run, epoch, id FROM results WHERE key <= ?)"
	for _, table := range []string{"thumbnails", "payloads"} {
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+table+of, last.Int64); err != nil {
			return 0, err
		}
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM blocks WHERE last <= ?", last.Int64); err != nil {
		return 0, err
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
