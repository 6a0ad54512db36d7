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

// segment is one file. Guarded by the spool's mutex.
type segment struct {
	number uint64
	path   string
	mark   [markBytes]byte
	size   int64
	live   int64    // of records that are kept
	file   *os.File // of the one that is being written
	broken bool     // a write went wrong and could not be taken back
}

const suffix = ".spool"

// recover reads the segments of earlier lives and begins a new one.
func (s *Spool) recover() error {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	var last uint64
	for _, e := range entries { // in the order of their names, which is that of their numbers
		text, ours := strings.CutSuffix(e.Name(), suffix)
		n, err := strconv.ParseUint(text, 16, 64)
		if !ours || err != nil || len(text) != 16 {
			continue
		}
		last = n
		if err := s.read(&segment{number: n, path: filepath.Join(s.cfg.Dir, e.Name())}); err != nil {
			return fmt.Errorf("spool: %s: %w", e.Name(), err)
		}
	}
	s.segments = append(s.segments, &segment{number: last}) // for the number of the next
	if err := s.rotate(); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	s.segments = slices.Delete(s.segments, len(s.segments)-2, len(s.segments)-1)
	return nil
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
	s.bytes += seg.size
	found := func(h head, at int64) {
		s.seq = max(s.seq, h.seq)
		s.take(&h, &place{seg: seg, at: at, head: h.size, body: h.body, sum: h.sum, seq: h.seq})
	}
	seg.mark, err = scan(f, seg.size, found, func(at, bytes int64, why error) { s.skipped(seg, at, bytes, why) })
	if err != nil && !errors.Is(err, ErrVersion) {
		s.skipped(seg, 0, seg.size, err)
		return nil
	}
	return err
}

func (s *Spool) skipped(seg *segment, at, bytes int64, why error) {
	s.stats.Skipped++
	s.log.Warn("part of the spool is passed over", "file", seg.path, "at", at, "bytes", bytes, "error", why)
}

func (s *Spool) active() *segment { return s.segments[len(s.segments)-1] }

// writable returns the segment that the next record goes to, which may be a new one.
func (s *Spool) writable() (*segment, error) {
	if seg := s.active(); seg.size < s.cfg.SegmentBytes && !seg.broken {
		return seg, nil
	}
	if err := s.rotate(); err != nil {
		return nil, err
	}
	return s.active(), nil
}

// rotate begins a new segment.
func (s *Spool) rotate() error {
	old := s.active()
	seg := &segment{number: old.number + 1}
	seg.path = filepath.Join(s.cfg.Dir, fmt.Sprintf("%016x%s", seg.number, suffix))
	b, mark := newSegmentHead()
	f, err := os.OpenFile(seg.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		return errors.Join(err, f.Close(), os.Remove(seg.path))
	}
	if old.file != nil {
		_ = old.file.Close() // every write was checked
		old.file = nil
	}
	seg.file, seg.mark, seg.size = f, mark, segmentHead
	s.segments = append(s.segments, seg)
	s.bytes += segmentHead
	return nil
}

// append writes records, all or none, and books them. The caller holds mu.
func (s *Spool) append(batch []Record) error {
	if len(batch) == 0 {
		return nil
	}
	seg, err := s.writable()
	if err != nil {
		s.stats.Failed++
		return fmt.Errorf("spool: %w", err)
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
		s.stats.Failed++
		seg.broken = seg.file.Truncate(seg.size) != nil
		return fmt.Errorf("spool: %w", err)
	}
	for i := range heads {
		h := &heads[i]
		s.take(h, &place{seg: seg, at: seg.size, head: h.size, body: h.body, sum: h.sum, seq: h.seq})
		seg.size += h.total()
		s.bytes += h.total()
	}
	return nil
}

// tidy deletes segments in which nothing is live, and where dead bytes are the most of
// what is on disk, moves the rest of the oldest ones. One segment at a time, so that
// whoever wants to write gets in between.
func (s *Spool) tidy() {
	for more := true; more; {
		s.mu.Lock()
		more = !s.closed && s.reclaim(max(s.live, 4*s.cfg.SegmentBytes))
		s.mu.Unlock()
	}
}

// makeRoom gives back what is dead until so much fits. Less than an eighth is left where
// it is: it would be copying everything that is live for a little. The caller holds mu.
func (s *Spool) makeRoom(need int64) {
	worth := max(need, s.cfg.MaxBytes/8)
	if s.bytes-s.live < worth || s.active().size > segmentHead && s.rotate() != nil {
		return
	}
	for s.bytes+need > s.cfg.MaxBytes && s.reclaim(int64(len(s.segments))*segmentHead) {
	}
}

// reclaim deletes the oldest segment if nothing in it is live, or if more than so many
// dead bytes are on disk; it reports whether it did. The caller holds mu.
func (s *Spool) reclaim(dead int64) bool {
	old := s.segments[0]
	if len(s.segments) == 1 || old.live > 0 && s.bytes-s.live <= dead {
		return false
	}
	if old.live > 0 {
		if err := s.move(old); err != nil {
			s.stats.Failed++
			s.log.Error("spool could not be tidied", "file", old.path, "error", err)
			return false
		}
	}
	if err := os.Remove(old.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Error("spool could not be tidied", "file", old.path, "error", err)
		return false
	}
	s.segments = s.segments[1:]
	s.bytes -= old.size
	return true
}

// move writes the live records of a segment again, at the end.
func (s *Spool) move(old *segment) error {
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
		if err := s.copy(f, p); err != nil {
			return err
		}
	}
	return nil
}

// copy writes one live record again.
func (s *Spool) copy(from *os.File, p *place) error {
	seg, err := s.writable()
	if err != nil {
		return err
	}
	w := io.NewOffsetWriter(seg.file, seg.size)
	_, err = w.Write(seg.mark[:])
	if err == nil {
		_, err = io.CopyN(w, io.NewSectionReader(from, p.at+markBytes, p.total()-markBytes), p.total()-markBytes)
	}
	if err != nil {
		seg.broken = seg.file.Truncate(seg.size) != nil
		return err
	}
	s.unbook(p)
	p.seg, p.at = seg, seg.size
	s.book(p)
	seg.size += p.total()
	s.bytes += p.total()
	return nil
}
