package models

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// UnknownLicence is the SPDX identifier of a model whose licence is unknown.
const UnknownLicence = "LicenseRef-unknown"

// FromSource returns a Model with one file, with the role "model". text is a source for
// ParseSource, in which hf:// may lack its @revision (the revision is then main), or a path on this
// machine. The file's name in a store, which is also the name of the model, is
// owner/repository/path for hf://, package-version/name for pip://, and the file's own name for a
// path. If the catalogue has a file with this name, the catalogue's checksum applies to every
// source; otherwise the checksum is recorded at the first pull. The error is ErrSource or ErrName.
func FromSource(text string) (Model, error) {
	switch {
	case text == "":
		return Model{}, fmt.Errorf("%w: empty name", ErrSource)
	case strings.HasPrefix(text, "hf://") && !strings.Contains(text, "@"):
		text += "@main"
	case !strings.Contains(text, "://"):
		abs, err := filepath.Abs(text)
		if err != nil {
			return Model{}, fmt.Errorf("%w %q: %w", ErrSource, text, err)
		}
		text = "file://" + abs
	}
	src, err := ParseSource(text)
	if err != nil {
		return Model{}, err
	}
	m := single("", text)
	switch src := src.(type) {
	case fileSource:
		m.Name = filepath.Base(src.Path)
	case HubSource:
		m.Name, m.Homepage = src.Repository+"/"+src.Path, "the page of "+src.Repository
	case embeddedSource, exportSource:
		return Model{}, fmt.Errorf("%w %q: that is a part of a model: name the model", ErrSource, text)
	case WheelSource:
		m.Name = strings.Replace(src.Requirement, "==", "-", 1) + "/" + path.Base(src.Member)
		m.Homepage = "the package " + src.Requirement
	}
	m.Files[0].Name = m.Name
	for _, known := range Catalogue() {
		if f, ok := known.File(m.Name); ok && f.Name == m.Name {
			m.Licence, m.Homepage, m.Preprocessing = known.Licence, known.Homepage, known.Preprocessing
			m.Files[0].SHA256, m.Files[0].Size = f.SHA256, f.Size
		}
	}
	return m, m.Validate()
}

// single is a model of one file of which nothing is known but its source.
func single(name, source string) Model {
	return Model{
		Name: name, Summary: "not in the catalogue", Licence: Licence{SPDX: UnknownLicence},
		Files: []File{{Role: "model", Name: name, Source: source}},
	}
}

// Others returns the files that were pulled into the store and are not in the catalogue, as one
// model for each file, sorted by name. Files of exports are not included; see Exported. The error
// is an unreadable manifest.
func (s Store) Others() ([]Model, error) {
	known, err := s.readManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range Catalogue() {
		for _, f := range m.Files {
			delete(known.Files, f.Name)
		}
	}
	var all []Model
	for _, name := range slices.Sorted(maps.Keys(known.Files)) {
		if known.Files[name].Model != "" {
			continue
		}
		m := single(name, known.Files[name].Source)
		m.Files[0].Size = known.Files[name].Size
		all = append(all, m)
	}
	return all, nil
}
