package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// ErrNotFound means that a row or a media is not in the store.
var ErrNotFound = errors.New("not in the store")

// Reader reads a store's file. A Reader is safe for concurrent use.
type Reader struct {
	db *sql.DB

	mu    sync.Mutex
	steps map[stepKey]groupCount // guarded by mu; of steps that have not changed
	hints map[hintKey]hintList   // guarded by mu
}

// readers is how many queries run at a time.
const readers = 4

// OpenReader opens an existing file, which another process may be writing.
func OpenReader(path string) (*Reader, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	var first error
	for _, mode := range []string{"rw", "ro"} { // beside a writer its index is shared, which needs the right to write
		db, err := sql.Open("sqlite", dsn(path, mode, "query_only(1)"))
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		db.SetMaxOpenConns(readers)
		var version int
		if err = db.QueryRowContext(context.Background(), "PRAGMA user_version").Scan(&version); err == nil {
			switch {
			case version == 0:
				err = errors.New("the file is not a store of rewardloop")
			case version > len(migrations):
				err = fmt.Errorf("%w: version %d", ErrNewer, version)
			default:
				return &Reader{db: db, steps: map[stepKey]groupCount{}, hints: map[hintKey]hintList{}}, nil
			}
		}
		first = cmp.Or(first, err)
		_ = db.Close() // nothing was written
	}
	return nil, fmt.Errorf("store: %s: %w", path, first)
}

// Close closes the file.
func (r *Reader) Close() error { return r.db.Close() }

// Sort is an order of rows.
type Sort string

// The orders. Disagreeing sorts by the difference between the ranks of a row's components among the selected
// rows, the largest first.
const (
	Newest      Sort = "newest"
	Oldest      Sort = "oldest"
	Best        Sort = "best"
	Worst       Sort = "worst"
	Slowest     Sort = "slowest"
	Disagreeing Sort = "disagreeing"
)

// Sorts returns all orders.
func Sorts() []Sort { return []Sort{Newest, Oldest, Best, Worst, Slowest, Disagreeing} }

// Query selects rows. A field that is nil or "" does not restrict the selection. Without Epoch a step has the
// rows of its newest epoch.
type Query struct {
	Run, Reward  *string
	Epoch        *uint64
	Split        rewards.Split
	Step         *int64
	UID, Outcome string
	Failed       bool   // only rows without a score, except cancelled ones
	Text         string // a part of prompt, response or id, in upper or lower case
	Sort         Sort
	// Limit is the maximum number of rows. 0 means 50.
	Limit, Offset int
	// After selects rows with a greater key, Before rows with a smaller key. 0: no restriction.
	After, Before int64
	// AllEpochs also selects the rows of older epochs.
	AllEpochs bool
}

const (
	usualLimit = 50
	// manyRows is what is counted at most of a selection, textRows what is looked through for a text.
	manyRows = 10_000
	textRows = 50_000
	lookRows = 2000
)

const rowColumns = "r.key, (SELECT name FROM names WHERE id = r.run), r.epoch, r.split, r.step, r.id, r.uid, (SELECT name FROM names WHERE id = r.reward), r.outcome, r.score, r.finished, r.head, r.result"

// newestEpoch leaves out what a later epoch of the run has done again.
const newestEpoch = "r.epoch = (SELECT max(o.epoch) FROM results o WHERE o.run = r.run AND o.split = r.split AND o.step = r.step)"

// where is the condition of a query.
func (q *Query) where() (text string, args []any) {
	var all []string
	add := func(cond string, values ...any) {
		all = append(all, cond)
		args = append(args, values...)
	}
	if q.Run != nil {
		add("r.run = (SELECT id FROM names WHERE name = ?)", *q.Run)
	}
	if q.Reward != nil {
		add("r.reward = (SELECT id FROM names WHERE name = ?)", *q.Reward)
	}
	if q.Split != "" {
		add("r.split = ?", splitCode(q.Split))
	}
	if q.Step != nil {
		add("r.step = ?", *q.Step)
	}
	if q.UID != "" {
		add("r.uid = ?", q.UID)
	}
	if q.Outcome != "" {
		add("r.outcome = ?", q.Outcome)
	}
	if q.Failed {
		add("r.score IS NULL AND r.outcome <> ?", string(rewards.OutcomeCancelled))
	}
	if q.After > 0 {
		add("r.key > ?", q.After)
	}
	if q.Before > 0 {
		add("r.key < ?", q.Before)
	}
	switch {
	case q.Epoch != nil:
		add("r.epoch = ?", int64(*q.Epoch)) //nolint:gosec // microseconds
	case !q.AllEpochs:
		add(newestEpoch)
	}
	if len(all) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(all, " AND "), args
}

// has reports whether a row has the query's text.
func (q *Query) has(row *Row) bool {
	if q.Text == "" {
		return true
	}
	text := strings.ToLower(q.Text)
	s := &row.Header.Sample
	return strings.Contains(strings.ToLower(s.Prompt), text) || strings.Contains(strings.ToLower(s.Response), text) || strings.Contains(strings.ToLower(row.ID), text)
}

