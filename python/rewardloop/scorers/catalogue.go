// Package scorers is the catalogue of published reward models, which a configuration selects with
// scorer://NAME. Each entry is a folder with a description (scorer.yaml), the packages of its
// Python environment (requirements.txt), and the class that calls the model (adapter.py). The
// folders are included in the program and in the Python package.
//
// The package does not run or download anything: package config treats an entry like any model in
// Python with its own environment.
package scorers

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed */scorer.yaml */requirements.txt */adapter.py
var folders embed.FS

// Scheme is the beginning of a path that selects an entry of the catalogue.
const Scheme = "scorer://"

// Class is the name of the class of every adapter.
const Class = "Scorer"

// The inputs that an entry may need of a sample: the values of Entry.Inputs.
const (
	Image  = "image"
	Source = "source image" // a second picture, the source of an edited picture
	Video  = "video"
	Audio  = "audio"
	Prompt = "prompt"
)

// Entry is a reward model of the catalogue.
type Entry struct {
	Name string `json:"name" yaml:"-"`
	// Summary describes in one line what the model scores.
	Summary string `json:"summary" yaml:"summary"`
	// Inputs are the inputs that the model needs of a sample.
	Inputs []string `json:"inputs" yaml:"inputs"`
	// Range describes the range of the score.
	Range string `json:"range" yaml:"range"`
	// Columns are the values that the model returns besides the score; all are numbers.
	Columns []Column `json:"columns" yaml:"columns"`
	// Source is the address of the code that defines the score.
	Source string `json:"source" yaml:"source"`
	// Pixels is the form in which the adapter gets pictures, one of python.PixelForms.
	Pixels string `json:"pixels" yaml:"pixels"`
	// Options are the keys of an entry in the configuration that the adapter accepts.
	Options []Option `json:"options" yaml:"options"`
	// Code is the licence of the package, and Weights are the downloads with their licences.
	Code    Licence  `json:"code" yaml:"code"`
	Weights []Weight `json:"weights" yaml:"weights"`
	// Accept is the licence that accept_license must contain; "": none.
	Accept string `json:"accept_license" yaml:"accept_license"`
	// Python describes the Python versions for which the requirements have wheels.
	Python string `json:"python" yaml:"python"`
	// ByHand are the commands that make the environment if `rewardloop env make` cannot make it.
	ByHand []string `json:"by_hand" yaml:"by_hand"`
	// Built are the packages without a wheel, which env make builds with --allow-source.
	Built []string `json:"built" yaml:"built"`
	// Notes describe limits of the package and how the adapter handles them.
	Notes []string `json:"notes" yaml:"notes"`
	// Tested describes how the adapter was compared with the package.
	Tested string `json:"tested" yaml:"tested"`

	// Requirements and Adapter are the texts of the two other files.
	Requirements string `json:"requirements" yaml:"-"`
	Adapter      string `json:"-" yaml:"-"`
}

// Column is a number that an entry returns besides its score.
type Column struct {
	Name string `json:"name" yaml:"name"`
	Doc  string `json:"doc" yaml:"doc"`
}

// Option is a key of an entry that its adapter accepts.
type Option struct {
	Name    string `json:"name" yaml:"name"`
	Type    string `json:"type" yaml:"type"`
	Default string `json:"default" yaml:"default"`
	Doc     string `json:"doc" yaml:"doc"`
}

// Licence is a licence by its SPDX name, and the address of its text.
type Licence struct {
	Name string `json:"licence" yaml:"licence"`
	URL  string `json:"url" yaml:"url"`
}

// Weight is a file or repository that is downloaded when the model of an entry is loaded for the
// first time.
type Weight struct {
	// Name is a repository of Hugging Face's hub, or an address.
	Name string `json:"name" yaml:"name"`
	// Option is the key of an entry that selects another file or repository; "": none.
	Option string `json:"option" yaml:"option"`
	// Bytes is the approximate size of the download in bytes.
	Bytes   int64 `json:"bytes" yaml:"bytes"`
	Licence `yaml:",inline"`
}

// Path returns the path of the entry in a configuration.
func (e *Entry) Path() string { return Scheme + e.Name }

// Needs reports whether the entry needs that input of a sample.
func (e *Entry) Needs(input string) bool { return slices.Contains(e.Inputs, input) }

// Flags returns the flags of `rewardloop env make` for the entry, with a leading space, or "" if
// there are none.
func (e *Entry) Flags() string {
	if len(e.Built) > 0 {
		return " --allow-source"
	}
	return ""
}

// Bytes returns the approximate total size of the weights in bytes.
func (e *Entry) Bytes() (total int64) {
	for _, w := range e.Weights {
		total += w.Bytes
	}
	return total
}

// Find returns the entry with that name, or nil.
func Find(name string) *Entry {
	for _, e := range All() {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// Names returns the names of all entries, sorted.
func Names() []string {
	all := All()
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = e.Name
	}
	return names
}

// All returns all entries, sorted by name. The entries are shared and must not be modified.
func All() []*Entry { return all() }

//nolint:gochecknoglobals // what is embedded is read once
var all = sync.OnceValue(func() []*Entry {
	entries, err := read(folders)
	if err != nil {
		panic(err) // unreachable: a test reads the same files
	}
	return entries
})

// read returns the entries of a folder of folders.
func read(files fs.FS) ([]*Entry, error) {
	found, err := fs.Glob(files, "*/scorer.yaml")
	if err != nil {
		return nil, err
	}
	entries := make([]*Entry, 0, len(found))
	for _, path := range found {
		e, err := readEntry(files, strings.TrimSuffix(path, "/scorer.yaml"))
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func readEntry(files fs.FS, name string) (*Entry, error) {
	e := &Entry{Name: name}
	texts := map[string]*string{"requirements.txt": &e.Requirements, "adapter.py": &e.Adapter, "scorer.yaml": new(string)}
	for file, into := range texts {
		text, err := fs.ReadFile(files, name+"/"+file)
		if err != nil {
			return nil, fmt.Errorf("scorers: %s has no %s: %w", name, file, err)
		}
		*into = string(text)
	}
	d := yaml.NewDecoder(bytes.NewReader([]byte(*texts["scorer.yaml"])))
	d.KnownFields(true)
	if err := d.Decode(e); err != nil {
		return nil, fmt.Errorf("scorers: %s/scorer.yaml: %w", name, err)
	}
	return e, nil
}
