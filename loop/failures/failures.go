// Package failures records failures and their reasons for the operators of the service. Similar
// failures, with the same profile, component, class and shape of the message, share one record with
// their number, the workers where they happened, and the newest samples. The package also selects
// the failures to log: the first of a kind at once, the following ones as a number every ten
// seconds.
package failures

import (
	"cmp"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Limits of the records.
const (
	// maxRecords is how many kinds of failures are kept; the one goes first that happened
	// longest ago.
	maxRecords = 256
	// maxSamples and maxWorkers are how many of a record's samples and workers are kept.
	maxSamples = 5
	maxWorkers = 8
	// maxMessage is how many bytes of a message are kept: its beginning and its end, where
	// a traceback has the exception.
	maxMessage = 2 << 10
	// LogEvery is the interval at which the number of similar failures is logged.
	LogEvery = 10 * time.Second
)

// Sample is a failed sample.
type Sample struct {
	ID    string        `json:"id"`
	Run   string        `json:"run"`
	Step  int64         `json:"step"`
	Split rewards.Split `json:"split"`
	// Worker is the worker that tried the sample last; empty: no worker tried the sample.
	Worker   string `json:"worker,omitempty"`
	Attempts int    `json:"attempts"`
	// Outcome is the outcome of the sample, which is rewards.Scored if only an optional component
	// failed.
	Outcome rewards.Outcome `json:"outcome"`
	At      time.Time       `json:"at"`
}

// Failure is the record of similar failures.
type Failure struct {
	// Reward is the name of the profile, "default" for the default profile. Component is the key of
	// the failed component, empty if the sample failed as a whole.
	Reward    string        `json:"reward"`
	Component string        `json:"component,omitempty"`
	Class     rewards.Class `json:"class"`
	Blame     rewards.Blame `json:"blame,omitempty"`
	// Shape is the message without the parts that differ between samples: numbers, quoted names,
	// and the sample's id.
	Shape string `json:"shape"`
	// Message is the newest message, shortened to 2 KiB.
	Message string `json:"message"`
	// Count is the number of samples with this failure, Scored the number of those samples that
	// have a score nevertheless.
	Count  uint64    `json:"count"`
	Scored uint64    `json:"scored"`
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
	// Workers are the first eight workers where the failure happened. Samples are the newest five
	// samples, the newest first.
	Workers []string `json:"workers,omitempty"`
	Samples []Sample `json:"samples"`
}

// Line is a failure to log. Since is the number of such failures since the last Line.
type Line struct {
	Failure

	Since uint64
}

// key tells failures apart.
type key struct {
	reward, component string
	class             rewards.Class
	shape             string
}

type record struct {
	Failure

	said  time.Time // when the log was told last
	since uint64    // failures since then
}

// Book contains the records of failures. It has no goroutine and no clock, and is guarded by the
// gateway's mutex.
type Book struct {
	records map[key]*record
	total   uint64
	due     time.Time // when Tick has a line; zero: never
	raw     rawKey    // of the latest failure
	shape   string    // of that
}

// rawKey is a message before its shape is taken: many in a row are the same.
type rawKey struct{ message, id string }

// NewBook returns an empty book.
func NewBook() *Book { return &Book{records: map[key]*record{}} }

// Note records the errors of a sample's final result, except errors of class rewards.Cancelled.
// Note returns the lines to log at once.
func (b *Book) Note(now time.Time, reward string, s Sample, errs []rewards.ComponentError) (lines []Line) {
	s.At = now
	for _, e := range errs {
		if e.Class == rewards.Cancelled {
			continue // because of another one, or because the client wants it no more
		}
		b.total++
		k := key{reward, e.Component, e.Class, b.shapeOf(e.Message, s.ID)}
		r := b.records[k]
		if r == nil {
			b.makeRoom()
			r = &record{Failure: Failure{Reward: reward, Component: e.Component, Class: e.Class, Shape: k.shape, First: now}}
			b.records[k] = r
		}
		r.note(s, e)
		r.since++
		if now.Sub(r.said) >= LogEvery {
			lines = append(lines, r.line(now))
		} else if at := r.said.Add(LogEvery); b.due.IsZero() || at.Before(b.due) {
			b.due = at
		}
	}
	return lines
}

func (r *record) note(s Sample, e rewards.ComponentError) {
	r.Last, r.Blame, r.Message = s.At, e.Blame, shorten(e.Message)
	r.Count++
	if s.Outcome == rewards.Scored {
		r.Scored++
	}
	if s.Worker != "" && len(r.Workers) < maxWorkers && !slices.Contains(r.Workers, s.Worker) {
		r.Workers = append(r.Workers, s.Worker)
	}
	r.Samples = slices.Insert(r.Samples, 0, s)
	r.Samples = r.Samples[:min(len(r.Samples), maxSamples)]
}

// line is what the log is to say now.
func (r *record) line(now time.Time) Line {
	l := Line{r.copied(), r.since}
	r.said, r.since = now, 0
	return l
}

func (r *record) copied() Failure {
	f := r.Failure
	f.Workers, f.Samples = slices.Clone(f.Workers), slices.Clone(f.Samples)
	return f
}

// makeRoom forgets the record that happened longest ago where there are too many.
func (b *Book) makeRoom() {
	if len(b.records) < maxRecords {
		return
	}
	var oldest key
	var at time.Time
	for k, r := range b.records {
		if at.IsZero() || r.Last.Before(at) {
			oldest, at = k, r.Last
		}
	}
	delete(b.records, oldest)
}

// Due returns the time at which Tick has lines to log, or zero if there is no such time.
func (b *Book) Due() time.Time { return b.due }

// Tick returns a line for each kind of failure that has occurred again since its last line, if that
// line is at least LogEvery old.
func (b *Book) Tick(now time.Time) (lines []Line) {
	if b.due.IsZero() || now.Before(b.due) {
		return nil
	}
	b.due = time.Time{}
	for _, r := range b.records {
		switch at := r.said.Add(LogEvery); {
		case r.since == 0:
		case !now.Before(at):
			lines = append(lines, r.line(now))
		case b.due.IsZero() || at.Before(b.due):
			b.due = at
		}
	}
	slices.SortFunc(lines, func(a, b Line) int { return newestFirst(a.Failure, b.Failure) })
	return lines
}

// Newest returns all records, the newest first, and the total number of failures since the process
// started. The book keeps at most 256 records.
func (b *Book) Newest() ([]Failure, uint64) {
	list := make([]Failure, 0, len(b.records))
	for _, r := range b.records {
		list = append(list, r.copied())
	}
	slices.SortFunc(list, newestFirst)
	return list, b.total
}

func newestFirst(a, b Failure) int {
	return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Reward, b.Reward), cmp.Compare(a.Component, b.Component), cmp.Compare(a.Shape, b.Shape))
}
