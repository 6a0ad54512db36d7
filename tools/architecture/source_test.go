package architecture_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// source is a Go file that is not a test.
type source struct {
	path string // with slashes
	fset *token.FileSet
	file *ast.File
}

// dir is the folder of its package.
func (s source) dir() string { return filepath.ToSlash(filepath.Dir(s.path)) }

func (s source) line(p token.Pos) int { return s.fset.Position(p).Line }

func (s source) at(p token.Pos) string { return fmt.Sprintf("%s:%d", s.path, s.line(p)) }

// sources are all of them, those of tools/, a module of its own, among them.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "out"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		s := source{path: filepath.ToSlash(path), fset: token.NewFileSet()}
		s.file, err = parser.ParseFile(s.fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		all = append(all, s)
		return err
	}))
	require.Greater(t, len(all), 300, "where is the code?")
	return all
}

// parsed is a source for the tests of the rules themselves.
func parsed(t *testing.T, text string) source {
	t.Helper()
	s := source{path: "planted.go", fset: token.NewFileSet()}
	var err error
	s.file, err = parser.ParseFile(s.fset, s.path, text, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	return s
}

// says is how a comment names the end of a goroutine and who waits for it.
var says = regexp.MustCompile(`\b([Ee]nds?|ended|waits?|waited|awaits)\b`)

// ownerless are the go statements that no comment, on their line or on the one above, says
// the end of. Whoever starts a goroutine waits for it; where a sync.WaitGroup or an errgroup
// does not say so, words must.
func ownerless(s source) []string {
	said := map[int]bool{}
	for _, group := range s.file.Comments {
		if says.MatchString(group.Text()) {
			for line := s.line(group.Pos()); line <= s.line(group.End())+1; line++ {
				said[line] = true
			}
		}
	}
	var faults []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok && !said[s.line(g.Pos())] {
			faults = append(faults, s.at(g.Pos()))
		}
		return true
	})
	return faults
}

// selected is the last name before the method of a call such as p.tasks.Go(…).
func selected(call *ast.CallExpr, method string) (name string, ok bool) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != method {
		return "", false
	}
	switch x := sel.X.(type) {
	case *ast.Ident:
		return x.Name, true
	case *ast.SelectorExpr:
		return x.Sel.Name, true
	}
	return "", false
}

// unawaited are the calls of Go of a sync.WaitGroup or an errgroup whose name nothing in the
// same package waits for.
func unawaited(all []source) []string {
	waited := map[[2]string]bool{}
	each := func(method string, do func(s source, call *ast.CallExpr, name string)) {
		for _, s := range all {
			ast.Inspect(s.file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if name, ok := selected(call, method); ok {
						do(s, call, name)
					}
				}
				return true
			})
		}
	}
	each("Wait", func(s source, _ *ast.CallExpr, name string) { waited[[2]string{s.dir(), name}] = true })
	var faults []string
	each("Go", func(s source, call *ast.CallExpr, name string) {
		if len(call.Args) == 1 && !waited[[2]string{s.dir(), name}] {
			faults = append(faults, s.at(call.Pos())+" "+name)
		}
	})
	return faults
}

func TestEveryGoroutineHasAnOwnerThatWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	all := sources(t)
	for _, s := range all {
		for _, at := range ownerless(s) {
			t.Errorf("%s starts a goroutine: say in a comment there, or above, when it ends and who waits for it", at)
		}
	}
	for _, fault := range unawaited(all) {
		t.Errorf("%s.Go starts a goroutine, and nothing in the package calls its Wait", fault)
	}

	planted := parsed(t, "package p\nfunc f() {\n\tgo f() // quickly\n\n\tgo f() // ends with f\n\tvar g, h sync.WaitGroup\n\tg.Go(f)\n\th.Go(f)\n\th.Wait()\n}")
	assert.Equal(t, []string{"planted.go:3"}, ownerless(planted))
	assert.Equal(t, []string{"planted.go:7 g"}, unawaited([]source{planted}))
}

