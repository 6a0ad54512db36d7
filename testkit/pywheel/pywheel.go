// Package pywheel writes Python wheels for tests, which pip and uv install without a network.
package pywheel

import (
	"archive/zip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Write writes the wheel of a package with one module of its name into dir. The module has a
// __version__, and code behind it. It returns the wheel's path.
func Write(tb testing.TB, dir, name, version, code string, requires ...string) string {
	tb.Helper()
	info := name + "-" + version + ".dist-info/"
	meta := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\nLicense: Apache-2.0\n", name, version)
	for _, r := range requires {
		meta += "Requires-Dist: " + r + "\n"
	}
	files := [][2]string{
		{name + "/__init__.py", fmt.Sprintf("__version__ = %q\n%s", version, code)},
		{info + "METADATA", meta},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: pywheel\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	}
	var record strings.Builder // sums may be left out
	for _, f := range files {
		record.WriteString(f[0] + ",,\n")
	}
	record.WriteString(info + "RECORD,,\n")
	files = append(files, [2]string{info + "RECORD", record.String()})
	path := filepath.Join(dir, fmt.Sprintf("%s-%s-py3-none-any.whl", name, version))
	require.NoError(tb, os.MkdirAll(dir, 0o755))
	out, err := os.Create(path)
	require.NoError(tb, err)
	z := zip.NewWriter(out)
	for _, f := range files {
		w, err := z.Create(f[0])
		require.NoError(tb, err)
		_, err = w.Write([]byte(f[1]))
		require.NoError(tb, err)
	}
	require.NoError(tb, z.Close())
	require.NoError(tb, out.Close())
	return path
}

// Contradictory writes two packages, old and new, that need versions 1 and 2 of a third, dep. The
// lines of requirements that find them begin what it returns.
func Contradictory(tb testing.TB, dir string) (find string) {
	tb.Helper()
	Write(tb, dir, "dep", "1.0", "")
	Write(tb, dir, "dep", "2.0", "")
	Write(tb, dir, "old", "1.0", "", "dep==1.0")
	Write(tb, dir, "new", "1.0", "", "dep==2.0")
	return "--no-index\n--find-links " + dir + "\n"
}
