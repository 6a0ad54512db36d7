package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var root = filepath.Join("..", "..")

func linked(t *testing.T) []module {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts go")
	}
	all, err := modules(t.Context(), root)
	require.NoError(t, err)
	return all
}

func TestTheListIsWhatIsLinkedLoadedAndDownloaded(t *testing.T) {
	t.Parallel()
	want, err := document(root, linked(t))
	require.NoError(t, err)
	have, err := os.ReadFile(filepath.Join(root, listName))
	require.NoError(t, err)
	require.Equal(t, strings.Split(string(want), "\n"), strings.Split(string(have), "\n"), "scripts/tool.sh licences writes it")
}

func TestEveryTextIsWritten(t *testing.T) {
	t.Parallel()
	all, into := linked(t), t.TempDir()
	require.NoError(t, writeTexts(t.Context(), root, into, all))
	for _, m := range all {
		texts := 0
		require.NoError(t, filepath.WalkDir(filepath.Join(into, m.path+"@"+m.version), func(at string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				text, readErr := os.ReadFile(at)
				require.NoError(t, readErr)
				assert.NotEmpty(t, text, at)
				texts++
			}
			return err
		}))
		assert.Positive(t, texts, m.path)
	}
	for _, name := range []string{"LICENSE", filepath.Base(listName), "go/LICENSE"} {
		assert.FileExists(t, filepath.Join(into, name))
	}
	npm, err := filepath.Glob(filepath.Join(into, "npm", "preact@*.txt"))
	require.NoError(t, err)
	require.Len(t, npm, 1)
	text, err := os.ReadFile(npm[0])
	require.NoError(t, err)
	assert.Equal(t, []string{"MIT"}, identify(string(text)))
}

func TestAnNpmPackageWhoseLicenceIsNotKnownIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "web"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "web", "package.json"), []byte(`{"dependencies": {"preact": "11.0.0", "nobody-knows": "1.0.0"}}`), 0o600))
	_, err := npmTable(dir)
	require.ErrorContains(t, err, "nobody-knows, whose licence tools/licences/npm.go does not know")
	require.ErrorContains(t, err, "the text of the licence of preact is not in web/dist/licences/preact@11.0.0.txt")
}

const (
	mit  = "Permission is hereby granted, free of charge, to any person obtaining\na copy of this software and associated documentation files (the \"Software\"), to deal"
	bsd2 = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted:\n * Redistributions in binary form must reproduce the above copyright notice"
	bsd3 = bsd2 + "\n * Neither the name may be used to endorse or promote\n * products derived"
)

func TestLicencesAreToldByTheirTexts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		mit:                             {"MIT"},
		bsd2:                            {"BSD-2-Clause"},
		bsd3:                            {"BSD-3-Clause"},
		bsd3 + "\n\n" + bsd2 + mit:      {"MIT", "BSD-3-Clause", "BSD-2-Clause"},
		"all rights reserved":           nil,
		"":                              nil,
		"GNU GENERAL PUBLIC\n  LICENSE": {"GPL"},
		"Apache License\n   Version 2.0, January 2004\n":                                                                       {"Apache-2.0"},
		"Permission to use, copy, modify, and distribute this software for any\npurpose with or without fee is hereby granted": {"ISC"},
	} {
		assert.Equal(t, want, identify(text), "%q", text)
	}
}

func TestAModuleWithoutAKnownLicenceIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := module{path: "example.org/m", version: "v1", dir: dir}
	require.ErrorContains(t, m.read([]string{dir}), "example.org/m v1 has no licence")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("pay me"), 0o600))
	require.ErrorContains(t, m.read([]string{dir}), "nothing in LICENSE is a licence")
}

// A package's own folder may hold code of somebody else, with its own text. That
// of a folder nobody links is not asked for.
func TestTextsBesideLinkedPackagesCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE": mit, "NOTICE": "a notice", "a/b/LICENSE.txt": bsd3, "a/COPYING": bsd2, "c/LICENSE": "pay me", "licence.go": "package m",
	} {
		at := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
	}
	m := module{path: "example.org/m", version: "v1", dir: dir}
	require.NoError(t, m.read([]string{filepath.Join(dir, "a", "b")}))
	assert.Equal(t, "BSD-2-Clause AND BSD-3-Clause AND MIT", m.licence)
	assert.Equal(t, []string{"LICENSE", "NOTICE", "a/COPYING", "a/b/LICENSE.txt"}, m.files)
}

func TestRequirementsAreReadFromBothKindsOfFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) {
		at := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
	}
	put("requirements-test.txt", "# comment\nnumpy==2.4.6  # why\n-r other.txt\n\nPy_Clipper >= 1 ; python_version > '3'\n")
	put("p/pyproject.toml", "[build-system]\nrequires = [\"setuptools>=77\"]\n[project]\nkeywords = [\"torch\"]\ndependencies = [\n  \"websockets>=15\",\n]\n"+
		"[project.optional-dependencies]\nray = [\"ray[default]>=2\"]\n[tool.x]\ny = [\"mypy\"]\n")
	put(".venv/requirements.txt", "onnx\n")
	got, err := distributions(dir)
	require.NoError(t, err)
	assert.Equal(t, []distribution{
		{"numpy", "==2.4.6", "requirements-test.txt"},
		{"py-clipper", ">=1", "requirements-test.txt"},
		{"ray", ">=2", "p/pyproject.toml"},
		{"setuptools", ">=77", "p/pyproject.toml"},
		{"websockets", ">=15", "p/pyproject.toml"},
	}, got)
	_, err = pythonTable(got)
	require.ErrorContains(t, err, "requirements-test.txt asks for py-clipper, whose licence")
}
