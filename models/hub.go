package models

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rewardloop/rewardloop/internal/hfcache"
)

// takenSuffix ends the name of a file on its way out of the hub's cache. Nobody opens
// it to write: it may be the cache's own file by another name.
const takenSuffix = ".taken"

// errOffline: a setting forbids to ask.
var errOffline = errors.New("offline")

// file is how the hub's cache calls a source.
func (s HubSource) file() hfcache.File {
	return hfcache.File{Repository: s.Repository, Revision: s.Revision, Path: s.Path}
}

// InHub returns the path of a file in the cache of Hugging Face's library, or "" if the cache has
// no copy, as far as this can be determined without network. InHub does not verify the checksum.
func (s Store) InHub(f File, sum string) string {
	src, _ := ParseSource(f.Source)
	hub, is := src.(HubSource)
	if !is || s.Hub.Dir == "" {
		return ""
	}
	// What a branch means may have changed, unless the sum is known.
	if sum != "" || s.Offline != "" || hfcache.IsCommit(hub.Revision) {
		if found, err := s.Hub.Find(hub.file()); err == nil && !found.Absent {
			if sum == "" || !hfcache.IsSum(found.ETag) || found.ETag == sum {
				return found.Path
			}
		}
	}
	return s.Hub.Blob(hub.Repository, sum)
}

// lookInHub finds what need not be asked for.
func (p *puller) lookInHub(tasks []task) {
	for i := range tasks {
		t := &tasks[i]
		if !t.fetched() {
			continue
		}
		t.cached = p.InHub(t.File, t.found.Want)
		src, _ := ParseSource(t.Source)
		if hub, is := src.(HubSource); is && t.Optional && t.cached == "" && (hfcache.IsCommit(hub.Revision) || p.Offline != "") {
			found, err := p.Hub.Find(hub.file())
			t.gone = err == nil && found.Absent
		}
	}
}

// settleRevision finds what the endpoint has named, and notes it for whoever uses the
// cache next. Of an endpoint that does not say it is no hub, cannot be reached or
// wants another token, the last answer counts, as with Hugging Face's library.
func (p *puller) settleRevision(t *task, src HubSource, a answer) {
	file := src.file()
	switch {
	case p.Hub.Dir == "":
		return
	case a.gone:
		if p.fills() {
			_ = p.Hub.NoteAbsent(file, a.commit) // a note; without it the question is asked again
		}
		return
	case a.commit != "":
		file.Revision = a.commit
	}
	found, err := p.Hub.Find(file)
	if err != nil || found.Absent {
		return
	}
	t.cached = found.Path
	if a.commit != "" {
		_ = p.Hub.NoteRevision(src.file(), a.commit) // a note; the cache may not be ours to write
	}
}

// passedOver is true for an optional file that nobody may be asked for.
func (p *puller) passedOver(t task) bool {
	src, _ := ParseSource(t.Source)
	_, is := src.(HubSource)
	return is && p.Offline != "" && t.Optional && t.fetched() && t.cached == ""
}

