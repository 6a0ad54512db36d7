package architecture_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// declared lists the functions, methods (with and without their type's name) and types
// of a file.
func declared(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(path), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[d.Name.Name] = true
			if d.Recv != nil {
				names[strings.TrimPrefix(receiver(d.Recv.List[0].Type), "*")+"."+d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					names[s.Name.Name] = true
				}
			}
		}
	}
	return names
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr: // of a generic type
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// Wherever a page says `file.go` `Name`, and `Other` after a comma, the file declares them.
func TestTheArchitecturePageNamesWhatItsFilesDeclare(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("docs", "architecture.md"))
	require.NoError(t, err)
	var (
		pair = regexp.MustCompile("`([a-z0-9_/]+\\.go)`((?:,?\\s+`[A-Za-z]+(?:\\.[A-Za-z]+)?`)+)")
		name = regexp.MustCompile("`([^`]+)`")
		seen = 0
	)
	for _, m := range pair.FindAllStringSubmatch(string(page), -1) {
		names := declared(t, m[1])
		for _, n := range name.FindAllStringSubmatch(m[2], -1) {
			seen++
			assert.True(t, names[n[1]], "docs/architecture.md: %s declares no %s", m[1], n[1])
		}
	}
	require.Greater(t, seen, 25, "the path of one sample is told with the names of its functions")
}

// The path goes through every part that a sample meets, in their order.
func TestThePathOfOneSampleReadsInOneDirection(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("docs", "architecture.md"))
	require.NoError(t, err)
	_, path, found := strings.Cut(string(page), "\n## The path of one sample\n")
	require.True(t, found)
	path, _, _ = strings.Cut(path, "\n### ")
	at := 0
	for _, part := range []string{"client/", "internal/wsconn", "loop/stream/serve.go", "queue/", "workers/job.go", "rewards/run.go", "pool/", "loop/finish.go` `Finish", "loop/stream/session.go` `Session.Deliver", "client/"} {
		i := strings.Index(path[at:], "`"+part)
		require.GreaterOrEqual(t, i, 0, "%s does not come after what is before it", part)
		at += i + 1
	}
}
