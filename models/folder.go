package models

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// descriptions are the files by which a folder is known to be a model's.
func descriptions() []string { return []string{"scorer.json", "judge.json", "config.json"} }

// Folder returns the absolute path of the folder that contains a complete model: the folder with
// the model's name in the store. The error contains what is missing and the command that downloads
// or exports it. The error wraps ErrMissing if a file is missing, and ErrUnknown for a model
// without its own folder; a file of another size and a missing export are errors as well. Folder
// does not read the contents; Verify does.
func (s Store) Folder(m Model) (string, error) {
	if err := m.Validate(); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(filepath.Join(s.Dir, filepath.FromSlash(m.Name)))
	if err != nil {
		return "", fmt.Errorf("model %s: %w", m.Name, err)
	}
	if m.Export != "" {
		if !described(dir) {
			return "", fmt.Errorf("model %s %w: no export in %s: run `%s`", m.Name, errExport, dir, m.Export)
		}
		return dir, nil
	}
	for _, f := range m.Files {
		if !strings.HasPrefix(f.Name, m.Name+"/") {
			return "", fmt.Errorf("%w: %s is not a folder but single files, such as %s", ErrUnknown, m.Name, f.Name)
		}
	}
	if err := s.missing(m); err != nil {
		return "", fmt.Errorf("model %s is not complete in %s: run `rewardloop models pull %s`: %w", m.Name, s.Dir, m.Name, err)
	}
	return dir, nil
}

// described is true for a folder with one of the files that describe a model.
func described(dir string) bool {
	return slices.ContainsFunc(descriptions(), func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Mode().IsRegular()
	})
}

// Resolve returns the absolute path of a model folder. name is a model of the catalogue; else the
// path of a folder, if the path is absolute, contains a slash or begins with a dot; else a folder
// in the store that was copied there by hand. If there is no folder at the path owner/name or
// owner/name@revision, name is the folder with that name in the store, else the files of that
// repository in the hub's cache; nothing is downloaded. The errors are those of Folder, ErrMissing
// for a path that is not a folder, and ErrUnknown with a list of the available names.
func (s Store) Resolve(name string) (string, error) {
	if m, err := Find(name); err == nil {
		return s.Folder(m)
	}
	if filepath.IsAbs(name) || strings.HasPrefix(name, ".") || strings.ContainsAny(name, `/`+string(filepath.Separator)) {
		dir, err := folder(name)
		if err != nil && hubName.MatchString(name) {
			if here := filepath.Join(s.Dir, name); described(here) { // pulled as a repository
				return folder(here)
			}
			return s.ofHub(name, err)
		}
		return dir, err
	}
	if validName(name) == nil {
		if dir, err := folder(filepath.Join(s.Dir, name)); err == nil {
			return dir, nil
		}
	}
	names := []string{}
	for _, m := range Catalogue() {
		names = append(names, m.Name)
	}
	own := s.own()
	if len(own) == 0 {
		own = []string{"none"}
	}
	return "", fmt.Errorf("%w %q: the catalogue has %s; %s has further folders: %s; or name a folder by its path (./folder)",
		ErrUnknown, name, strings.Join(names, ", "), s.Dir, strings.Join(own, ", "))
}

// hubName is owner/name of a repository, and a revision.
var hubName = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)(?:@([A-Za-z0-9][A-Za-z0-9._/-]*))?$`)

// ofHub returns the folder of a repository in the hub's cache; noFolder is why the
// name is no folder's.
func (s Store) ofHub(name string, noFolder error) (string, error) {
	m := hubName.FindStringSubmatch(name)
	repository, revision := m[1], cmp.Or(m[2], "main")
	at, err := s.Hub.Snapshot(repository, revision)
	if err != nil {
		return "", fmt.Errorf("%w; the name is not a repository with its files on this machine either: %w: run `hf download %s --revision %s`",
			noFolder, err, repository, revision)
	}
	return folder(at)
}

// folder returns the absolute path of a folder that exists.
func folder(at string) (string, error) {
	abs, err := filepath.Abs(at)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrMissing, at, err)
	}
	info, err := os.Stat(abs)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: model folder %s: %w", ErrMissing, at, errors.Unwrap(err))
	case !info.IsDir():
		return "", fmt.Errorf("%w: %s is not a folder: name the folder with the model's files", ErrMissing, at)
	}
	return abs, nil
}

// own returns the store's folders that look like models and are not the catalogue's.
func (s Store) own() []string {
	found, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range found {
		if _, err := Find(e.Name()); err != nil && validName(e.Name()) == nil && described(filepath.Join(s.Dir, e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names
}