// online refuses what a setting forbids to ask for.
func (p *puller) online(tasks []task) error {
	if p.Offline == "" {
		return nil
	}
	var missing []error
	for _, t := range tasks {
		src, _ := ParseSource(t.Source)
		if _, is := src.(HubSource); is && t.fetched() && t.cached == "" && !t.Optional {
			missing = append(missing, fmt.Errorf("%s from %s", t.Name, t.Source))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s forbids access to the hub, and the cache %s lacks the files below: unset the variable, or fill the cache on a machine with a network:\n%w",
		errOffline, p.Offline, p.Hub.Dir, errors.Join(missing...))
}

// fills is true if what comes is kept in the hub's cache: that can be written, and
// the store can have the same file without a second copy.
func (p *puller) fills() bool {
	if p.filling == nil {
		does := p.Hub.Dir != "" && linkable(p.Hub.Dir, p.Dir)
		p.filling = &does
	}
	return *p.filling
}

// linkable tries a link from one folder to the other.
func linkable(from, to string) bool {
	if os.MkdirAll(from, 0o777) != nil {
		return false
	}
	f, err := os.CreateTemp(from, ".rewardloop-*")
	if err != nil {
		return false
	}
	_ = f.Close()
	defer os.Remove(f.Name())
	other := filepath.Join(to, filepath.Base(f.Name()))
	if os.Link(f.Name(), other) != nil {
		return false
	}
	_ = os.Remove(other)
	return true
}

// entry is what the hub's cache has to know of a file that comes.
func (p *puller) entry(t task) (hfcache.Entry, bool) {
	src, _ := ParseSource(t.Source)
	hub, is := src.(HubSource)
	a := p.answers[t.Name]
	if !is || a.commit == "" || a.etag == "" || !p.fills() {
		return hfcache.Entry{}, false
	}
	return hfcache.Entry{File: hub.file(), Commit: a.commit, ETag: a.etag, Sum: a.sum != "" && a.sum == a.etag}, true
}

// throughHub takes a file out of the hub's cache, and brings it there first if need be.
// It is not done if the file is no hub's, or the cache cannot be written.
func (p *puller) throughHub(ctx context.Context, t task) (done bool, err error) {
	if t.cached != "" {
		err := p.compare(ctx, t.File, t.cached, t.found)
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case err == nil:
			p.tell(t.File, Taken, 0, 0, t.cached)
			return true, p.take(ctx, t.File, t.cached, t.found.Path)
		}
		if err := p.online([]task{{File: t.File, found: t.found}}); err != nil {
			return false, fmt.Errorf("%w (in the cache: %s)", err, t.cached)
		}
		p.tell(t.File, Retrying, 0, t.size, "the hub's cache has another file: "+err.Error())
		if src, _ := ParseSource(t.Source); p.answers[t.Name].etag == "" {
			if hub, is := src.(HubSource); is {
				asking, cancel := context.WithTimeout(ctx, min(askFor, p.Stall))
				p.answers[t.Name] = p.ask(asking, hub.address(p.Endpoint))
				cancel()
			}
		}
	}
	e, is := p.entry(t)
	if !is {
		return false, nil
	}
	if t.found.Want != "" && e.Sum && e.ETag != t.found.Want {
		return false, checksumError("the endpoint announces that "+t.Name, e.ETag, t.found.Want, t.found.origin())
	}
	slot, err := p.Hub.Begin(ctx, e, func() {
		p.progress(Event{Model: p.model.Name, Stage: Waiting, Note: "another program is fetching " + t.Name + " into " + p.Hub.Dir})
	})
	switch {
	case ctx.Err() != nil:
		if err == nil {
			slot.Close()
		}
		return false, context.Cause(ctx)
	case err != nil: // it cannot be written after all, so the store alone has it
		return false, nil
	}
	defer slot.Close()
	at := slot.Ready()
	fresh := at == "" || p.compare(ctx, t.File, at, t.found) != nil
	if fresh {
		if err := p.fetchWhole(ctx, t.File, slot.Partial(), t.found); err != nil {
			return false, err
		}
	} else {
		p.tell(t.File, Taken, 0, 0, at)
	}
	if at, err = slot.Finish(fresh); err != nil {
		return false, fmt.Errorf("hugging face's cache: %w", err)
	}
	return true, p.take(ctx, t.File, at, t.found.Path)
}

// take gives a file of the hub's cache its place in the store: as another name of the
// same file, as a link where the file system has it but its owner is another user, or
// as a copy where the cache is on another disk.
func (p *puller) take(ctx context.Context, f File, from, to string) error {
	from, err := filepath.EvalSymlinks(from)
	if err == nil {
		from, err = filepath.Abs(from)
	}
	if err != nil {
		return err
	}
	beside := to + takenSuffix
	_ = os.Remove(beside) // of a pull that was killed
	if share(from, beside, os.Link) != nil {
		if err = p.copyFile(ctx, f, from, beside); err != nil {
			return err
		}
	}
	err = settle(beside, to)
	_ = os.Remove(beside) // a file that has its name already keeps both
	return err
}

// share gives a file another name. Where that is refused for another reason than
// another disk, such as another owner, it is a link; a link to another disk would be
// one that a copy of the store lacks.
func share(from, to string, link func(from, to string) error) error {
	err := link(from, to)
	if err != nil && !errors.Is(err, syscall.EXDEV) {
		err = os.Symlink(from, to)
	}
	return err
}
