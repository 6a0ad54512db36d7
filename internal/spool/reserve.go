package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// This file is about a disk that takes no more.
//
// The spool itself fills it, and only what it writes can empty it: a record is dead once
// another one says so. So a file of zeros is kept, the reserve, whose blocks belong to the
// spool. When a write fails, the reserve becomes the segment that is written, and takes what
// has no body: drops, epochs, members of groups. A file that is deleted when the disk is full
// would not do, for whoever filled the disk would have its bytes first. Samples are refused
// until there is a reserve again; results wait in memory, and one that its client confirms
// meanwhile is never written, for a drop of its sample says the same.
//
// Without room even in the reserve, drops hold in memory: a segment all of whose records are
// over is deleted although the disk does not say so, and makes room for what waits. If the
// process dies before that is written, the samples of other segments are scored again.

// reserveMost is the size of the reserve, or a 64th of Config.MaxBytes: room for the drops of
// about 8,000 samples.
const reserveMost = 1 << 20

// reserveName is the reserve's file in the folder.
const reserveName = "reserve"

func (s *Spool) reservePath() string { return filepath.Join(s.cfg.Dir, reserveName) }

func (s *Spool) reserveBytes() int64 { return max(min(reserveMost, s.cfg.MaxBytes/64), segmentHead) }

// findReserve looks for the reserve of an earlier life.
func (s *Spool) findReserve() {
	if info, err := os.Stat(s.reservePath()); err == nil && info.Size() >= s.reserveBytes() {
		s.reserve = info.Size()
	}
}

// keepReserve makes the reserve if there is none. The caller holds mu.
func (s *Spool) keepReserve() error {
	if s.reserve > 0 {
		return nil
	}
	f, err := s.cfg.create(s.reservePath(), os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, s.reserveBytes()), 0)
	if err == nil && s.cfg.synced() {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		s.stats.Failed++
		return errors.Join(err, os.Remove(s.reservePath()))
	}
	s.reserve = s.reserveBytes()
	return nil
}

