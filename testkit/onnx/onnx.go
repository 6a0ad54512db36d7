package onnx

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
)

// Main runs the tests of a package, or the child process that the command line selects. Goroutines
// that are left at the end fail the tests.
func Main(m *testing.M) {
	if code, child := subprocess.Main(os.Args[1:], ort.Kinds()...); child {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// Library returns ONNX Runtime: at ONNXRUNTIME_SHARED_LIBRARY_PATH if it is set, otherwise in the
// .cache of the Git checkout, otherwise at the usual places. Without the library, or with -short,
// the test is skipped. If REQUIRE_ORT is 1, the test is not skipped, and fails without the library.
func Library(tb testing.TB) ort.Library {
	tb.Helper()
	if testing.Short() && os.Getenv("REQUIRE_ORT") != "1" {
		tb.Skip("SKIPPED: -short: it runs a model")
	}
	configured := ""
	if os.Getenv(ort.LibraryEnv) == "" {
		configured = clone(tb)
	}
	lib, err := ort.Find(configured)
	if err != nil {
		missing(tb, err)
	}
	return lib
}

// missing skips a test for what this machine does not have, or fails it where REQUIRE_ORT=1
// says that everything is there.
func missing(tb testing.TB, why error) {
	tb.Helper()
	if os.Getenv("REQUIRE_ORT") == "1" {
		tb.Fatalf("REQUIRE_ORT=1: %v", why)
	}
	tb.Skipf("SKIPPED: %v", why)
}

// clone is the folder of the clone's own libraries; "" if there is none.
func clone(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd() // of the package that is tested
	require.NoError(tb, err)
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) { // that of tools/ is not the clone's only go.mod
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			continue
		}
		found, err := filepath.Glob(filepath.Join(dir, ".cache", "ort", "*", "libonnxruntime.*"))
		require.NoError(tb, err)
		if len(found) > 0 {
			return filepath.Dir(found[len(found)-1]) // the newest
		}
	}
	return ""
}

// Devices provides the models of a pool.
type Devices struct{ *pool.Pool }

// Net implements infer.Nets.
func (d Devices) Net(m infer.Model) (infer.Net, error) { return d.Model(m, pool.ModelOptions{}) }

var _ infer.Nets = Devices{}

// CPU returns a pool with this machine's CPU and one replica of each model. The pool is closed at
// the end of the test. Without cgo, which ONNX Runtime needs, the test is skipped.
func CPU(tb testing.TB, isolation ort.Isolation) Devices {
	tb.Helper()
	if len(ort.Kinds()) == 0 {
		tb.Skip("SKIPPED: built without cgo")
	}
	opener, err := ort.NewOpener(ort.Config{Library: Library(tb).Path, Slots: 1, Isolation: isolation})
	require.NoError(tb, err)
	p, err := pool.New(pool.Config{}, opener)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(tb, p.Close(ctx))
	})
	return Devices{p}
}
