package models

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Model is something a reward runs, in one or more files.
type Model struct {
	// Name is what the configuration and `rewardloop models pull` call it; Summary says in a line
	// what it is for.
	Name    string  `json:"name"`
	Summary string  `json:"summary"`
	Files   []File  `json:"files"`
	Licence Licence `json:"licence"`
	// Homepage is where the model is described by those who made it.
	Homepage string `json:"homepage"`
	// Preprocessing is what the input must look like: layout, range, mean and
	// deviation, sizes, and what comes out.
	Preprocessing string `json:"preprocessing"`
	// Export is the command that makes the model where nobody offers it in ONNX; such
	// a model has no Files and cannot be pulled. Package models/export knows how.
	Export string `json:"export,omitempty"`
}

// Licence is what a model may be used for.
type Licence struct {
	SPDX   string `json:"spdx"`   // identifier, or LicenseRef-<name>
	Holder string `json:"holder"` // of the copyright
	URL    string `json:"url"`    // the text
	// NonCommercial licences, and others that one has to agree to, are pulled
	// only with Options.AcceptLicence.
	NonCommercial bool `json:"non_commercial"`
}

// File is one file of a model. Models may share one: then everything but Role
// is the same in both.
type File struct {
	// Role is what the file is to its model: det, rec, cls, model, tokenizer, sidecar.
	Role string `json:"role"`
	// Name is where it lies below the store's folder, with slashes. ONNX files
	// with external data name those themselves, relative to their own folder.
	Name string `json:"name"`
	// Size in bytes; 0: not known before the first pull.
	Size int64 `json:"size"`
	// SHA256 in lower-case hex; empty: recorded at the first pull.
	SHA256 string `json:"sha256,omitempty"`
	// Source is where it comes from; see ParseSource.
	Source string `json:"source"`
	// Optional: the source may lack it, and the model does without. It is asked for
	// whenever something else of the model has to be fetched.
	Optional bool `json:"optional,omitempty"`
}

// Catalogue returns every model that is known, in the order of their names.
// The caller may change what it gets.
func Catalogue() []Model {
	all := slices.Concat(readers(), preferences(), judges())
	slices.SortFunc(all, func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Find returns the model of that name; the error, an ErrUnknown, lists the others.
func Find(name string) (Model, error) {
	all := Catalogue()
	names := make([]string, len(all))
	for i, m := range all {
		if m.Name == name {
			return m, nil
		}
		names[i] = m.Name
	}
	return Model{}, fmt.Errorf("%w %q, want one of %s", ErrUnknown, name, strings.Join(names, ", "))
}

// File returns the file with that role, or else with that name.
func (m Model) File(role string) (File, bool) {
	for _, by := range []func(File) bool{
		func(f File) bool { return f.Role == role },
		func(f File) bool { return f.Name == role },
	} {
		if i := slices.IndexFunc(m.Files, by); i >= 0 {
			return m.Files[i], true
		}
	}
	return File{}, false
}

// Size is the sum of the files' sizes in bytes, as far as they are known.
func (m Model) Size() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

var (
	// plainName is one element of a file's name: nothing hidden, no drive, no blank.
	plainName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._+-]{0,127}$`)
	plainSum  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Validate reports everything that is wrong with a model, joined.
func (m Model) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("model %q: "+format, append([]any{m.Name}, args...)...))
	}
	if err := validName(m.Name); err != nil {
		fault("name of the model: %w", err)
	}
	if (len(m.Files) == 0) == (m.Export == "") {
		fault("want either files or a command that exports the model")
	}
	if m.Licence.SPDX == "" {
		fault("no licence")
	}
	for i, f := range m.Files {
		if err := validName(f.Name); err != nil {
			fault("%w", err)
		}
		if f.SHA256 != "" && !plainSum.MatchString(f.SHA256) {
			fault("file %s: %q is not a SHA-256 in lower-case hex", f.Name, f.SHA256)
		}
		if f.Size < 0 {
			fault("file %s: size %d", f.Name, f.Size)
		}
		if _, err := ParseSource(f.Source); err != nil {
			fault("file %s: %w", f.Name, err)
		}
		if slices.ContainsFunc(m.Files[:i], func(g File) bool { return g.Name == f.Name || g.Role == f.Role }) {
			fault("file %s: duplicate name or role %q", f.Name, f.Role)
		}
	}
	return errors.Join(faults...)
}

// validName refuses a name that could leave the folder or hide in it.
func validName(name string) error {
	if path.Clean(name) != name || name == manifestName || strings.HasSuffix(name, partSuffix) || len(name) > 255 {
		return fmt.Errorf("%w: file name %q", ErrName, name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if !plainName.MatchString(part) {
			return fmt.Errorf("%w: file name %q: letters, digits and . _ + - only, folders between slashes", ErrName, name)
		}
	}
	return nil
}
