//go:build cgo

package ort_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool/ort"
)

// From 1.29 on the library draws an id of the machine for its reports, and keeps it in the home.
func TestTheLibraryDrawsNoIDForReportsOfItsUse(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", home)
	cpu := openCPU(t, ort.Config{Slots: 1})
	_, err := cpu.Load(t.Context(), model("conv"))
	require.NoError(t, err)
	left, err := os.ReadDir(home)
	require.NoError(t, err)
	require.Empty(t, left)
}