// readers are the functions that read the text of an error, and why they have nothing else
// to go by.
var readers = map[string]string{
	"config syntax":          "the YAML library says the line of a syntax error in its text alone; the line is cut out, nothing is decided",
	"pool/ort failedRun":     "ONNX Runtime's C interface answers a code that is FAIL for nearly everything, and a text",
	"pool/ort failedLoad":    "the same",
	"pool/ort failedOptions": "the same",
	"pool/ort probe":         "the same, of a device's fault",
	"pool/ort run":           "the same, of outputs that have another shape than was foreseen",
	"pool/ort step":          "the same",
	"rewards MessageOf":      "the class that stands beside a text is cut off its beginning, nothing is decided",
}

// errorText is whether an expression holds a call of Error.
func errorText(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 0 {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Error" {
				found = true
			}
		}
		return !found
	})
	return found
}

// decides is whether a call finds something out about a text.
func decides(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "strings" {
		switch sel.Sel.Name {
		case "Contains", "HasPrefix", "HasSuffix", "EqualFold", "Index", "Cut", "CutPrefix", "CutSuffix", "Count":
			return true
		}
		return false
	}
	return strings.HasPrefix(sel.Sel.Name, "Match") || strings.HasPrefix(sel.Sel.Name, "Find")
}

// readsErrors are the functions of a file that decide by an error's text: they compare it,
// search it, or switch on it, at once or by way of a variable. The class of an error is
// there for that (errors.Is, errors.As).
func readsErrors(s source) []string {
	var faults []string
	for _, decl := range s.file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		texts := map[string]bool{} // variables that hold the text of an error
		ast.Inspect(fn, func(n ast.Node) bool {
			if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
				for i := range a.Rhs {
					if id, ok := a.Lhs[i].(*ast.Ident); ok && errorText(a.Rhs[i]) {
						texts[id.Name] = true
					}
				}
			}
			return true
		})
		isText := func(e ast.Expr) bool {
			id, ok := e.(*ast.Ident)
			return ok && texts[id.Name] || errorText(e)
		}
		reads := false
		ast.Inspect(fn, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				reads = reads || decides(n) && len(n.Args) > 0 && (isText(n.Args[0]) || isText(n.Args[len(n.Args)-1]))
			case *ast.BinaryExpr:
				// len(err.Error()) decides by its length alone.
				reads = reads || (n.Op == token.EQL || n.Op == token.NEQ) && (isText(n.X) && !isLen(n.X) || isText(n.Y) && !isLen(n.Y))
			case *ast.SwitchStmt:
				reads = reads || n.Tag != nil && isText(n.Tag)
			}
			return true
		})
		if reads {
			faults = append(faults, s.dir()+" "+fn.Name.Name)
		}
	}
	return faults
}

// isLen is whether an expression is a call of len.
func isLen(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "len"
}

func TestErrorsAreToldApartByTheirClassNotByTheirText(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, s := range sources(t) {
		for _, fault := range readsErrors(s) {
			used[fault] = true
			if readers[fault] == "" {
				t.Errorf("%s: %s decides by the text of an error: give it a class, and use errors.Is or errors.As", s.path, fault)
			}
		}
	}
	for name := range readers {
		assert.True(t, used[name], "%s reads no error's text any more: remove it from the list", name)
	}

	for name, text := range map[string]string{
		"contains": `strings.Contains(err.Error(), "x")`, "compares": `err.Error() == "x"`, "matches": `pattern.MatchString(err.Error())`,
		"switches": `func() bool { switch err.Error() { case "x": }; return true }()`,
		"later":    `func() bool { text := strings.ToLower(err.Error()); return strings.HasPrefix(text, "x") }()`,
	} {
		assert.Equal(t, []string{". f"}, readsErrors(parsed(t, "package p\nfunc f(err error) bool { return "+text+" }")), name)
	}
	assert.Empty(t, readsErrors(parsed(t, "package p\nfunc f(err error) bool { return errors.Is(err, x) && len(err.Error()) > 3 && strings.Contains(y, z) }")))
}
