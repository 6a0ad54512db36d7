package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// exportPrefix begins what an export leaves in a manifest as the source of its files.
const exportPrefix = "export://"

// errHere: a model of that name is in the store, and is not to be replaced.
var errHere = errors.New("exists already")

// Exporting is a folder of the store for the output of an export, and a lock on the model's name.
// Adopt turns the folder into the model; otherwise Close removes it.
type Exporting struct {
	Dir  string // empty at first
	Lock *os.File

	release func() // of the lock
	store   Store
	name    string
}

// ExportName returns an error for a name that an export must not have: a name with characters that
// are not allowed, or the name of a model of the catalogue that is pulled.
func ExportName(name string) error {
	if err := validName(name); err != nil {
		return err
	}
	if strings.Contains(name, "/") {
		return fmt.Errorf("%w: %q: want a name without slashes", ErrName, name)
	}
	if m, err := Find(name); err == nil && m.Export == "" {
		return fmt.Errorf("%w: %s is a model of the catalogue, which `rewardloop models pull %s` downloads: give another name", errTaken, name, name)
	}
	return nil
}

// BeginExport creates the folder of an export, and removes the remains of a killed export of the
// same name. BeginExport returns an error if another process is exporting the same name.
func (s Store) BeginExport(name string) (*Exporting, error) {
	if err := ExportName(name); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("models: %w: use another folder with --dir or REWARDLOOP_MODELS", err)
	}
	abs, err := filepath.Abs(s.Dir)
	if err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	s.Dir = abs
	x := &Exporting{Dir: filepath.Join(abs, ".export-"+name), store: s, name: name}
	if x.Lock, x.release, err = tryLockFile(x.Dir + ".lock"); err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	if x.Lock == nil {
		return nil, fmt.Errorf("model %s: another process exports the model into %s: wait for the end of that process", name, s.Dir)
	}
	err = os.RemoveAll(x.Dir)
	if err == nil {
		err = os.Mkdir(x.Dir, 0o755)
	}
	if err != nil {
		x.Close()
		return nil, fmt.Errorf("models: %w", err)
	}
	return x, nil
}

// Close removes the folder if Adopt has not taken it, and releases the lock on the name.
func (x *Exporting) Close() {
	_ = os.RemoveAll(x.Dir) // the next export tries again
	x.release()
}

// Adopt renames the folder to the model's name in one step. Adopt records in the manifest the
// checksums of the files, the weights of which the model was made, and their licence. An existing
// model is replaced if again is true; otherwise Adopt returns an error.
func (x *Exporting) Adopt(ctx context.Context, weights, licence string, again bool) (Model, error) {
	files, err := x.files(ctx)
	if err != nil {
		return Model{}, fmt.Errorf("model %s: %w", x.name, err)
	}
	p := &puller{Store: x.store, model: Model{Name: x.name}, progress: func(Event) {}}
	release, err := p.lock(ctx)
	if err != nil {
		return Model{}, err
	}
	defer release()
	known, err := x.store.readManifest()
	if err != nil {
		return Model{}, err
	}
	to := filepath.Join(x.store.Dir, x.name)
	_, err = os.Lstat(to)
	there := err == nil
	if there && !again {
		return Model{}, fmt.Errorf("model %s: %w: %s", x.name, errHere, to)
	}
	// Who is killed between here and the end leaves a whole model without sums.
	maps.DeleteFunc(known.Files, func(name string, _ entry) bool { return strings.HasPrefix(name, x.name+"/") })
	if there {
		if err := x.replace(known, to); err != nil {
			return Model{}, fmt.Errorf("model %s: %w", x.name, err)
		}
	} else if err := os.Rename(x.Dir, to); err != nil {
		return Model{}, fmt.Errorf("model %s: %w", x.name, err)
	}
	for name, e := range files {
		e.Source, e.Model, e.Licence = exportPrefix+weights, x.name, licence
		known.Files[name] = e
	}
	if err := x.store.writeManifest(known); err != nil {
		return Model{}, fmt.Errorf("model %s is in %s, but its checksums cannot be written: %w", x.name, to, err)
	}
	return exported(x.name, known), nil
}

// replace puts the new folder in place of the old one.
func (x *Exporting) replace(known *manifest, to string) error {
	if err := x.store.writeManifest(known); err != nil {
		return err
	}
	old := filepath.Join(x.store.Dir, ".replaced-"+x.name)
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(to, old); err != nil {
		return err
	}
	if err := os.Rename(x.Dir, to); err != nil {
		return errors.Join(err, os.Rename(old, to))
	}
	_ = os.RemoveAll(old) // the next one tries again
	return nil
}

// files are the entries of the folder's files; each is on the disk for good.
func (x *Exporting) files(ctx context.Context) (map[string]entry, error) {
	all := map[string]entry{}
	err := filepath.WalkDir(x.Dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(x.Dir, at)
		if err != nil {
			return err
		}
		name := path.Join(x.name, filepath.ToSlash(rel))
		if err := validName(name); err != nil {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%w: the export wrote %s, which is not a regular file", ErrName, name)
		}
		if err := settle(at, at); err != nil {
			return err
		}
		got, size, err := sumOf(ctx, at)
		all[name] = entry{SHA256: got, Size: size, Recorded: true, Pulled: time.Now().UTC().Truncate(time.Second)}
		return err
	})
	return all, err
}

// Exported returns the models for which an export has recorded checksums, sorted by name, with
// their files. The error is an unreadable manifest.
func (s Store) Exported() ([]Model, error) {
	known, err := s.readManifest()
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, e := range known.Files {
		if e.Model != "" {
			names[e.Model] = true
		}
	}
	var all []Model
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = append(all, exported(name, known))
	}
	return all, nil
}

// exported is the model of a name with the files that the manifest has of it, and what
// the catalogue says of it.
func exported(name string, known *manifest) Model {
	m, err := Find(name)
	if err != nil {
		m = Model{Name: name}
	}
	m.Export, m.Files = "", nil
	for _, at := range slices.Sorted(maps.Keys(known.Files)) {
		e := known.Files[at]
		if e.Model != name {
			continue
		}
		m.Files = append(m.Files, File{Role: strings.TrimPrefix(at, name+"/"), Name: at, Size: e.Size, Source: e.Source})
		m.Summary = cmp.Or(m.Summary, "exported here from "+strings.TrimPrefix(e.Source, exportPrefix))
		m.Licence.SPDX = cmp.Or(m.Licence.SPDX, e.Licence, UnknownLicence)
	}
	return m
}

// Remedy returns a sentence with the command that makes a model complete again.
func (m Model) Remedy() string {
	if len(m.Files) > 0 && strings.HasPrefix(m.Files[0].Source, exportPrefix) {
		return "`rewardloop models export` with --again exports it again"
	}
	return fmt.Sprintf("`rewardloop models pull %s` downloads it", m.Name)
}