// useReserve makes the reserve the segment that is being written.
func (s *Spool) useReserve() error {
	if s.reserve == 0 {
		return ErrFull
	}
	room, path := s.reserve, s.pathOf(s.number+1)
	s.reserve = 0
	if err := os.Rename(s.reservePath(), path); err != nil {
		return err
	}
	f, err := s.cfg.create(path, 0)
	if err == nil {
		err = s.begin(f, path, room)
	}
	if err != nil {
		s.stats.Failed++
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// trouble is why no sample is taken.
type trouble struct {
	err  error
	need int64 // size of the latest sample that was refused
}

// Trouble returns the reason why no sample is accepted at the moment, or nil if samples are
// accepted. The error wraps ErrFull if space is missing. The condition ends without manual
// intervention: the spool tries again every 250 ms, and as soon as a record is dropped. Trouble
// never blocks.
func (s *Spool) Trouble() error {
	if t := s.trouble.Load(); t != nil {
		return t.err
	}
	return nil
}

// isFull reports whether an error is for want of room.
func isFull(err error) bool {
	return errors.Is(err, ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// fail notes why a sample of so many bytes is not taken, in words that stay the same. The
// caller holds mu, or is alone.
func (s *Spool) fail(err error, need int64) error {
	if errors.Is(err, errClosed) || errors.Is(err, ErrInvalid) {
		return err
	}
	var errno syscall.Errno
	switch {
	case errors.Is(err, ErrFull):
	case isFull(err):
		_ = errors.As(err, &errno)
		err = fmt.Errorf("%w: %s: %w", ErrFull, s.cfg.Dir, errno)
	case errors.As(err, &errno):
		err = fmt.Errorf("spool %s cannot be written: %w", s.cfg.Dir, errno)
	default:
		err = fmt.Errorf("spool %s cannot be written: %w", s.cfg.Dir, err)
	}
	if old := s.trouble.Load(); old != nil {
		need = max(need, old.need)
	}
	s.trouble.Store(&trouble{err, need})
	s.wakeUp()
	if now := time.Now(); now.Sub(s.told) >= tellEvery {
		s.told = now
		s.log.Error("the spool cannot be written; clients keep their new samples until the spool can be written again", "error", err)
	}
	return err
}

// tellEvery is how often the log is told at most that the spool cannot be written.
const tellEvery = 10 * time.Second

// ready makes everything so that a sample of so many bytes may be written, or says why it
// may not. The caller holds mu.
func (s *Spool) ready(need int64) error {
	if err := s.drain(); err != nil {
		return err
	}
	if err := s.keepReserve(); err != nil {
		return err
	}
	if s.bytes()+need > s.cfg.MaxBytes {
		s.makeRoom(need)
	}
	if s.bytes()+need > s.cfg.MaxBytes {
		return fmt.Errorf("%w: all %d bytes of queue.spool_bytes are in use", ErrFull, s.cfg.MaxBytes)
	}
	if free, known := s.free(); known && free < need && s.Trouble() != nil {
		return syscall.ENOSPC
	}
	return nil
}

// recovered ends the trouble if samples may be tried again.
func (s *Spool) recovered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.trouble.Load(); t != nil && !s.closed && s.ready(t.need) == nil {
		s.trouble.Store(nil)
	}
}

// free is what the file system has left, if it says so.
func (s *Spool) free() (int64, bool) {
	if s.cfg.Free == nil {
		return 0, false
	}
	n, err := s.cfg.Free(s.cfg.Dir)
	return n, err == nil
}

// roomFor reports whether so many bytes may be written again.
func (s *Spool) roomFor(bytes int64) bool {
	if s.Trouble() == nil {
		return true
	}
	free, known := s.free()
	a := s.active()
	return !known || bytes+segmentHead <= max(free, s.reserve) || a.file != nil && a.size+bytes <= a.room
}

// postpone queues what a segment says of runs, if nothing else in it is live: their epochs
// are known here, and without the segment there is room to write them. Else it returns why
// the segment must stay.
func (s *Spool) postpone(old *segment, why error) error {
	var again []Record
	live := old.live
	for name, r := range s.runs {
		if r.run != nil && r.run.seg == old {
			live -= r.run.total()
			again = append(again, Record{Kind: Run, Run: name, Epoch: r.epoch})
		}
	}
	if live > 0 {
		return why
	}
	for _, a := range again {
		r := s.runs[a.Run]
		s.unbook(r.run)
		r.run = nil
	}
	s.qmu.Lock()
	s.queue = append(again, s.queue...)
	s.qmu.Unlock()
	return nil
}

// makeDo does with the queue what a disk permits that has just failed, and returns what is
// still to be written. The caller holds mu.
func (s *Spool) makeDo(queue []Record) []Record {
	queue = compact(queue)
	small := slices.IndexFunc(queue, hasBody)
	if small < 0 {
		small = len(queue)
	}
	if small > 0 && s.active().room == 0 {
		_ = s.useReserve() // without it the latest segment is tried once more
	}
	var rest []Record
	for i := range queue[:small] {
		r := &queue[i]
		if s.append(queue[i:i+1]) == nil {
			continue
		}
		if r.Kind == Drop || r.Kind == Gone {
			s.take(&head{kind: r.Kind, of: r.Of, run: r.Run, id: r.ID, epoch: r.Epoch}, nil)
		}
		rest = append(rest, *r)
	}
	return append(rest, queue[small:]...)
}

// compact takes out of a queue what later records of it end, and puts those with a body last.
func compact(queue []Record) []Record {
	type name struct {
		kind  Kind
		run   string
		epoch uint64
		id    string
	}
	out, waiting := make([]Record, 0, len(queue)), map[name]int{}
	end := func(n name) bool {
		at, there := waiting[n]
		if there {
			out[at].Kind = 0
			delete(waiting, n)
		}
		return there
	}
	for _, r := range queue {
		switch r.Kind {
		case Result, Member:
			end(name{r.Kind, r.Run, r.Epoch, r.ID})
			waiting[name{r.Kind, r.Run, r.Epoch, r.ID}] = len(out)
		case Drop:
			if end(name{r.Of, r.Run, r.Epoch, r.ID}) && r.Of == Result {
				r.Of = Sample // which the result would have ended
			}
		case Run, Gone:
			for n := range waiting {
				if n.run == r.Run && (n.epoch < r.Epoch || n.epoch == r.Epoch && r.Kind == Gone) {
					end(n)
				}
			}
		}
		out = append(out, r)
	}
	out = slices.DeleteFunc(out, func(r Record) bool { return r.Kind == 0 })
	small := slices.DeleteFunc(slices.Clone(out), hasBody)
	return append(small, slices.DeleteFunc(out, func(r Record) bool { return !hasBody(r) })...)
}

func hasBody(r Record) bool { return r.Fill != nil || len(r.Body) > 0 }

// Short returns a message if the file system of dir has less space for a spool than most bytes, or
// "" if it has enough or if the space is unknown. free is as in Config.
func Short(dir string, most int64, free func(dir string) (int64, error)) string {
	at := dir
	for _, err := os.Stat(at); err != nil && filepath.Dir(at) != at; _, err = os.Stat(at) {
		at = filepath.Dir(at) // the folder is made at the start
	}
	left, err := free(at)
	if err != nil {
		return ""
	}
	full := ""
	if left < reserveMost {
		full = ErrFull.Error() + ": "
	}
	var own int64
	entries, _ := os.ReadDir(dir) // none: it is not there yet
	for _, e := range entries {
		if info, err := e.Info(); err == nil && (filepath.Ext(e.Name()) == suffix || e.Name() == reserveName) {
			own += info.Size()
		}
	}
	if left+own >= most {
		return ""
	}
	return full + fmt.Sprintf("queue.spool_bytes is %s, and the file system of %s has %s for it (%s in use by the spool, %s free)",
		mib(most), dir, mib(left+own), mib(own), mib(left))
}

// ShortAdvice describes what to do about Short.
const ShortAdvice = "free space on the file system, or write a smaller queue.spool_bytes; once the file system is full, samples wait at their clients"

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
