package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/models"
)

const head = `# Third-party software

What of others is linked into rewardloop, loaded by it, or downloaded by it and by
make. ` + "`scripts/tool.sh licences`" + ` writes this list; a test holds it to the code.
rewardloop itself is under Apache-2.0, see ` + "`LICENSE`" + `.

The image holds the texts: those of the Go modules, of the page's npm packages and of ONNX Runtime in ` + "`/licenses`" + `, those of
Debian's packages in ` + "`/usr/share/doc/<package>/copyright`" + `. Models that are built into an image are
under Apache-2.0 with the text of ` + "`/licenses/LICENSE`" + `.
`

const modulesHead = `
## Go modules, linked into the binary

The module's path is its address. What is listed is what a full build for Linux links (tag
` + "`tesseract`" + `, amd64 and arm64), not everything that go.mod needs for tests.

| module | version | licence |
|---|---|---|
`

const libraries = `
## Libraries in C and C++

| library | version | licence | how it comes | source |
|---|---|---|---|---|
| ONNX Runtime | %[1]s | MIT | loaded when a model is run; ` + "`make ort`" + ` and the image take it out of the Python wheel, or ` + "`make ort`" + ` out of the npm package onnxruntime-node; what it contains is in its ThirdPartyNotices.txt | https://github.com/microsoft/onnxruntime |
| Tesseract | 5 | Apache-2.0 | linked with the tag tesseract; Debian's libtesseract5 | https://github.com/tesseract-ocr/tesseract |
| Tesseract's program and English model | 5 | Apache-2.0 | Debian's tesseract-ocr, tesseract-ocr-eng | https://github.com/tesseract-ocr/tessdata_fast |
| Leptonica | 1.82 or newer | BSD-2-Clause | linked with the tag tesseract; Debian's liblept5 | https://github.com/DanBloomberg/leptonica |
| C library | the system's | LGPL-2.1-or-later | linked where cgo is on; Debian's libc6 | https://sourceware.org/glibc |
| C++ and compiler run-time libraries | the system's | GPL-3.0-or-later WITH GCC-exception-3.1 | needed by ONNX Runtime and Tesseract; Debian's libstdc++6 and libgcc-s1 | https://gcc.gnu.org |

What these packages of Debian depend on comes with them, with its licences.
Of the npm package onnxruntime-node %[1]s only the library is used.
`

const npmHead = `
## npm packages

Of what the status page is built and tested with (` + "`make web`, `make test-web`" + `) only what is in web/dist is shipped, embedded into the
binary with the texts of its licences (web/dist/licences). web/package-lock.json lists what the others bring.

| package | version | licence | what for | source |
|---|---|---|---|---|
`

const tools = `
## Tools

Built from source, into .tools by ` + "`make lint`" + ` and ` + "`make vuln`" + `, gotestsum by ` + "`make test`" + `; part of nothing that is shipped.

| tool | version | licence | source |
|---|---|---|---|
| golangci-lint | %s | GPL-3.0-only | https://github.com/golangci/golangci-lint |
| govulncheck | %s | BSD-3-Clause | https://github.com/golang/vuln |
| gotestsum | %s | Apache-2.0 | https://github.com/gotestyourself/gotestsum |
`

const pythonHead = `
## Python packages

For the Python client, tests and benchmarks. None is part of the binary or of the image. Licences are
those that the packages state of themselves; wheels with libraries of others list those in their metadata.
verl (Apache-2.0, https://github.com/verl-project/verl), which some tests run against, is installed by hand.

`

const modelsHead = `
## Models

Downloaded by ` + "`rewardloop models pull`" + ` and ` + "`make models`" + `, not part of the repository.

| model | files | licence | from |
|---|---|---|---|
`

// document is deploy/THIRD_PARTY.md.
func document(root string, linked []module) ([]byte, error) {
	ort, err := pinned(root, "scripts/lib.sh", "ORT_VERSION=")
	if err != nil {
		return nil, err
	}
	lint, err := pinned(root, "scripts/tools.sh", "GOLANGCI_LINT_VERSION=")
	if err != nil {
		return nil, err
	}
	vuln, err := pinned(root, "scripts/tools.sh", "GOVULNCHECK_VERSION=")
	if err != nil {
		return nil, err
	}
	sum, err := pinned(root, "tools/go.mod", "gotest.tools/gotestsum ")
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString(head)
	b.WriteString(modulesHead)
	b.WriteString("| [Go](https://go.dev), runtime and standard library | of the toolchain | BSD-3-Clause |\n")
	for _, m := range linked {
		fmt.Fprintf(&b, "| [%s](https://%s) | %s | %s |\n", m.path, m.path, m.version, m.licence)
	}
	fmt.Fprintf(&b, libraries, ort)
	npm, err := npmTable(root)
	if err != nil {
		return nil, err
	}
	b.WriteString(npmHead)
	b.WriteString(npm)
	fmt.Fprintf(&b, tools, lint, vuln, sum)
	packages, err := distributions(root)
	if err != nil {
		return nil, err
	}
	table, err := pythonTable(packages)
	if err != nil {
		return nil, err
	}
	b.WriteString(pythonHead)
	b.WriteString(table)
	b.WriteString(modelsHead)
	for _, m := range models.Catalogue() {
		from, files := origins(m)
		if len(from) == 0 {
			from, files = []string{"an export of its own: docs/models.md"}, "none"
		}
		holder := cmp.Or(m.Licence.Holder, "holder unknown")
		fmt.Fprintf(&b, "| %s | %s | [%s](%s), %s | %s |\n", m.Name, files, m.Licence.SPDX, m.Licence.URL, holder, strings.Join(from, ", "))
	}
	return []byte(b.String()), nil
}

// origins are the repositories and packages that a model's files come from, and how many
// files that is. What is part of this repository is not among them.
func origins(m models.Model) (from []string, files string) {
	n := 0
	for _, f := range m.Files {
		source, err := models.ParseSource(f.Source)
		if err != nil {
			continue // unreachable: the catalogue is tested
		}
		var origin string
		switch source := source.(type) {
		case models.HubSource:
			origin = "`hf://" + source.Repository + "@" + source.Revision + "`"
		case models.WheelSource:
			origin = "`pip://" + source.Requirement + "`"
		default:
			continue
		}
		if n++; !slices.Contains(from, origin) {
			from = append(from, origin)
		}
	}
	return from, strconv.Itoa(n)
}

// pinned is the version that stands behind start in a line of a file, before a space.
func pinned(root, file, start string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), start); ok {
			version, _, _ = strings.Cut(version, " ")
			return version, nil
		}
	}
	return "", fmt.Errorf("%s has no line that begins with %q and pins a version", file, start)
}
