package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// The errors of a bundle. The text of the error contains the name of the file or the part.
var (
	ErrManifest = errors.New("not a manifest of a bundle")
	ErrMissing  = errors.New("a part is missing")
	ErrDamaged  = errors.New("damaged")
	ErrForeign  = errors.New("a part of another bundle")
	ErrPath     = errors.New("a path outside the folder")
	ErrLink     = errors.New("a link; a bundle contains regular files only")
	ErrBomb     = errors.New("larger than the limit")
)

const (
	// ManifestName is the file name of the manifest.
	ManifestName = "bundle.json"
	// DefaultPart is the default maximum size of a part in bytes; see [Options].
	DefaultPart = 24 << 20
	// MaxPart is the maximum of Options.PartSize in bytes.
	MaxPart = 64 << 30
	// DefaultLimit is the default limit of the total size of the files of a bundle in bytes.
	DefaultLimit = 16 << 30
	// Format is the version of the format that this package writes and reads.
	Format = 1

	maxManifest = 8 << 20
	maxFiles    = 10_000
	maxParts    = 1_000
)

// Manifest describes the contents of a bundle.
type Manifest struct {
	Format int     `json:"format"`
	Name   string  `json:"name"`
	ID     string  `json:"id"` // SHA-256 of Files, in hexadecimal
	Files  []Entry `json:"files"`
	Parts  []Part  `json:"parts"`
}

// Entry is one file; the entries have the order of the stream.
type Entry struct {
	// Name is the path below the root, with slashes.
	Name string `json:"name"`
	// Mode contains the permission bits as three octal digits.
	Mode   string `json:"mode"`
	Size   int64  `json:"size"` // in bytes
	SHA256 string `json:"sha256"`
}

// Part is one part. Its name is PartName of its index.
type Part struct {
	Size   int64  `json:"size"` // in bytes
	SHA256 string `json:"sha256"`
}

// PartName returns the name of part i, counted from 0.
func (m Manifest) PartName(i int) string { return fmt.Sprintf("%s.%03d", m.Name, i) }

// Bytes returns the total size of all files in bytes.
func (m Manifest) Bytes() (n int64) {
	for _, e := range m.Files {
		n += e.Size
	}
	return n
}

// id is what begins the parts.
func (m Manifest) id() [sha256.Size]byte {
	text, _ := json.Marshal(m.Files) //nolint:errchkjson // of strings and numbers
	return sha256.Sum256(text)
}

// Read reads and checks only the manifest of the bundle in a folder. The error wraps ErrManifest,
// ErrPath, ErrLink or ErrBomb. limit is the maximum total size of all files in bytes; 0:
// DefaultLimit.
func Read(folder string, limit int64) (Manifest, error) {
	file, err := os.Open(filepath.Join(folder, ManifestName))
	if err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	defer file.Close() // only read
	text, err := io.ReadAll(io.LimitReader(file, maxManifest+1))
	if err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	return parse(text, limit)
}

var (
	nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	sumForm  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	modeForm = regexp.MustCompile(`^[0-7]{3}$`)
)

func parse(text []byte, limit int64) (m Manifest, err error) {
	bad := func(format string, args ...any) (Manifest, error) {
		return Manifest{}, fmt.Errorf("%w: %s", ErrManifest, fmt.Sprintf(format, args...))
	}
	if len(text) > maxManifest {
		return bad("%s is larger than %d bytes", ManifestName, maxManifest)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return bad("%s: %v", ManifestName, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad("%s has data after its end", ManifestName)
	}
	switch {
	case m.Format != Format:
		return bad("format %d, this program reads %d", m.Format, Format)
	case !nameForm.MatchString(m.Name):
		return bad("name %q, want small letters, digits, dots, lines, at most 64", m.Name)
	case len(m.Files) < 1 || len(m.Files) > maxFiles:
		return bad("%d files, want 1 to %d", len(m.Files), maxFiles)
	case len(m.Parts) < 1 || len(m.Parts) > maxParts:
		return bad("%d parts, want 1 to %d", len(m.Parts), maxParts)
	}
	for i, p := range m.Parts {
		if p.Size <= int64(headerSize) || p.Size > MaxPart || !sumForm.MatchString(p.SHA256) {
			return bad("part %s has the size %d and the sum %q", m.PartName(i), p.Size, p.SHA256)
		}
	}
	if err := checkFiles(m.Files, limit); err != nil {
		return Manifest{}, err
	}
	if id := m.id(); m.ID != hex.EncodeToString(id[:]) {
		return bad("the id does not match the files: the manifest was changed")
	}
	return m, nil
}

// checkFiles holds a list of files to what may be unpacked.
func checkFiles(files []Entry, limit int64) error {
	if limit == 0 {
		limit = DefaultLimit
	}
	taken := map[string]bool{} // true: a file, false: a folder
	var sum int64
	for _, e := range files {
		if e.Name == "." || !fs.ValidPath(e.Name) || !filepath.IsLocal(filepath.FromSlash(e.Name)) || strings.ContainsAny(e.Name, "\x00\\") {
			return fmt.Errorf("%w: %q", ErrPath, e.Name)
		}
		if err := checkMode(e); err != nil {
			return err
		}
		if !sumForm.MatchString(e.SHA256) {
			return fmt.Errorf("%w: file %q has the sum %q", ErrManifest, e.Name, e.SHA256)
		}
		if e.Size < 0 || e.Size > limit-sum {
			return fmt.Errorf("%w: with %q of %d bytes the files have more than %d bytes", ErrBomb, e.Name, e.Size, limit)
		}
		sum += e.Size
		if _, there := taken[e.Name]; there {
			return fmt.Errorf("%w: %q is listed twice, or as a file and as a folder", ErrManifest, e.Name)
		}
		taken[e.Name] = true
		for at := strings.LastIndexByte(e.Name, '/'); at >= 0; at = strings.LastIndexByte(e.Name[:at], '/') {
			if taken[e.Name[:at]] {
				return fmt.Errorf("%w: %q is listed as a file and as a folder", ErrManifest, e.Name[:at])
			}
			taken[e.Name[:at]] = false
		}
	}
	return nil
}

// checkMode accepts permission bits alone.
func checkMode(e Entry) error {
	if modeForm.MatchString(e.Mode) {
		return nil
	}
	const kinds, link = 0o170000, 0o120000 // of stat(2)
	if n, err := strconv.ParseUint(e.Mode, 8, 32); err == nil && n&kinds == link {
		return fmt.Errorf("%w: %q", ErrLink, e.Name)
	}
	return fmt.Errorf("%w: file %q has the mode %q, want three octal digits", ErrManifest, e.Name, e.Mode)
}

// perm is the mode of a file that was checked.
func (e Entry) perm() fs.FileMode {
	n, _ := strconv.ParseUint(e.Mode, 8, 9)
	return fs.FileMode(n)
}
