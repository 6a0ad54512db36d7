package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// migrations bring a file from the version that is their index to the next one; SQLite's user_version counts them.
//
//nolint:gochecknoglobals // a table
var migrations = []string{
	`
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('written', 0), ('created', CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER));
-- run and reward are ids of names; epoch and finished are microseconds since 1970; split is 0 for train and 1 for val; head is the JSON
-- of the sample's frame, result the JSON of its result, as both travelled.
CREATE TABLE results (
	key INTEGER PRIMARY KEY AUTOINCREMENT,
	run INTEGER NOT NULL, epoch INTEGER NOT NULL, split INTEGER NOT NULL, step INTEGER NOT NULL,
	id TEXT NOT NULL, uid TEXT NOT NULL, reward INTEGER NOT NULL,
	outcome TEXT NOT NULL, score REAL, total_ms REAL, finished INTEGER NOT NULL,
	head BLOB NOT NULL, result BLOB NOT NULL
);
CREATE INDEX results_of_step ON results (run, split, step, epoch);
-- jpeg is null where there is only a description.
CREATE TABLE thumbnails (
	run INTEGER NOT NULL, epoch INTEGER NOT NULL, id TEXT NOT NULL, n INTEGER NOT NULL, jpeg BLOB NOT NULL,
	width INTEGER NOT NULL, height INTEGER NOT NULL, frames INTEGER NOT NULL
);
CREATE UNIQUE INDEX thumbnails_of_sample ON thumbnails (run, epoch, id, n);
-- data is what follows the header in the sample's frame.
CREATE TABLE payloads (run INTEGER NOT NULL, epoch INTEGER NOT NULL, id TEXT NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX payloads_of_sample ON payloads (run, epoch, id);
CREATE TABLE steps (
	run INTEGER NOT NULL, epoch INTEGER NOT NULL, split INTEGER NOT NULL, step INTEGER NOT NULL,
	expected INTEGER NOT NULL, exposed REAL, rollout REAL, makespan REAL,
	PRIMARY KEY (run, split, step, epoch)
) WITHOUT ROWID;
-- what the values of a step came to: column is '' for the reward, else the key of a component. n are those with a value, failed those without.
CREATE TABLE columns (
	run INTEGER NOT NULL, epoch INTEGER NOT NULL, split INTEGER NOT NULL, step INTEGER NOT NULL, name TEXT NOT NULL,
	n INTEGER NOT NULL, failed INTEGER NOT NULL, sum REAL NOT NULL, squares REAL NOT NULL, least REAL, largest REAL, last INTEGER NOT NULL,
	PRIMARY KEY (run, split, step, epoch, name)
) WITHOUT ROWID;
-- what a configuration's digest stands for.
CREATE TABLE configs (digest TEXT PRIMARY KEY, reward TEXT NOT NULL, version TEXT NOT NULL, yaml TEXT NOT NULL, hashes TEXT NOT NULL, first INTEGER NOT NULL) WITHOUT ROWID;
`,
	`
-- data has the samples and results of the rows from first to last, compressed (blocks.go); head and result of such rows are empty.
CREATE TABLE blocks (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, data BLOB NOT NULL);
`,
}

// ErrNewer means that a later release has written the file.
var ErrNewer = errors.New("written by a later release")

// migrate brings the file to the version of this program.
func migrate(ctx context.Context, db *sql.DB) error {
	var version int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version > len(migrations) {
		return fmt.Errorf("%w: the file has version %d, but this program supports up to %d; use the newer release, or another file", ErrNewer, version, len(migrations))
	}
	for ; version < len(migrations); version++ {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, migrations[version]); err == nil {
			_, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version+1))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("migration %d: %w", version+1, err), tx.Rollback())
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("migration %d: %w", version+1, err)
		}
	}
	return nil
}