func (q *Query) order() string {
	switch q.Sort {
	case Oldest:
		return " ORDER BY r.key"
	case Best:
		return " ORDER BY r.score IS NULL, r.score DESC, r.key DESC"
	case Worst:
		return " ORDER BY r.score IS NULL, r.score, r.key DESC"
	case Slowest:
		return " ORDER BY r.total_ms DESC, r.key DESC"
	case Newest, Disagreeing:
	}
	return " ORDER BY r.key DESC"
}

// Results returns the rows of a query and the total number of selected rows. The total is at most 10,000, or
// with Text the matches among the first 50,000 rows.
func (r *Reader) Results(ctx context.Context, q Query) (rows []*Row, total int, err error) {
	q.Limit = cmp.Or(q.Limit, usualLimit)
	where, args := q.where()
	limit, offset := q.Limit, q.Offset
	switch {
	case q.Text != "":
		limit, offset = textRows, 0
	case q.Sort == Disagreeing:
		limit, offset = lookRows, 0
	}
	if q.Text == "" {
		if err := r.db.QueryRowContext(ctx, "SELECT count(*) FROM (SELECT 1 FROM results r"+where+" LIMIT ?)", append(slices.Clone(args), manyRows)...).Scan(&total); err != nil {
			return nil, 0, fmt.Errorf("store: %w", err)
		}
	}
	for row, err := range r.rows(ctx, where+q.order()+" LIMIT ? OFFSET ?", append(args, limit, offset)...) {
		if err != nil {
			return nil, 0, err
		}
		if q.Text == "" {
			rows = append(rows, row)
			continue
		}
		if !q.has(row) {
			continue
		}
		if total++; q.Sort == Disagreeing || total > q.Offset && len(rows) < q.Limit {
			rows = append(rows, row)
		}
	}
	if q.Sort == Disagreeing {
		rows = mostDisagreeing(rows)
		rows = rows[min(q.Offset, len(rows)):min(q.Offset+q.Limit, len(rows))]
	}
	return rows, total, r.addMedia(ctx, rows)
}

// rows runs over the rows of a selection.
func (r *Reader) rows(ctx context.Context, selection string, args ...any) func(yield func(*Row, error) bool) {
	return func(yield func(*Row, error) bool) {
		conn, err := r.db.Conn(ctx)
		if err != nil {
			yield(nil, fmt.Errorf("store: %w", err))
			return
		}
		defer conn.Close() // back to the pool
		list, err := conn.QueryContext(ctx, "SELECT "+rowColumns+" FROM results r"+selection, args...)
		if err != nil {
			yield(nil, fmt.Errorf("store: %w", err))
			return
		}
		defer list.Close()
		blocks := &blockReader{conn: conn}
		for list.Next() {
			row, err := scan(ctx, list, blocks, false)
			if !yield(row, err) || err != nil {
				return
			}
		}
		if err := list.Err(); err != nil {
			yield(nil, fmt.Errorf("store: %w", err))
		}
	}
}

// one is the row of a key in full.
func (r *Reader) one(ctx context.Context, key int64) (*Row, error) {
	conn, err := r.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer conn.Close() // back to the pool
	row, err := scan(ctx, conn.QueryRowContext(ctx, "SELECT "+rowColumns+" FROM results r WHERE r.key = ?", key), &blockReader{conn: conn}, true)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("result %d: %w", key, ErrNotFound)
	}
	return row, err
}

// Each iterates over all rows of a query, the oldest first, without the addresses of their media. Limit 0 means
// no limit.
func (r *Reader) Each(ctx context.Context, q Query) func(yield func(*Row, error) bool) {
	where, args := q.where()
	q.Sort = Oldest
	limit := cmp.Or(q.Limit, math.MaxInt32)
	all := r.rows(ctx, where+q.order()+" LIMIT ? OFFSET ?", append(args, limit, q.Offset)...)
	return func(yield func(*Row, error) bool) {
		for row, err := range all {
			if (err != nil || q.has(row)) && !yield(row, err) {
				return
			}
		}
	}
}

type scanner interface{ Scan(into ...any) error }

func scan(ctx context.Context, from scanner, blocks *blockReader, whole bool) (*Row, error) {
	row := &Row{}
	var epoch, split, finished int64
	var outcome string
	var head, result []byte
	var reward sql.NullString
	if err := from.Scan(&row.Key, &row.Run, &epoch, &split, &row.Step, &row.ID, &row.UID, &reward, &outcome, &row.Score, &finished, &head, &result); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	row.epoch, row.Epoch, row.Split = uint64(epoch), strconv.FormatInt(epoch, 10), splitOf(split) //nolint:gosec // microseconds
	row.Reward, row.Outcome, row.Finished = reward.String, rewards.Outcome(outcome), time.UnixMicro(finished).UTC()
	var broken error
	if len(head) == 0 {
		if head, result, broken = blocks.of(ctx, row.Key); ctx.Err() != nil {
			return nil, fmt.Errorf("store: %w", broken)
		}
	}
	row.fill(head, result, broken, whole)
	return row, nil
}

