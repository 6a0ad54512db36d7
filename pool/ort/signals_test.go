//go:build cgo && linux

package ort

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// action is the kernel's struct sigaction.
type action struct{ handler, flags, restorer, mask uintptr }

// replaceHandler does what CUDA's libraries do: it installs another handler, here
// the one that ignores.
func replaceHandler(t *testing.T, sig syscall.Signal) {
	t.Helper()
	const ignore = 1
	act := action{handler: ignore}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
	require.Zero(t, errno)
}

func TestSignalsReachGoAfterALibraryHasTakenThem(t *testing.T) { //nolint:paralleltest // signals are the process's
	seen := make(chan os.Signal, 1)
	signal.Notify(seen, syscall.SIGUSR2)
	defer signal.Stop(seen)
	require.NoError(t, keepSignals(func() error {
		replaceHandler(t, syscall.SIGUSR2)
		return nil
	}))
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGUSR2))
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	select {
	case <-seen:
	case <-late.C:
		t.Fatal("the signal did not arrive")
	}
}
