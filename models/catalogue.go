package models

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Model is a model that a reward runs, in one or more files.
type Model struct {
	// Name is the name in the configuration and for `rewardloop models pull`. Summary is the
	// purpose of the model, in one line.
	Name    string  `json:"name"`
	Summary string  `json:"summary"`
	Files   []File  `json:"files"`
	Licence Licence `json:"licence"`
	// Homepage is the page on which the authors describe the model.
	Homepage string `json:"homepage"`
	// Preprocessing describes the input (layout, range, mean and deviation, sizes) and the output.
	Preprocessing string `json:"preprocessing"`
	// Export is the command that exports the model, if it is not available in ONNX. Such a model
	// has no Files and cannot be pulled. Package models/export has the recipe.
	Export string `json:"export,omitempty"`
}

// Licence is the licence of a model.
type Licence struct {
	SPDX   string `json:"spdx"`   // identifier, or LicenseRef-<name>
	Holder string `json:"holder"` // holder of the copyright
	URL    string `json:"url"`    // address of the text
	// NonCommercial licences, and others that need agreement, are pulled only with
	// Options.AcceptLicence.
	NonCommercial bool `json:"non_commercial"`
}

// File is one file of a model. If models share a file, only its Role may differ between them.
type File struct {
	// Role is the role of the file in its model: det, rec, cls, model, tokenizer, sidecar.
	Role string `json:"role"`
	// Name is the path below the store's folder, with slashes. ONNX files refer to their external
	// data relative to their own folder.
	Name string `json:"name"`
	// Size is in bytes. 0: unknown before the first pull.
	Size int64 `json:"size"`
	// SHA256 is in lower-case hexadecimal. Empty: recorded at the first pull.
	SHA256 string `json:"sha256,omitempty"`
	// Source is the origin of the file; see ParseSource.
	Source string `json:"source"`
	// Optional means that the source may lack the file and the model works without it. The source
	// is queried for an optional file whenever another file of the model has to be fetched.
	Optional bool `json:"optional,omitempty"`
}

// Catalogue returns every known model, sorted by name. The caller may change the result.
func Catalogue() []Model {
	all := slices.Concat(readers(), preferences(), judges())
	slices.SortFunc(all, func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Find returns the model with a name. The error wraps ErrUnknown and lists all names.
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

// File returns the file with that role, else the file with that name.
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

// Size returns the sum of the known sizes of the files, in bytes.
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

// Validate returns an error that joins everything that is wrong with the model.
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
