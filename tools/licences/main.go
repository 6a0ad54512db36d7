// Command licences writes deploy/THIRD_PARTY.md: what of others is linked into the
// binary, loaded by it, or downloaded by it and by make, with versions, licences
// and sources. What is linked comes from go list, and the licence of each module
// is told from the texts in the module cache; pinned Python packages come from the
// requirement files, npm's from web/package.json, models from the catalogue. A text or a package whose licence
// is not known is an error, so that nothing comes in unseen.
//
//	scripts/tool.sh licences                 writes deploy/THIRD_PARTY.md
//	scripts/tool.sh licences -check          fails if it is not what it would write
//	scripts/tool.sh licences -licenses DIR   writes the texts of all licences into DIR
//	scripts/tool.sh licences -sbom FILE -version V
//	                                         writes what is linked as a CycloneDX document
//
// A test of this package checks the same as -check.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// listName is the list, below the root of the repository.
const listName = "deploy/THIRD_PARTY.md"

func main() {
	check := flag.Bool("check", false, "compare "+listName+" and write nothing")
	licenses := flag.String("licenses", "", "write the texts of all licences into this `folder`, and nothing else")
	sbom := flag.String("sbom", "", "write what is linked into this `file`, as a CycloneDX document, and nothing else")
	release := flag.String("version", "", "the release that the document of -sbom is of")
	flag.Parse()
	if err := run(context.Background(), *check, *licenses, *sbom, *release); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, check bool, licenses, sbom, release string) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected %q", flag.Arg(0))
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	linked, err := modules(ctx, root)
	if err != nil {
		return err
	}
	switch {
	case sbom != "":
		return writeBOM(sbom, release, linked)
	case licenses != "":
		return writeTexts(ctx, root, licenses, linked)
	}
	text, err := document(root, linked)
	if err != nil {
		return err
	}
	at := filepath.Join(root, listName)
	if !check {
		return os.WriteFile(at, text, 0o644)
	}
	there, err := os.ReadFile(at)
	if err == nil && !bytes.Equal(there, text) {
		err = errors.New(listName + " is not up to date: scripts/tool.sh licences writes it")
	}
	return err
}
