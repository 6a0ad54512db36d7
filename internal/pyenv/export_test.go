package pyenv

import (
	"context"
	"net/http"
	"os"
)

// Lock takes the lock of an environment; nil: somebody has it.
func (s Store) Lock(name string) (*os.File, error) { return s.tryLock(name) }

// Licence is what is said of a package's licence.
func Licence(expression, text string, classifiers []string) string {
	return licence(expression, text, classifiers)
}

// WithoutUser is a line without names and passwords in its addresses.
func WithoutUser(line string) string { return withoutUser(line) }

// Sizes are those of files by their addresses.
func Sizes(ctx context.Context, client *http.Client, addresses ...string) (out []int64) {
	all := make([]Package, len(addresses))
	for i, a := range addresses {
		all[i].address = a
	}
	sizes(ctx, client, all)
	for _, p := range all {
		out = append(out, p.Size)
	}
	return out
}
