package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// phrase is a sentence that stands in the text of a licence and of no other.
type phrase struct{ id, says string }

// phrases in lower case with single blanks. The BSD family is told apart by a
// clause and follows in identify.
func phrases() []phrase {
	return []phrase{
		{"Apache-2.0", "apache license version 2.0, january 2004"},
		{"Apache-2.0", `licensed under the apache license, version 2.0`},
		{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files"},
		{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted"},
		{"ISC", "permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted"},
		{"MPL-2.0", "mozilla public license version 2.0"},
		{"BSL-1.0", "boost software license - version 1.0"},
		{"Zlib", "this software is provided 'as-is', without any express or implied warranty"},
		{"CC0-1.0", "cc0 1.0 universal"},
		{"blessing", "all of the code and documentation in sqlite has been dedicated to the public domain"},
		{"Unlicense", "this is free and unencumbered software released into the public domain"},
		{"LGPL", "gnu lesser general public license"},
		{"GPL", "gnu general public license"},
		{"AGPL", "gnu affero general public license"},
	}
}

// identify returns the SPDX identifiers of the licences whose texts a file holds.
func identify(text string) []string {
	// Comment signs and line breaks differ, words do not.
	text = strings.ToLower(strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return strings.ContainsRune(" \t\r\n*#", r)
	}), " "))
	var ids []string
	add := func(id string) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, p := range phrases() {
		if strings.Contains(text, p.says) {
			add(p.id)
		}
	}
	// Each BSD text of a file by itself: one may have the third clause and another not.
	for i, part := range strings.Split(text, "redistribution and use in source and binary forms, with or without modification") {
		switch {
		case i == 0:
		case strings.Contains(part, "endorse or promote products"):
			add("BSD-3-Clause")
		case strings.Contains(part, "redistributions in binary form must reproduce"):
			add("BSD-2-Clause")
		}
	}
	return ids
}

// writeTexts writes this project's licence and list, and the texts of Go and of
// every module, the latter in a folder by path and version.
func writeTexts(ctx context.Context, root, into string, linked []module) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	goroot := strings.TrimSpace(string(out))
	type pair struct{ from, to string }
	all := []pair{
		{filepath.Join(root, "LICENSE"), "LICENSE"},
		{filepath.Join(root, listName), filepath.Base(listName)},
		{filepath.Join(goroot, "LICENSE"), filepath.Join("go", "LICENSE")},
	}
	for _, m := range linked {
		for _, name := range m.files {
			all = append(all, pair{filepath.Join(m.dir, name), filepath.Join(filepath.FromSlash(m.path)+"@"+m.version, name)})
		}
	}
	npm, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(npmTexts), "*.txt"))
	if err != nil {
		return err
	}
	for _, from := range npm {
		all = append(all, pair{from, filepath.Join("npm", filepath.Base(from))})
	}
	var faults []error
	for _, p := range all {
		text, err := os.ReadFile(p.from)
		to := filepath.Join(into, p.to)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, text, 0o644)
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}
