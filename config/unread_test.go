package config_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	configPath = "github.com/rewardloop/rewardloop/config"
	keysPath   = "github.com/rewardloop/rewardloop/config/keys"
	program    = "github.com/rewardloop/rewardloop/cmd/rewardloop"
)

// TestNoFieldOfTheConfigurationGoesUnread holds against the program every exported field of a
// Config and of the structs of package config in it, and every field of another package that a
// key sets: a field that is only read from the file, checked and printed changes nothing. That
// somebody adds one and forgets it is tried as well.
func TestNoFieldOfTheConfigurationGoesUnread(t *testing.T) {
	t.Parallel()
	packages := dependencies(t)
	assert.Empty(t, unread(t, packages, source(nil)))

	own := strings.NewReplacer(
		"	Decode    media.Config\n}", "	Decode    media.Config\n	Planted, Told int\n}\n\n"+
			"func (r *reader) planted(p *Pool) { p.Planted = max(1, p.Planted) }\n\n"+
			"// Tells is how another package would ask.\nfunc (p Pool) Tells() int { return p.Told }\n",
		`k.Text(&p.ModelsDir,`, `k.Int(&p.Planted, "planted", 0, "Nothing.")`+"\n\t"+`k.Text(&p.ModelsDir,`,
	)
	theirs := strings.NewReplacer(
		"type Config struct {", "type Config struct {\n	Planted int",
		`k.Int(&c.MaxPixels,`, `k.Int(&c.Planted, "planted", 0, "Nothing.")`+"\n\t"+`k.Int(&c.MaxPixels,`,
	)
	assert.Equal(t, []string{"Pool.Planted", "media.Config.Planted"}, unread(t, packages, source(func(file, text string) string {
		switch file {
		case "config/sections.go":
			return own.Replace(text)
		case "media/decoder.go":
			return theirs.Replace(text)
		}
		return text
	})))
}

// source reads a file, with what a test makes of it.
func source(change func(file, text string) string) func(path string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		text, err := os.ReadFile(path)
		if err == nil && change != nil {
			text = []byte(change(filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path), string(text)))
		}
		return text, err
	}
}

