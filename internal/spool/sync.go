package spool

import (
	"errors"
	"os"
	"time"
)

// This file is about samples that are to survive the machine (FsyncGroup): an fsync costs
// a disk between a tenth of a millisecond and ten, so that one serves all samples that were
// written while the one before it ran.

// syncEvery is how long after one fsync began the next may begin.
const syncEvery = 2 * time.Millisecond

// commit are samples that wait for the same fsync.
type commit struct {
	done   chan struct{} // closed when they are on the disk, or not
	err    error         // guarded by the spool's mutex until done is closed
	anyone bool          // somebody waits; guarded by the spool's mutex
}

func newCommit() *commit { return &commit{done: make(chan struct{})} }

// join makes the caller wait for the next fsync. The caller holds mu.
func (s *Spool) join() *commit {
	s.commit.anyone = true
	select {
	case s.ask <- struct{}{}:
	default:
	}
	return s.commit
}

// syncer is the goroutine that syncs; it ends on Close.
func (s *Spool) syncer() {
	defer close(s.synced)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-s.ask:
		case <-s.done:
			s.sync() // those that came while the spool was closed
			return
		}
		<-pause.C
		pause.Reset(syncEvery)
		s.sync()
	}
}

// sync makes everything that was written so far survive the machine, and tells who waits.
func (s *Spool) sync() {
	s.mu.Lock()
	c, seg := s.commit, s.active()
	f := seg.file
	s.commit = newCommit()
	s.mu.Unlock()
	if !c.anyone {
		return
	}
	var err error
	if f != nil {
		err = f.Sync() // without the mutex: others write meanwhile
	}
	s.mu.Lock()
	if errors.Is(err, os.ErrClosed) {
		err = seg.unsure // it was synced before it was closed
	} else if err != nil {
		s.stats.Failed++
		seg.broken = true // what the system has done with the bytes is not known
	}
	if c.err = errors.Join(c.err, err); c.err != nil {
		c.err = s.fail(c.err, 0)
	}
	s.mu.Unlock()
	close(c.done)
}

// settle syncs a segment that is left. The caller holds mu.
func (s *Spool) settle(old *segment) {
	if !s.cfg.synced() {
		return
	}
	if old.unsure = old.file.Sync(); old.unsure != nil {
		s.stats.Failed++
		s.commit.err = errors.Join(s.commit.err, old.unsure)
	}
}

// flushed syncs the segment that is being written. The caller holds mu.
func (s *Spool) flushed() error {
	f := s.active().file
	if f == nil {
		return nil
	}
	return f.Sync()
}

// syncDir makes a new name in a folder survive the machine.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
