package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is a Go module of which packages are linked.
type module struct {
	path, version string
	dir           string   // in the module cache
	files         []string // licences and notices, relative to dir
	licence       string   // SPDX expression
}

// modules returns what the full build links, with licences, in the order of paths.
func modules(ctx context.Context, root string) ([]module, error) {
	found := map[string]module{}
	dirs := map[string][]string{}                     // module → folders of its linked packages
	for _, arch := range []string{"amd64", "arm64"} { // what is linked may differ
		cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-tags=tesseract", "-json=Dir,Module", "./cmd/rewardloop")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=1")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if err := packages(string(out), found, dirs); err != nil {
			return nil, err
		}
	}
	all := slices.SortedFunc(maps.Values(found), func(a, b module) int { return cmp.Compare(a.path, b.path) })
	for i := range all {
		if err := all[i].read(dirs[all[i].path]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// packages sorts what go list says by module. The standard library has none, and
// the main module is not a third party.
func packages(out string, found map[string]module, dirs map[string][]string) error {
	type mod struct {
		Path, Version, Dir string
		Main               bool
		Replace            *struct{ Version, Dir string }
	}
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var p struct {
			Dir    string
			Module *mod
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("go list: %w", err)
		}
		if p.Module == nil || p.Module.Main {
			continue
		}
		m := module{path: p.Module.Path, version: p.Module.Version, dir: p.Module.Dir}
		if r := p.Module.Replace; r != nil {
			m.version, m.dir = r.Version, r.Dir
		}
		found[m.path] = m
		dirs[m.path] = append(dirs[m.path], p.Dir)
	}
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(un)?licen[cs]e([-._].*)?$|^copying([-._].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents|copyright)([-._].*)?$`)
)

// read finds the texts that apply to linked packages: those in their folders and
// in the folders above, up to the module's.
func (m *module) read(packages []string) error {
	folders := map[string]bool{m.dir: true}
	for _, dir := range packages {
		for ; strings.HasPrefix(dir, m.dir) && dir != m.dir; dir = filepath.Dir(dir) {
			folders[dir] = true
		}
	}
	known := map[string]bool{}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		for _, e := range entries {
			isLicence := licenceFile.MatchString(e.Name())
			if !e.Type().IsRegular() || filepath.Ext(e.Name()) == ".go" || !isLicence && !noticeFile.MatchString(e.Name()) {
				continue
			}
			at := filepath.Join(dir, e.Name())
			rel, err := filepath.Rel(m.dir, at)
			if err != nil {
				return err
			}
			m.files = append(m.files, rel)
			if !isLicence || e.Name() == "LICENSE-LOGO" { // of a picture beside modernc.org/memory, which is not linked
				continue
			}
			text, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			ids := identify(string(text))
			if len(ids) == 0 {
				return fmt.Errorf("%s %s: nothing in %s is a licence that licence.go knows", m.path, m.version, rel)
			}
			for _, id := range ids {
				known[id] = true
			}
		}
	}
	if len(known) == 0 {
		return fmt.Errorf("%s %s has no licence in %s", m.path, m.version, m.dir)
	}
	m.licence = strings.Join(slices.Sorted(maps.Keys(known)), " AND ")
	return nil
}
