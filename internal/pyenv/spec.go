package pyenv

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"unicode/utf8"
)

// Spec describes an environment. Specs with equal contents have the same environment, wherever
// their files are.
type Spec struct {
	// Python is a version, "3.11" or "3.11.7", or the path of an interpreter; "": the Python of the
	// Store.
	Python string `json:"python,omitempty"`
	// Requirements is the text of a requirements file for pip, with included files (-r) inserted
	// and paths relative to Dir; "": no packages.
	Requirements string `json:"requirements,omitempty"`
	// SystemSitePackages makes the packages of the Python, such as torch, visible in the
	// environment.
	SystemSitePackages bool `json:"system_site_packages,omitempty"`
	// Dir is the folder for relative paths in Requirements; "": the working directory.
	Dir string `json:"-"`
	// File is the file from which Requirements was read; "": Requirements was given as lines.
	File string `json:"-"`
}

const (
	// maxRequirements bounds a requirements file with all that it includes, in bytes.
	maxRequirements = 1 << 20
	// maxIncluded bounds how deep requirements files include each other.
	maxIncluded = 8
)

// ReadFile reads the requirements from a file, including the files that it includes. The error
// wraps ErrSpec.
func (s *Spec) ReadFile(path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrSpec, path, err)
	}
	s.File, s.Dir = abs, filepath.Dir(abs)
	s.Requirements, err = readRequirements(s.Dir, filepath.Base(abs), 0)
	return err
}

// readRequirements returns the lines of a file below dir with those of the files that it
// includes, their relative paths made to start at dir.
func readRequirements(dir, name string, depth int) (string, error) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, name)
	}
	if depth > maxIncluded {
		return "", fmt.Errorf("%w: %s: requirements files include each other more than %d deep", ErrSpec, path, maxIncluded)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: the requirements %s cannot be read: %w", ErrSpec, path, errors.Unwrap(err))
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%w: the requirements %s are not a file", ErrSpec, path)
	case info.Size() > maxRequirements:
		return "", fmt.Errorf("%w: the requirements %s have %d bytes, the limit is %d", ErrSpec, path, info.Size(), maxRequirements)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%w: the requirements %s cannot be read: %w", ErrSpec, path, err)
	}
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return "", fmt.Errorf("%w: the requirements %s are not a text file", ErrSpec, path)
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		option, ref := fileOption(line)
		if ref != "" && !filepath.IsAbs(ref) && !strings.Contains(ref, "://") {
			ref = filepath.Join(filepath.Dir(name), ref)
		}
		switch option {
		case "-r":
			included, err := readRequirements(dir, ref, depth+1)
			if err != nil {
				return "", err
			}
			line = strings.TrimRight(included, "\n")
		case "-c", "--find-links":
			line = option + " " + ref
		}
		b.WriteString(line + "\n")
		if b.Len() > maxRequirements {
			return "", fmt.Errorf("%w: the requirements %s have more than %d bytes with the files that they include", ErrSpec, path, maxRequirements)
		}
	}
	return b.String(), nil
}

// fileOption tells a line that names a file or folder: its option in one spelling, and the name.
func fileOption(line string) (option, ref string) {
	m := regexp.MustCompile(`^\s*(-r|--requirement|-c|--constraint|-f|--find-links)(?:\s+|=)\s*(\S+)`).FindStringSubmatch(line)
	if m == nil {
		return "", ""
	}
	return map[string]string{"-r": "-r", "--requirement": "-r", "-c": "-c", "--constraint": "-c", "-f": "--find-links", "--find-links": "--find-links"}[m[1]], m[2]
}

// Validate returns an error that wraps ErrSpec if the Spec is invalid.
func (s Spec) Validate() error {
	var errs []error
	if p := s.Python; p != "" && !strings.Contains(p, "/") && !regexp.MustCompile(`^3\.\d{1,2}(\.\d{1,2})?$`).MatchString(p) {
		errs = append(errs, fmt.Errorf("%w: python %q: want a version such as \"3.11\", or the path of an interpreter", ErrSpec, p))
	}
	for line := range strings.Lines(s.Requirements) {
		line = strings.TrimSpace(line)
		option, ref := fileOption(line)
		switch {
		case strings.HasPrefix(line, "-e ") || strings.HasPrefix(line, "--editable"):
			errs = append(errs, fmt.Errorf("%w: %q: an editable folder has no hash; build a wheel and name the wheel", ErrSpec, line))
		case strings.Contains(line, "git+"):
			errs = append(errs, fmt.Errorf("%w: %q: a repository has no hash; name an archive of the commit, such as NAME @ https://HOST/OWNER/REPOSITORY/archive/COMMIT.zip", ErrSpec, withoutUser(line)))
		case option == "-c" && s.constraints(ref) == "":
			errs = append(errs, fmt.Errorf("%w: %q: the file cannot be read", ErrSpec, line))
		}
	}
	return errors.Join(errs...)
}

// Equal reports whether two Specs have the same environment.
func (s Spec) Equal(other Spec) bool { return s.digest() == other.digest() }

// packages reports whether there is anything to install.
func (s Spec) packages() bool {
	for line := range strings.Lines(s.Requirements) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "-") {
			return true
		}
	}
	return false
}

// local reports whether no index is asked: --no-index, and no links to other machines.
func (s Spec) local() bool {
	none := false
	for line := range strings.Lines(s.Requirements) {
		line = strings.TrimSpace(line)
		none = none || line == "--no-index"
		if strings.Contains(line, "://") && !strings.Contains(line, "file://") {
			return false
		}
	}
	return none
}

// constraints is the SHA-256 of a file of constraints; "": it cannot be read.
func (s Spec) constraints(ref string) string {
	if !filepath.IsAbs(ref) {
		ref = filepath.Join(s.Dir, ref)
	}
	text, err := os.ReadFile(ref)
	if err != nil {
		return ""
	}
	return short(text, sha256.Size)
}

// digest stands for what is asked for: requirements, constraints, Python and platform. The
// environment that it was made into is noted under it.
func (s Spec) digest() string {
	key := []any{runtime.GOOS, runtime.GOARCH, s}
	for line := range strings.Lines(s.Requirements) {
		if option, ref := fileOption(line); option == "-c" {
			key = append(key, s.constraints(ref))
		}
	}
	text, err := json.Marshal(key)
	if err != nil {
		panic("pyenv: texts that JSON cannot hold: " + err.Error()) // they are strings
	}
	return short(text, 10)
}

// short is the first n bytes of the SHA-256 of a text, in hex.
func short(text []byte, n int) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:n])
}

// withoutUser is a line without names and passwords in its addresses.
func withoutUser(line string) string {
	return regexp.MustCompile(`\S+://\S+`).ReplaceAllStringFunc(line, func(address string) string {
		u, err := url.Parse(address)
		if err != nil {
			return "***"
		}
		if u.User == nil {
			return address
		}
		u.User = nil
		return u.String()
	})
}
