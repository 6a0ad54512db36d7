package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// npmPackages is the file that names the npm packages, npmTexts the folder of the licences of
// those that are shipped.
const (
	npmPackages = "web/package.json"
	npmTexts    = "web/dist/licences"
)

// npmLicences are those that the packages state of themselves, and where their sources are.
func npmLicences() map[string][2]string {
	return map[string][2]string{
		"@types/node":     {"MIT", "https://github.com/DefinitelyTyped/DefinitelyTyped"},
		"axe-core":        {"MPL-2.0", "https://github.com/dequelabs/axe-core"},
		"esbuild":         {"MIT", "https://github.com/evanw/esbuild"},
		"playwright-core": {"Apache-2.0", "https://github.com/microsoft/playwright"},
		"preact":          {"MIT", "https://github.com/preactjs/preact"},
		"typescript":      {"Apache-2.0", "https://github.com/microsoft/TypeScript"},
	}
}

// npmTable is a Markdown table of the packages, those that are shipped first.
func npmTable(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(npmPackages)))
	if err != nil {
		return "", err
	}
	var file struct{ Dependencies, DevDependencies map[string]string }
	if err := json.Unmarshal(text, &file); err != nil {
		return "", fmt.Errorf("%s: %w", npmPackages, err)
	}
	known := npmLicences()
	var b strings.Builder
	var faults []error
	row := func(all map[string]string, what string) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			k, ok := known[name]
			if !ok {
				faults = append(faults, fmt.Errorf("%s asks for %s, whose licence tools/licences/npm.go does not know: add it", npmPackages, name))
				continue
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, all[name], k[0], what, k[1])
		}
	}
	row(file.Dependencies, "in web/dist")
	row(file.DevDependencies, "builds or tests it; not shipped")
	for name, version := range file.Dependencies {
		at := npmTexts + "/" + strings.ReplaceAll(name, "/", "-") + "@" + version + ".txt"
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(at))); err != nil {
			faults = append(faults, fmt.Errorf("the text of the licence of %s is not in %s: run make web: %w", name, at, err))
		}
	}
	return b.String(), errors.Join(faults...)
}