// unread type-checks the packages of the program that know the configuration, or have settings
// that it decodes into, and returns the fields that none of them reads.
func unread(t *testing.T, packages []dependency, read func(path string) ([]byte, error)) []string {
	t.Helper()
	fset := token.NewFileSet()
	know := &knowing{packages: map[string]dependency{}, checked: map[string]*types.Package{}}
	know.standard = importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(know.packages[path].Export) })
	fields, reads := map[types.Object]string{}, map[types.Object]bool{}
	for _, p := range packages {
		know.packages[p.ImportPath] = p
		settings := p.ImportPath != keysPath && slices.Contains(p.Imports, keysPath)
		if !settings && !slices.Contains(p.Deps, configPath) {
			continue
		}
		var files []*ast.File
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
			path := filepath.Join(p.Dir, name)
			text, err := read(path)
			require.NoError(t, err)
			f, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, f)
		}
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
		whole := types.Config{Importer: know, FakeImportC: true, Error: func(error) {}} // of what other packages bring nothing is known
		made, _ := whole.Check(p.ImportPath, fset, files, info)
		know.checked[p.ImportPath] = made
		if p.ImportPath == configPath {
			collect(made.Scope().Lookup("Config").Type(), fields)
		}
		for _, f := range files {
			for _, d := range f.Decls {
				if settings && isKeys(d) && p.ImportPath != configPath {
					collectKeys(p.Name, d, info, fields)
				}
				if !settings || !ofTheFile(d) {
					noteReads(d, info, reads)
				}
			}
		}
	}
	require.Greater(t, len(fields), 100, "the fields were not found")
	var out []string
	for f, name := range fields {
		if !reads[f] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// dependency is what go list says of a package.
type dependency struct {
	ImportPath, Name, Dir, Export string
	Standard                      bool
	GoFiles, CgoFiles             []string
	Deps, Imports                 []string
}

// dependencies are all packages of the program, each behind those that it imports. Those of
// the standard library that the ones that know the configuration import are compiled.
func dependencies(t *testing.T) []dependency {
	t.Helper()
	all := goList(t, "-deps", program)
	var standard []string
	for _, p := range all {
		if slices.Contains(p.Imports, keysPath) || slices.Contains(p.Deps, configPath) {
			standard = append(standard, slices.DeleteFunc(slices.Clone(p.Imports), func(path string) bool { return strings.Contains(path, ".") || path == "C" })...)
		}
	}
	exports := map[string]string{}
	for _, p := range goList(t, append([]string{"-export", "-deps"}, slices.Compact(slices.Sorted(slices.Values(standard)))...)...) {
		exports[p.ImportPath] = p.Export
	}
	for i := range all {
		all[i].Export = exports[all[i].ImportPath]
	}
	return all
}

func goList(t *testing.T, args ...string) []dependency {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts go")
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Name,Dir,Export,Standard,GoFiles,CgoFiles,Deps,Imports"}, args...)...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	require.NoError(t, err, "go list")
	var all []dependency
	for d := json.NewDecoder(strings.NewReader(string(text))); ; {
		var p dependency
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

// knowing imports packages that know the configuration as they were checked here, so that
// all mean the same fields. Of the others only the standard library is known: to compile all
// of them takes a minute, and none of them hands a configuration on.
type knowing struct {
	packages map[string]dependency
	checked  map[string]*types.Package
	standard types.Importer
}

// Import implements types.Importer.
func (k *knowing) Import(path string) (*types.Package, error) {
	if p, ok := k.checked[path]; ok {
		return p, nil
	}
	if k.packages[path].Standard {
		return k.standard.Import(path)
	}
	p := types.NewPackage(path, k.packages[path].Name)
	p.MarkComplete()
	k.checked[path] = p
	return p, nil
}

// collect finds the exported fields of a struct of package config, and of all structs in it.
// A Place is where something stood in the file.
func collect(in types.Type, into map[types.Object]string) {
	switch in := in.(type) {
	case *types.Pointer:
		collect(in.Elem(), into)
	case *types.Slice:
		collect(in.Elem(), into)
	case *types.Map:
		collect(in.Elem(), into)
	case *types.Named:
		s, ok := in.Underlying().(*types.Struct)
		if !ok || in.Obj().Pkg() == nil || in.Obj().Pkg().Path() != configPath || in.Obj().Name() == "Place" {
			return
		}
		for f := range s.Fields() {
			if _, known := into[f]; f.Exported() && !known {
				into[f] = in.Obj().Name() + "." + f.Name()
				collect(f.Type(), into)
			}
		}
	}
}

// isKeys reports whether a declaration is a method that says which keys set the fields of a
// struct.
func isKeys(d ast.Decl) bool {
	f, ok := d.(*ast.FuncDecl)
	return ok && f.Recv != nil && strings.HasSuffix(f.Name.Name, "Keys") && len(f.Type.Params.List) == 1 &&
		types.ExprString(f.Type.Params.List[0].Type) == "*keys.Set"
}

// collectKeys finds the fields that keys set: what is there of the form &c.Field.
func collectKeys(pkg string, d ast.Decl, info *types.Info, into map[types.Object]string) {
	ast.Inspect(d, func(n ast.Node) bool {
		address, ok := n.(*ast.UnaryExpr)
		if !ok {
			return true
		}
		if field, ok := address.X.(*ast.SelectorExpr); ok && info.Selections[field] != nil {
			of := types.TypeString(info.Selections[field].Recv(), func(*types.Package) string { return "" })
			into[info.Selections[field].Obj()] = pkg + "." + strings.TrimLeft(of, "*") + "." + field.Sel.Name
		}
		return true
	})
}

// ofTheFile reports whether a declaration of a package with settings reads the file, says which
// keys there are, fills or checks what was read, or prints it. The fields that it looks at are
// not used by that.
func ofTheFile(d ast.Decl) bool {
	f, ok := d.(*ast.FuncDecl)
	if !ok {
		return false
	}
	var names []string
	for _, part := range []*ast.FieldList{f.Recv, f.Type.Results} {
		if part != nil && len(part.List) == 1 {
			names = append(names, strings.TrimLeft(types.ExprString(part.List[0].Type), "*[]"))
		}
	}
	return isKeys(d) || checks(f) || slices.Contains([]string{"Print", "WithDefaults", "Validate", "sections"}, f.Name.Name) || slices.ContainsFunc(names, func(n string) bool {
		return slices.Contains([]string{"reader", "printer"}, n)
	})
}

// checks reports whether a function checks several keys together.
func checks(f *ast.FuncDecl) bool {
	return slices.ContainsFunc(f.Type.Params.List, func(p *ast.Field) bool { return types.ExprString(p.Type) == "keys.Report" })
}

// noteReads notes the fields that a declaration looks at; what it only assigns to, it does not.
func noteReads(d ast.Decl, info *types.Info, reads map[types.Object]bool) {
	assigned := map[ast.Expr]bool{}
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				assigned[to] = n.Tok == token.ASSIGN
			}
		case *ast.SelectorExpr:
			if s := info.Selections[n]; s != nil && s.Kind() == types.FieldVal && !assigned[n] {
				reads[s.Obj()] = true
			}
		}
		return true
	})
}
