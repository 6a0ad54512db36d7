package rewardloop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const module = "github.com/rewardloop/rewardloop"

// testkit holds what tests share. Its line in the picture: it may import lines
// 0 to 2 and its own kind, and only external test packages may import it.
const testkit = "internal/testkit/"

// layers is the picture in docs/architecture.md, line by line: a package
// imports only packages of the lines above its own. A new package is added
// here, and there, before it imports anything. "x/*" is every package below x
// that no line names itself.
var layers = [][]string{
	0: {
		"rewards", "models", "internal/lifecycle", "internal/obs", "internal/pickle",
		"internal/hftok", "internal/infer", "internal/pytext", "internal/sim", "internal/slot", "internal/spool",
	},
	1: {"wire", "media", "pool", "internal/imageproc", "internal/outbound", "internal/wsconn"},
	2: {"rewards/*", "internal/chat", "internal/service", "pool/ort", "workers", "loop", "client", "store"},
	3: {"rewards/compare", "rewards/judge", "rewards/remote", "rewards/verify", "rewards/ocr/ppocr", "rewards/ocr/tesseract", "rewards/python", "rewards/vlm", "fabric", "fabric/*", "server"},
	4: {"rewards/standard", "config"},
	5: {"internal/node"},
	6: {"internal/demo", "examples/trainer_modes/*"},
	7: {"cmd/rewardloop", "examples/*", "bench/*", "scripts/house", "scripts/testsum", "scripts/thirdparty"},
	8: {"bench"},
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
	{"github.com/gorilla/websocket", []string{"internal/wsconn", "bench"}}, // bench: the bare round trip it calibrates with.
	{"github.com/nats-io", []string{"fabric", "fabric/*"}},
	{"github.com/dlclark/regexp2", []string{"internal/hftok"}},
	{"github.com/nikolalohinski/gonja", []string{"rewards/vlm"}},
	{"gonum.org/v1/plot", []string{"bench/plot"}},
	{"github.com/stretchr/testify", []string{"internal/testkit/*"}},
	{"go.uber.org/goleak", []string{"internal/testkit/*"}},
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

func list(t *testing.T, cgo, tags string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list",
		"-json=ImportPath,Imports,TestImports,XTestImports", "-tags="+tags, "./...")
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
func lineOf(pkg string) (int, bool) {
	line, length := 0, -1
	for i, patterns := range layers {
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
	used := make(map[int]bool)
	for _, build := range builds {
		for _, p := range list(t, build.cgo, build.tags) {
			for _, fault := range importFaults(p, used) {
				t.Errorf("%s: %s", build.name, fault)
			}
		}
	}
	for i, a := range allowances {
		if !used[i] {
			t.Errorf("%s no longer imports %s: remove the allowance", a.from, a.to)
		}
	}
}

func importFaults(p listed, used map[int]bool) []string {
	pkg := p.name()
	inTestkit := strings.HasPrefix(pkg, testkit)
	line, known := lineOf(pkg)
	switch {
	case inTestkit:
		line = 3 // What lies above is lines 0 to 2.
	case pkg == ".":
		line = 0 // The root imports nothing.
	case !known:
		return []string{pkg + " is in no line of the picture: add it to layers in architecture_test.go and to docs/architecture.md"}
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
		if toLine, ok := lineOf(to); !ok || toLine >= line {
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
		for _, p := range list(t, build.cgo, build.tags) {
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
	for _, p := range list(t, "1", "tesseract") {
		if p.name() != "rewards" {
			continue
		}
		for _, path := range p.Imports {
			first, _, _ := strings.Cut(path, "/")
			assert.NotContains(t, first, ".", "rewards imports %s", path)
		}
	}
}

// TestTheRulesThemselvesCatchAFault plants forbidden imports, so that a slip in
// the tests above cannot make them pass on anything.
func TestTheRulesThemselvesCatchAFault(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pkg   listed
		fault string
	}{
		"upwards":          {listed{ImportPath: module + "/wire", Imports: []string{module + "/loop"}}, "wire (line 1) imports loop (line 2)"},
		"sideways":         {listed{ImportPath: module + "/loop", Imports: []string{module + "/workers"}}, "loop (line 2) imports workers (line 2)"},
		"unknown":          {listed{ImportPath: module + "/utils"}, "utils is in no line"},
		"testkit":          {listed{ImportPath: module + "/loop", Imports: []string{module + "/" + testkit + "memengine"}}, "external test packages only"},
		"testkit, in-test": {listed{ImportPath: module + "/loop", TestImports: []string{module + "/" + testkit + "memengine"}}, "make it an external test package"},
		"testkit, too far": {listed{ImportPath: module + "/" + testkit + "memengine", Imports: []string{module + "/server"}}, "imports server (line 3)"},
		"scorer":           {listed{ImportPath: module + "/rewards/jpeg", Imports: []string{module + "/rewards/ocr"}}, "rewards/jpeg (line 2) imports rewards/ocr (line 2)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := importFaults(tt.pkg, map[int]bool{})
			require.Len(t, faults, 1)
			assert.Contains(t, faults[0], tt.fault)
		})
	}
	line, ok := lineOf("rewards/ocr/tesseract")
	assert.True(t, ok)
	assert.Equal(t, 3, line, "the longer name wins over rewards/*")
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
