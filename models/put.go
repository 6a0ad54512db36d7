package models

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Given is a file that does not come from its source but from a bundle.
type Given struct {
	// Name is the path below the store's folder, with slashes.
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Source is the source from which the file was pulled, or of which it was exported. Empty: the file is part
	// of a folder whose checksums the store does not keep.
	Source string `json:"source,omitempty"`
	// Model is the exported model to which the file belongs, and Licence the licence of its weights.
	Model   string `json:"model,omitempty"`
	Licence string `json:"licence,omitempty"`
}

// Intake puts files into a store one by one, each complete and with the right checksum or not at all. An Intake
// holds the store's lock until Close, and belongs to one goroutine.
type Intake struct {
	p       *puller
	release func()
}

// Intake waits for the store's lock until ctx ends. Options.Progress is called as by Pull.
func (s Store) Intake(ctx context.Context, o Options) (*Intake, error) {
	s.Config = s.WithDefaults()
	p := &puller{Store: s, model: Model{Name: "bundle"}, progress: o.Progress}
	if p.progress == nil {
		p.progress = func(Event) {}
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("models: %w: use another folder with --dir or REWARDLOOP_MODELS", err)
	}
	release, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	if p.known, err = s.readManifest(); err != nil {
		release()
		return nil, err
	}
	return &Intake{p, release}, nil
}

// Close releases the store's lock.
func (i *Intake) Close() { i.release() }

// Validate returns an error for a file that would be outside of a store, whose fields are inconsistent, or
// whose checksum differs from that of the catalogue for the same name.
func (g Given) Validate() error {
	if err := validName(g.Name); err != nil {
		return err
	}
	if !plainSum.MatchString(g.SHA256) || g.Size < 0 {
		return fmt.Errorf("%w: %s: sha256 %q, size %d", ErrName, g.Name, g.SHA256, g.Size)
	}
	if g.Source != "" {
		if _, err := ParseSource(g.Source); err != nil {
			return err
		}
	}
	if g.Model != "" && !strings.HasPrefix(g.Name, g.Model+"/") {
		return fmt.Errorf("%w: %s is not a file of the model %q", ErrName, g.Name, g.Model)
	}
	if f, known := catalogued(g.Name); known && f.SHA256 != "" && f.SHA256 != g.SHA256 {
		return checksumError(g.Name, g.SHA256, f.SHA256, "as in the catalogue")
	}
	return nil
}

// catalogued is the file of that name in the catalogue.
func catalogued(name string) (File, bool) {
	for _, m := range Catalogue() {
		if f, ok := m.File(name); ok && f.Name == name {
			return f, true
		}
	}
	return File{}, false
}

// file is what the store notes of it.
func (g Given) file() File {
	f, _ := catalogued(g.Name)
	return File{Role: "model", Name: g.Name, Size: g.Size, SHA256: f.SHA256, Source: g.Source}
}

// Has reports whether a file is in its place with its checksum. Has returns an error if another file, which the
// store has recorded or a person has put there, is in this place: that file is not replaced.
func (i *Intake) Has(ctx context.Context, g Given) (bool, error) {
	if err := g.Validate(); err != nil {
		return false, err
	}
	at := i.p.place(File{Name: g.Name})
	known, recorded := i.p.known.Files[g.Name]
	got, _, err := sumOf(ctx, at)
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err == nil && got == g.SHA256:
		return g.Source == "" || recorded && known.SHA256 == got, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, err // a folder, or not readable: not ours to replace
	case recorded && known.SHA256 != g.SHA256:
		return false, fmt.Errorf("%w: %s is recorded in %s with sha256 %s from %s, but the new file has %s: to use the new file remove the old file and its entry in %s",
			errTaken, g.Name, i.p.Dir, known.SHA256, known.Source, g.SHA256, manifestName)
	case err == nil && g.Source == "":
		return false, fmt.Errorf("%w: %s differs from the new file: remove the old file to use the new file", errTaken, at)
	}
	return false, nil // there is none, or it is damaged
}

// Put writes a file to its place. Put compares content with the size and checksum before the file gets its
// name.
func (i *Intake) Put(ctx context.Context, g Given, content io.Reader) error {
	if err := g.Validate(); err != nil {
		return err
	}
	f := g.file()
	at := i.p.place(f)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	part := at + partSuffix
	if err := i.p.write(ctx, f, content, part); err != nil {
		return err
	}
	got, size, err := sumOf(ctx, part)
	if err == nil && (got != g.SHA256 || size != g.Size) {
		err = checksumError(g.Name, got, g.SHA256, "as in the bundle")
	}
	if err == nil {
		err = settle(part, at)
	}
	if err != nil {
		_ = os.Remove(part) // the next one begins anew
		return err
	}
	if g.Source == "" {
		i.p.tell(f, Pulled, size, size, "")
		return nil
	}
	return i.p.record(f, entry{SHA256: got, Size: size, Model: g.Model, Licence: g.Licence})
}

// Tree returns the files of a folder of the store that was not pulled, such as an export, with their sizes and
// checksums. Hidden files are left out. A file with a name that is not allowed, or with another checksum than
// that recorded at its export, is an error.
func (s Store) Tree(ctx context.Context, name string) (all []Given, err error) {
	known, err := s.readManifest()
	if err != nil {
		return nil, err
	}
	root := filepath.Join(s.Dir, filepath.FromSlash(name))
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != root && d.Name()[0] == '.' {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(s.Dir, path)
		if err != nil {
			return err
		}
		g := Given{Name: filepath.ToSlash(rel)}
		if g.SHA256, g.Size, err = sumOf(ctx, path); err == nil {
			err = validName(g.Name)
		}
		if e, exported := known.Files[g.Name]; err == nil && exported && e.Model != "" {
			if e.SHA256 != g.SHA256 {
				return checksumError(g.Name, g.SHA256, e.SHA256, "as recorded at the export")
			}
			g.Source, g.Model, g.Licence = e.Source, e.Model, e.Licence
		}
		all = append(all, g)
		return err
	})
	return all, err
}
