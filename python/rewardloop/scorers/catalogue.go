// Package scorers is the catalogue of reward models of the field that a configuration names by
// scorer://NAME: for each a folder with what is known of it (scorer.yaml), the packages of its
// Python environment (requirements.txt), and the class that calls it (adapter.py). The folders are
// in the program and in the package for Python alike.
//
// Nothing is run or fetched here: package config makes of an entry what it makes of any model in
// Python with an environment of its own.
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

// Scheme begins a path that names an entry of the catalogue.
const Scheme = "scorer://"

// Class is the class of every adapter.
const Class = "Scorer"

// What a sample must have for an entry: the words of Entry.Inputs.
const (
	Image  = "image"
	Source = "source image" // a second picture, from which the first was edited
	Video  = "video"
	Audio  = "audio"
	Prompt = "prompt"
)

// Entry is a reward model of the catalogue.
type Entry struct {
	Name string `json:"name" yaml:"-"`
	// Summary says in a line what it scores.
	Summary string `json:"summary" yaml:"summary"`
	// Inputs are what it needs of a sample.
	Inputs []string `json:"inputs" yaml:"inputs"`
	// Range is that of its score, in words.
	Range string `json:"range" yaml:"range"`
	// Columns are what it returns besides the score; all are numbers.
	Columns []Column `json:"columns" yaml:"columns"`
	// Source is the address of the code that defines the score.
	Source string `json:"source" yaml:"source"`
	// Pixels is the form in which the adapter gets pictures, of python.PixelForms.
	Pixels string `json:"pixels" yaml:"pixels"`
	// Options are the keys of an entry that the adapter takes.
	Options []Option `json:"options" yaml:"options"`
	// Code is the licence of the package, Weights are what is downloaded, with theirs.
	Code    Licence  `json:"code" yaml:"code"`
	Weights []Weight `json:"weights" yaml:"weights"`
	// Accept is the licence that accept_license must name; "": none.
	Accept string `json:"accept_license" yaml:"accept_license"`
	// Python says for which versions the requirements have wheels.
	Python string `json:"python" yaml:"python"`
	// ByHand are the commands that make its environment where `rewardloop env make` cannot; none: it can.
	ByHand []string `json:"by_hand" yaml:"by_hand"`
	// Built are the packages without a wheel, which env make builds with --allow-source.
	Built []string `json:"built" yaml:"built"`
	// Notes are what bites: limits of the package, and what the adapter does about them.
	Notes []string `json:"notes" yaml:"notes"`
	// Tested says how the adapter was held against the package.
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

// Option is a key of an entry that its adapter takes.
type Option struct {
	Name    string `json:"name" yaml:"name"`
	Type    string `json:"type" yaml:"type"`
	Default string `json:"default" yaml:"default"`
	Doc     string `json:"doc" yaml:"doc"`
}

// Licence is a licence by its SPDX name, and where it stands.
type Licence struct {
	Name string `json:"licence" yaml:"licence"`
	URL  string `json:"url" yaml:"url"`
}

// Weight is a file or repository that an entry downloads when its model is loaded for the first time.
type Weight struct {
	// Name is a repository of Hugging Face's hub, or an address.
	Name string `json:"name" yaml:"name"`
	// Option is the key of an entry that names others in its place; "": none.
	Option string `json:"option" yaml:"option"`
	// Bytes is about how much there is to download.
	Bytes   int64 `json:"bytes" yaml:"bytes"`
	Licence `yaml:",inline"`
}

// Path names the entry in a configuration.
func (e *Entry) Path() string { return Scheme + e.Name }

// Needs reports whether an entry needs that of a sample.
func (e *Entry) Needs(input string) bool { return slices.Contains(e.Inputs, input) }

// Flags are those that `rewardloop env make` needs for the entry, behind a space; "": none.
func (e *Entry) Flags() string {
	if len(e.Built) > 0 {
		return " --allow-source"
	}
	return ""
}

// Bytes is about what all weights together are.
func (e *Entry) Bytes() (total int64) {
	for _, w := range e.Weights {
		total += w.Bytes
	}
	return total
}

// Find returns an entry by its name; nil: there is none.
func Find(name string) *Entry {
	for _, e := range All() {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// Names are those of all entries, sorted.
func Names() []string {
	all := All()
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = e.Name
	}
	return names
}

// All returns every entry, by name. The entries are shared: nobody changes them.
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
