// Package pywheel writes Python wheels for tests, which pip and uv install without a network.
package pywheel

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Write writes the wheel of a package with one module of the same name into dir. The module has a
// __version__, followed by code. Write returns the path of the wheel.
func Write(dir, name, version, code string, requires ...string) (string, error) {
	info := name + "-" + version + ".dist-info/"
	var meta strings.Builder
	fmt.Fprintf(&meta, "Metadata-Version: 2.1\nName: %s\nVersion: %s\nLicense: Apache-2.0\n", name, version)
	for _, r := range requires {
		meta.WriteString("Requires-Dist: " + r + "\n")
	}
	files := [][2]string{
		{name + "/__init__.py", fmt.Sprintf("__version__ = %q\n%s", version, code)},
		{info + "METADATA", meta.String()},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: pywheel\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	}
	var record strings.Builder // sums may be left out
	for _, f := range files {
		record.WriteString(f[0] + ",,\n")
	}
	record.WriteString(info + "RECORD,,\n")
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range append(files, [2]string{info + "RECORD", record.String()}) {
		w, err := z.Create(f[0])
		if err != nil {
			return "", err
		}
		if _, err := w.Write([]byte(f[1])); err != nil {
			return "", err
		}
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%s-py3-none-any.whl", name, version))
	if err := errors.Join(z.Close(), os.MkdirAll(dir, 0o755)); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, b.Bytes(), 0o600)
}

// Contradictory writes two packages, old and new, that need versions 1.0 and 2.0 of a third
// package, dep. It returns the beginning of a requirements file that finds these packages.
func Contradictory(dir string) (find string, err error) {
	for _, p := range [][]string{{"dep", "1.0"}, {"dep", "2.0"}, {"old", "1.0", "dep==1.0"}, {"new", "1.0", "dep==2.0"}} {
		if _, err := Write(dir, p[0], p[1], "", p[2:]...); err != nil {
			return "", err
		}
	}
	return "--no-index\n--find-links " + dir + "\n", nil
}
