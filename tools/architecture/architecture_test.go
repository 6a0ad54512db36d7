package architecture_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const module = "github.com/rewardloop/rewardloop"

// testkit holds what tests share. Its line in the picture: it may import lines
// 0 to 4 and its own kind, and only external test packages may import it.
const testkit = "testkit/"

// picture is the drawing in docs/architecture.md, line by line: a package imports
// only packages of the lines above its own. A new package is drawn there before it
// imports anything. "x/*" is every package below x that no line names itself.
type picture struct {
	lines [][]string
	tests []string // the packages that are for tests alone
}

// drawn reads the picture. It stands in the document alone, so that neither the
// document nor a table here can go stale.
func drawn(t *testing.T) picture {
	t.Helper()
	var p picture
	page, err := os.ReadFile(filepath.Join("docs", "architecture.md"))
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Who may import whom\n")
	_, block, _ := strings.Cut(section, "\n```text\n")
	text, _, closed := strings.Cut(block, "```")
	require.True(t, closed, "docs/architecture.md has no picture under \"Who may import whom\"")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "tests only"); ok {
			p.tests = expanded(rest)
			continue
		}
		number, names, _ := strings.Cut(line, " ")
		require.Equal(t, strconv.Itoa(len(p.lines)), number, "the picture's lines are counted from 0: %s", line)
		p.lines = append(p.lines, expanded(names))
	}
	return p
}

// expanded are the names of a line, "a/{b,c}" being a/b and a/c.
func expanded(line string) []string {
	var names []string
	for field := range strings.FieldsSeq(line) {
		head, rest, found := strings.Cut(field, "{")
		inner, tail, closed := strings.Cut(rest, "}")
		if !found || !closed {
			names = append(names, field)
			continue
		}
		for name := range strings.SplitSeq(inner, ",") {
			names = append(names, head+name+tail)
		}
	}
	return names
}

// allowances are the imports that break the rule of the lines, each with its
// reason. One that is no longer needed fails the test.
var allowances = []struct{ from, to, why string }{}

// corner is a dependency that only some packages may have, because it crashes
// processes, or because its types would spread.
type corner struct {
	prefix string   // Import path, or the beginning of one; "C" is cgo.
	only   []string // The packages that may, in the form of layers.
}

var corners = []corner{
	{"C", []string{"pool/ort", "rewards/ocr/tesseract"}},
	{"github.com/yalue/onnxruntime_go", []string{"pool/ort"}},
	{"github.com/otiai10/gosseract", []string{"rewards/ocr/tesseract"}},
	{"github.com/gin-gonic/gin", []string{"server"}},
	{"github.com/gorilla/websocket", []string{"internal/wsconn", "tools/bench"}}, // tools/bench: the bare round trip it calibrates with.
	{"github.com/nats-io", []string{"queue", "queue/*", "tools/deploycheck"}},
	{"github.com/dlclark/regexp2", []string{"internal/hftok"}},
	{"github.com/nikolalohinski/gonja", []string{"rewards/vlm"}},
	{"github.com/NVIDIA/go-nvml", []string{"pool/cards"}},
	{"github.com/parquet-go", []string{"internal/parquetfile"}},
	{"gonum.org/v1/plot", []string{"tools/bench/plot"}},
	{"github.com/stretchr/testify", []string{"testkit/*"}},
	{"go.uber.org/goleak", []string{"testkit/*"}},
}

// listed is what go list says of a package.
type listed struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func (p listed) name() string { return name(p.ImportPath) }

// name is the path below the module, "." for its root, "" for a foreign one.
func name(importPath string) string {
	if importPath == module {
		return "."
	}
	rest, ok := strings.CutPrefix(importPath, module+"/")
	if !ok {
		return ""
	}
	return rest
}

// builds are the ways the project is compiled; imports differ between them.
var builds = []struct {
	name, cgo, tags string
}{
	{"cgo and tesseract", "1", "tesseract"},
	{"cgo", "1", ""},
	{"without cgo", "0", ""},
}

// list are the packages of a module: that of the root, ".", or "tools".
func list(t *testing.T, folder, cgo, tags string) []listed {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts go")
	}
	cmd := exec.CommandContext(t.Context(), "go", "list",
		"-json=ImportPath,Imports,TestImports,XTestImports", "-tags="+tags, "./...")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go list")
	var packages []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
}