func splitOf(code int64) rewards.Split {
	if code == 1 {
		return rewards.Val
	}
	return rewards.Train
}

// addMedia says where the rows' media are.
func (r *Reader) addMedia(ctx context.Context, rows []*Row) error {
	for _, row := range rows {
		if len(row.Media) == 0 {
			continue
		}
		of, args := " WHERE run = (SELECT id FROM names WHERE name = ?) AND epoch = ? AND id = ?", []any{row.Run, int64(row.epoch), row.ID} //nolint:gosec // microseconds
		list, err := r.db.QueryContext(ctx, "SELECT n, width, height, frames FROM thumbnails"+of, args...)
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		thumbs := map[int]thumbnail{}
		for list.Next() {
			var t thumbnail
			if err := list.Scan(&t.n, &t.width, &t.height, &t.frames); err != nil {
				return errors.Join(fmt.Errorf("store: %w", err), list.Close())
			}
			thumbs[t.n] = t
		}
		if err := errors.Join(list.Err(), list.Close()); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		var full bool
		if err := r.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM payloads"+of+")", args...).Scan(&full); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		row.addresses(thumbs, full)
	}
	return nil
}

// Result returns one row with all its fields.
func (r *Reader) Result(ctx context.Context, key int64) (*Row, error) {
	row, err := r.one(ctx, key)
	if err != nil {
		return nil, err
	}
	var d Described
	var hashes string
	err = r.db.QueryRowContext(ctx, "SELECT digest, reward, version, yaml, hashes FROM configs WHERE digest = ?", row.Config).Scan(&d.Digest, &d.Reward, &d.Version, &d.YAML, &hashes)
	if err == nil && json.Unmarshal([]byte(hashes), &d.Hashes) == nil {
		row.Code = &d
	} else if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("store: %w", err)
	}
	return row, r.addMedia(ctx, []*Row{row})
}

// Thumbnail returns the JPEG thumbnail of media n of a row.
func (r *Reader) Thumbnail(ctx context.Context, key int64, n int) (jpeg []byte, err error) {
	err = r.db.QueryRowContext(ctx, "SELECT t.jpeg FROM results r JOIN thumbnails t ON t.run = r.run AND t.epoch = r.epoch AND t.id = r.id WHERE r.key = ? AND t.n = ?", key, n).Scan(&jpeg)
	return jpeg, notFound(err, "thumbnail %d of result %d", n, key)
}

// Kept returns a row without its configuration and the addresses of its media, and its sample with all its
// bytes.
func (r *Reader) Kept(ctx context.Context, key int64) (*Row, *rewards.Sample, error) {
	row, err := r.one(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	if row.broken != nil {
		return nil, nil, fmt.Errorf("result %d is damaged: %w: %w", key, row.broken, ErrNotFound)
	}
	var data []byte
	err = r.db.QueryRowContext(ctx, "SELECT p.data FROM results r JOIN payloads p ON p.run = r.run AND p.epoch = r.epoch AND p.id = r.id WHERE r.key = ?", key).Scan(&data)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, nil, fmt.Errorf("store: %w", err)
	}
	f, err := wire.Restore(row.Header.JSON(), data)
	if err != nil {
		return nil, nil, fmt.Errorf("result %d is damaged: %w: %w", key, err, ErrNotFound)
	}
	if !f.Whole() {
		return nil, nil, fmt.Errorf("the bytes of the media of result %d: %w; set store.keep: full to keep media", key, ErrNotFound)
	}
	return row, f.Sample(), nil
}

func notFound(err error, what string, args ...any) error {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf(what+": %w", append(args, ErrNotFound)...)
	case err != nil:
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// mostDisagreeing sorts rows by the spread of the ranks of their components; those with fewer than two values are left out.
func mostDisagreeing(rows []*Row) []*Row {
	ranks := map[*Row][]float64{}
	for _, name := range ComponentNames(rows) {
		var with []*Row
		for _, row := range rows {
			if row.Components[name] != nil {
				with = append(with, row)
			}
		}
		slices.SortStableFunc(with, func(a, b *Row) int { return cmp.Compare(*a.Components[name], *b.Components[name]) })
		for i := 0; i < len(with); {
			j := i
			for j < len(with) && *with[j].Components[name] == *with[i].Components[name] {
				j++
			}
			for _, row := range with[i:j] { // equal values have equal ranks
				ranks[row] = append(ranks[row], (float64(i+j-1)/2)/math.Max(1, float64(len(with)-1)))
			}
			i = j
		}
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r *Row) bool { return len(ranks[r]) < 2 })
	spread := func(r *Row) float64 { return slices.Max(ranks[r]) - slices.Min(ranks[r]) }
	slices.SortStableFunc(rows, func(a, b *Row) int { return cmp.Compare(spread(b), spread(a)) })
	return rows
}
