package spool

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// file is what a segment is written through. Tests put one in its place that fails.
type file interface {
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// create opens a file for writing.
func create(path string, flag int) (file, error) {
	f, err := os.OpenFile(path, flag|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err // not a file that is nil
	}
	return f, nil
}

// segment is one file. Guarded by the spool's mutex.
type segment struct {
	number uint64
	path   string
	mark   [markBytes]byte
	size   int64 // of the head and the records
	room   int64 // size of a file that was made before it was needed: zeros follow its records
	live   int64 // of records that are kept
	file   file  // of the one that is being written
	broken bool  // a write went wrong and could not be taken back
	unsure error // it could not be synced before it was closed
}

// bytes is how much of the disk the segment takes.
func (g *segment) bytes() int64 { return max(g.size, g.room) }

const suffix = ".spool"

// recover reads the segments of earlier lives and begins a new one. On a full disk the
// latest is written on, if it has room left; else nothing can be written until there is some.
func (s *Spool) recover() error {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	for _, e := range entries { // in the order of their names, which is that of their numbers
		text, ours := strings.CutSuffix(e.Name(), suffix)
		n, err := strconv.ParseUint(text, 16, 64)
		if !ours || err != nil || len(text) != 16 {
			continue
		}
		s.number = n
		if err := s.read(&segment{number: n, path: filepath.Join(s.cfg.Dir, e.Name())}); err != nil {
			return fmt.Errorf("spool: %s: %w", e.Name(), err)
		}
	}
	s.findReserve()
	err = s.rotate()
	if err == nil {
		err = s.keepReserve()
	} else if isFull(err) {
		s.reopen()
	}
	if err != nil && !isFull(err) {
		return fmt.Errorf("spool: %w", err)
	}
	if err != nil {
		_ = s.fail(err, 0) // it is told; the spool opens, and takes nothing while the disk is full
	}
	return nil
}

// reopen goes on with a segment that has room left, because there is none for another one.
func (s *Spool) reopen() {
	n := len(s.segments)
	if n == 0 || s.segments[n-1].room <= s.segments[n-1].size {
		return
	}
	if f, err := s.cfg.create(s.segments[n-1].path, 0); err == nil {
		s.segments[n-1].file = f
	}
}

// read takes in one segment. Only one that another release has written is an error: a
// gateway that passed over it would lose what it was told to keep.
func (s *Spool) read(seg *segment) error {
	f, err := os.Open(seg.path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	seg.size = info.Size()
	s.segments = append(s.segments, seg)
	found := func(h head, at int64) {
		s.seq = max(s.seq, h.seq)
		s.take(&h, &place{seg: seg, at: at, head: h.size, body: h.body, sum: h.sum, seq: h.seq})
	}
	var end int64
	seg.mark, end, err = scan(f, seg.size, found, func(at, bytes int64, why error) { s.skipped(seg, at, bytes, why) })
	if err != nil && !errors.Is(err, errVersion) {
		s.skipped(seg, 0, seg.size, err)
		return nil
	}
	seg.size, seg.room = end, seg.size
	return err
}

func (s *Spool) skipped(seg *segment, at, bytes int64, why error) {
	s.stats.Skipped++
	s.log.Warn("a damaged part of the spool was skipped", "file", seg.path, "at", at, "bytes", bytes, "error", why)
}

// active is the segment that is being written; one without a file if there is none.
func (s *Spool) active() *segment {
	if n := len(s.segments); n > 0 {
		return s.segments[n-1]
	}
	return &segment{}
}

// bytes is how much of the disk the spool takes.
func (s *Spool) bytes() int64 {
	n := s.reserve
	for _, seg := range s.segments {
		n += seg.bytes()
	}
	return n
}

// writable returns the segment that the next bytes go to, which may be a new one. A segment
// that has room is not written beyond it: if the disk is full, what was written would have
// to be cut off, and the room with it.
func (s *Spool) writable(bytes int64) (*segment, error) {
	seg := s.active()
	fits := seg.size < s.cfg.SegmentBytes
	if seg.room > 0 {
		fits = seg.size+bytes <= seg.room
	}
	if seg.file != nil && !seg.broken && fits {
		return seg, nil
	}
	if err := s.rotate(); err != nil {
		return nil, err
	}
	return s.active(), nil
}

// rotate begins a new segment.
func (s *Spool) rotate() error {
	path := s.pathOf(s.number + 1)
	f, err := s.cfg.create(path, os.O_CREATE|os.O_TRUNC) // nothing but a beginning that failed can be there
	if err != nil {
		return err
	}
	if err := s.begin(f, path, 0); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func (s *Spool) pathOf(number uint64) string {
	return filepath.Join(s.cfg.Dir, fmt.Sprintf("%016x%s", number, suffix))
}

// begin makes a file the segment that is being written. After an error the file is closed.
func (s *Spool) begin(f file, path string, room int64) error {
	b, mark := newSegmentHead()
	_, err := f.WriteAt(b, 0)
	if err == nil && s.cfg.synced() {
		err = syncDir(s.cfg.Dir)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if old := s.active(); old.file != nil {
		s.leave(old)
	}
	s.number++
	s.segments = append(s.segments, &segment{number: s.number, path: path, mark: mark, size: segmentHead, room: room, file: f})
	return nil
}

// leave closes a segment that is written no more, and gives back what room it has.
func (s *Spool) leave(old *segment) {
	if (old.broken || old.room > old.size) && old.file.Truncate(old.size) == nil {
		old.room = 0
	}
	s.settle(old)
	_ = old.file.Close() // every write was checked
	old.file = nil
}

// append writes records, all or none, and books them. The caller holds mu.
func (s *Spool) append(batch []Record) error {
	if len(batch) == 0 {
		return nil
	}
	var size int64
	for i := range batch {
		size += batch[i].size()
	}
	seg, err := s.writable(size)
	if err != nil {
		s.stats.Failed++
		return err
	}
	var heads []head
	var buf []byte
	end := seg.size
	flush := func(b []byte) error {
		n, err := seg.file.WriteAt(b, end)
		end += int64(n)
		return err
	}
	for i := range batch {
		r := &batch[i]
		s.seq++
		at := len(buf)
		buf = appendHead(buf, seg.mark, r, s.seq)
		heads = append(heads, head{
			kind: r.Kind, of: r.Of, run: r.Run, id: r.ID, epoch: r.Epoch, sum: r.Sum, seq: s.seq, size: int64(len(buf) - at), body: int64(len(r.Body)),
		})
		if len(r.Body) < batchBytes/16 {
			buf = append(buf, r.Body...)
			continue
		}
		if err = flush(buf); err == nil { // a frame is not copied
			err = flush(r.Body)
		}
		if buf = buf[:0]; err != nil {
			break
		}
	}
	if err == nil {
		err = flush(buf)
	}
	if err != nil {
		s.cutOff(seg)
		return err
	}
	for i := range heads {
		h := &heads[i]
		s.take(h, &place{seg: seg, at: seg.size, head: h.size, body: h.body, sum: h.sum, seq: h.seq})
		seg.size += h.total()
	}
	return nil
}

// cutOff takes a write back that went wrong: whole records of it must not be found later.
func (s *Spool) cutOff(seg *segment) {
	s.stats.Failed++
	seg.broken = seg.file.Truncate(seg.size) != nil
	if !seg.broken {
		seg.room = 0
	}
}

// tidy deletes segments in which nothing is live, and where dead bytes are the most of what
// is on disk, moves the rest of the oldest ones: when an eighth is dead, if samples are
// refused. One segment at a time, so that whoever wants to write gets in between.
func (s *Spool) tidy() {
	for more := true; more; {
		s.mu.Lock()
		worth := max(s.live, s.cfg.SegmentBytes/2)
		if s.Trouble() != nil {
			worth = min(worth, max(s.bytes()/8, s.reserveBytes()/16)) // the heads of segments alone are nothing to move
		}
		more = !s.closed && s.reclaim(worth)
		s.mu.Unlock()
	}
}

// makeRoom gives back what is dead until so much fits. Less than an eighth is left where it
// is, unless little is live: it would be copying everything for a little. The caller holds mu.
func (s *Spool) makeRoom(need int64) {
	dead, little := s.dead(), s.cfg.MaxBytes/8
	if s.bytes()+need-dead > s.cfg.MaxBytes || dead < little && s.live > little {
		return
	}
	for s.bytes()+need > s.cfg.MaxBytes && s.reclaim(int64(len(s.segments))*segmentHead) {
	}
}

// dead is how many bytes of the segments hold nothing that is kept.
func (s *Spool) dead() int64 { return s.bytes() - s.reserve - s.live }

// reclaim deletes the oldest segment if nothing in it is live, or if more than so many dead
// bytes are on disk; it reports whether it did. If it is the one that is being written,
// another one is begun. The caller holds mu.
func (s *Spool) reclaim(dead int64) bool {
	if len(s.segments) == 0 || len(s.segments) == 1 && (s.active().size == segmentHead || s.dead() <= dead || s.next() != nil) {
		return false
	}
	old := s.segments[0]
	if old.live > 0 && s.dead() <= dead {
		return false
	}
	err := s.move(old)
	if err == nil && s.cfg.synced() { // what has made the records dead must not be lost before they are
		err = s.flushed()
	}
	if err == nil {
		err = os.Remove(old.path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if s.Trouble() == nil {
			s.log.Error("a file of the spool could not be removed", "file", old.path, "error", err)
		}
		return false
	}
	s.segments = s.segments[1:]
	return true
}

// next begins another segment, in the reserve if there is no room for one. One that cannot
// be written any more is only read: it is the oldest already.
func (s *Spool) next() error {
	if s.active().file == nil {
		return nil
	}
	err := s.rotate()
	if err != nil && s.useReserve() == nil {
		return nil
	}
	return err
}

// move writes the live records of a segment again, at the end.
func (s *Spool) move(old *segment) error {
	if old.live == 0 {
		return nil
	}
	if !s.roomFor(old.live) {
		return s.postpone(old, ErrFull)
	}
	f, err := os.Open(old.path)
	if err != nil {
		return err
	}
	defer f.Close()
	var rest []*place
	for _, r := range s.runs {
		if r.run != nil && r.run.seg == old {
			rest = append(rest, r.run)
		}
		for _, of := range r.byKind {
			for _, p := range of {
				if p.seg == old {
					rest = append(rest, p)
				}
			}
		}
	}
	slices.SortFunc(rest, func(a, b *place) int { return cmp.Compare(a.at, b.at) })
	for _, p := range rest {
		err := s.copy(f, p)
		if err != nil && segmentHead+p.total() <= s.reserve && s.useReserve() == nil {
			err = s.copy(f, p)
		}
		if err != nil {
			return s.postpone(old, err)
		}
	}
	return nil
}

// copy writes one live record again.
func (s *Spool) copy(from *os.File, p *place) error {
	seg, err := s.writable(p.total())
	if err != nil {
		return err
	}
	w := io.NewOffsetWriter(seg.file, seg.size)
	_, err = w.Write(seg.mark[:])
	if err == nil {
		_, err = io.CopyN(w, io.NewSectionReader(from, p.at+markBytes, p.total()-markBytes), p.total()-markBytes)
	}
	if err != nil {
		s.cutOff(seg)
		return err
	}
	s.unbook(p)
	p.seg, p.at = seg, seg.size
	s.book(p)
	seg.size += p.total()
	return nil
}