// lineOf finds a package in the picture; the line that names it itself wins
// over one with a star.
func (p picture) lineOf(pkg string) (int, bool) {
	line, length := 0, -1
	for i, patterns := range p.lines {
		for _, pattern := range patterns {
			if matches(pattern, pkg) && len(pattern) > length {
				line, length = i, len(pattern)
			}
		}
	}
	return line, length >= 0
}

func matches(pattern, pkg string) bool {
	if parent, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(pkg, parent)
	}
	return pattern == pkg
}

// TestAPackageImportsOnlyLinesAboveIt holds the picture to the code.
func TestAPackageImportsOnlyLinesAboveIt(t *testing.T) {
	t.Parallel()
	pic, used, there := drawn(t), make(map[int]bool), make(map[string]bool)
	for _, build := range builds {
		for _, p := range list(t, ".", build.cgo, build.tags) {
			there[p.name()] = true
			for _, fault := range pic.importFaults(p, used) {
				t.Errorf("%s: %s", build.name, fault)
			}
		}
	}
	for _, pattern := range slices.Concat(append(pic.lines, pic.tests)...) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(there)), func(pkg string) bool { return matches(pattern, pkg) }) {
			t.Errorf("docs/architecture.md draws %s, which is no package", pattern)
		}
	}
	for i, a := range allowances {
		if !used[i] {
			t.Errorf("%s no longer imports %s: remove the allowance", a.from, a.to)
		}
	}
}

func (pic picture) importFaults(p listed, used map[int]bool) []string {
	pkg := p.name()
	inTestkit := strings.HasPrefix(pkg, testkit)
	line, known := pic.lineOf(pkg)
	switch {
	case inTestkit && !slices.Contains(pic.tests, pkg):
		return []string{pkg + " is not drawn in docs/architecture.md: add it to the line of what is for tests only"}
	case inTestkit:
		line = 5 // What lies above is lines 0 to 4.
	case !known:
		return []string{pkg + " is in no line of the picture: draw it in docs/architecture.md"}
	}
	var faults []string
	for _, path := range p.Imports {
		to := name(path)
		if to == "" || allowed(pkg, to, used) || inTestkit && strings.HasPrefix(to, testkit) {
			continue
		}
		if strings.HasPrefix(to, testkit) {
			faults = append(faults, fmt.Sprintf("%s imports %s, which is for external test packages only", pkg, to))
			continue
		}
		if toLine, ok := pic.lineOf(to); !ok || toLine >= line {
			faults = append(faults, fmt.Sprintf(
				"%s (line %d) imports %s (line %d): only lines above may be imported; declare the interface you need, or move the type down",
				pkg, line, to, toLine))
		}
	}
	for _, path := range p.TestImports {
		if to := name(path); strings.HasPrefix(to, testkit) && !inTestkit {
			faults = append(faults, fmt.Sprintf("a test inside package %s imports %s: make it an external test package", pkg, to))
		}
	}
	return faults
}

func allowed(from, to string, used map[int]bool) bool {
	for i, a := range allowances {
		if a.from == from && a.to == to {
			used[i] = true
			return true
		}
	}
	return false
}

func TestForeignModulesStayInTheirCorners(t *testing.T) {
	t.Parallel()
	for _, build := range builds {
		for _, p := range append(list(t, ".", build.cgo, build.tags), list(t, "tools", build.cgo, build.tags)...) {
			for _, path := range p.Imports {
				for _, c := range corners {
					inside := slices.ContainsFunc(c.only, func(pattern string) bool { return matches(pattern, p.name()) })
					if within(path, c.prefix) && !inside {
						t.Errorf("%s: %s imports %q, which only %v may", build.name, p.name(), path, c.only)
					}
				}
			}
		}
	}
}

func within(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

func TestRewardsNeedsOnlyTheStandardLibrary(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, ".", "1", "tesseract") {
		if p.name() != "rewards" {
			continue
		}
		for _, path := range p.Imports {
			first, _, _ := strings.Cut(path, "/")
			assert.NotContains(t, first, ".", "rewards imports %s", path)
		}
	}
}

// TestInternalPackagesAreNearTheTop: they import lines 0 and 1, and so are on lines 0 to 2. What is
// made of more than that is a package that a reader of the root sees.
func TestInternalPackagesAreNearTheTop(t *testing.T) {
	t.Parallel()
	for n, line := range drawn(t).lines {
		for _, pkg := range line {
			assert.False(t, n > 2 && strings.HasPrefix(pkg, "internal/"), "%s is on line %d: move it out of internal/, or what it imports up", pkg, n)
		}
	}
}

// TestTheRulesThemselvesCatchAFault plants forbidden imports, so that a slip in
// the tests above cannot make them pass on anything.
func TestTheRulesThemselvesCatchAFault(t *testing.T) {
	t.Parallel()
	pic := drawn(t)
	tests := map[string]struct {
		pkg   listed
		fault string
	}{
		"upwards":          {listed{ImportPath: module + "/wire", Imports: []string{module + "/loop"}}, "wire (line 1) imports loop (line 4)"},
		"sideways":         {listed{ImportPath: module + "/client", Imports: []string{module + "/workers"}}, "client (line 2) imports workers (line 2)"},
		"unknown":          {listed{ImportPath: module + "/utils"}, "utils is in no line"},
		"testkit":          {listed{ImportPath: module + "/loop", Imports: []string{module + "/" + testkit + "memqueue"}}, "external test packages only"},
		"testkit, in-test": {listed{ImportPath: module + "/loop", TestImports: []string{module + "/" + testkit + "memqueue"}}, "make it an external test package"},
		"testkit, too far": {listed{ImportPath: module + "/" + testkit + "memqueue", Imports: []string{module + "/server"}}, "imports server (line 5)"},
		"testkit, undrawn": {listed{ImportPath: module + "/" + testkit + "spare"}, "is not drawn"},
		"scorer":           {listed{ImportPath: module + "/rewards/jpeg", Imports: []string{module + "/rewards/ocr"}}, "rewards/jpeg (line 2) imports rewards/ocr (line 2)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := pic.importFaults(tt.pkg, map[int]bool{})
			require.Len(t, faults, 1)
			assert.Contains(t, faults[0], tt.fault)
		})
	}
	line, ok := pic.lineOf("rewards/ocr/tesseract")
	assert.True(t, ok)
	assert.Equal(t, 3, line)
	line, ok = picture{lines: [][]string{{"examples/*"}, {"examples/a/b"}}}.lineOf("examples/a/b")
	assert.True(t, ok)
	assert.Equal(t, 1, line, "the longer name wins over the star")
}

// TestTheLinterTellsTheSameStory compares depguard's rules, which an editor
// shows while typing, with the table above.
func TestTheLinterTellsTheSameStory(t *testing.T) {
	t.Parallel()
	type rule struct {
		Files    []string
		ListMode string `yaml:"list-mode"`
		Allow    []string
		Deny     []struct{ Pkg, Desc string }
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct{ Rules map[string]rule }
			}
		}
	}
	text, err := os.ReadFile(".golangci.yml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &config))

	denied := make(map[string][]string) // Package → the files it is not denied to.
	for _, r := range config.Linters.Settings.Depguard.Rules {
		for _, d := range r.Deny {
			denied[d.Pkg] = r.Files
		}
	}
	for _, c := range corners {
		if c.prefix == "C" {
			continue // Not an import depguard sees.
		}
		want := []string{"!$test"}
		for _, only := range c.only {
			want = append(want, "!**/"+strings.Replace(only, "/*", "/**", 1)+"/*.go")
		}
		assert.ElementsMatch(t, want, denied[c.prefix], "depguard's rule for %s", c.prefix)
	}
	assert.ElementsMatch(t, []string{"!$test", "!**/" + testkit + "**/*.go"}, denied[module+"/"+strings.TrimSuffix(testkit, "/")])
	leaf := config.Linters.Settings.Depguard.Rules["rewards-is-a-leaf"]
	assert.Equal(t, "strict", leaf.ListMode)
	assert.Equal(t, []string{"$gostd"}, leaf.Allow)
}
