package pickle_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pickle"
)

func TestGoldenPicklesDecodeToTheValuesOfTheIndex(t *testing.T) {
	t.Parallel()
	for _, c := range goldenCases(t) {
		if c.Reject != "" {
			continue
		}
		t.Run(c.File, func(t *testing.T) {
			t.Parallel()
			requireValue(t, c.Value, mustDecode(t, c.data))
		})
	}
}

// pwnedFile names the file that the shell command in bad_os_system.pkl, "touch
// FILE", would make if it ran.
func pwnedFile(t *testing.T) string {
	t.Helper()
	for _, c := range goldenCases(t) {
		if _, command, ok := bytes.Cut(c.data, []byte("touch ")); ok && c.Reject == "os_system" {
			name, _, _ := bytes.Cut(command, []byte{0x94}) // up to MEMOIZE
			return string(name)
		}
	}
	t.Fatal("no golden pickle carries a shell command")
	return ""
}

func TestGoldenRejectsFailWithin64MiBAndOneSecondAndRunNothing(t *testing.T) { //nolint:paralleltest // measures allocations of the process
	trace := pwnedFile(t)
	_, err := os.Stat(trace)
	require.ErrorIs(t, err, os.ErrNotExist, "left over from elsewhere: remove it and run again")
	require.True(t, filepath.IsAbs(trace), "%q", trace)
	for _, c := range goldenCases(t) {
		if c.Reject == "" {
			continue
		}
		var err error
		allocated, took := measure(func() { _, err = pickle.Decode(c.data, pickle.Limits{}) })
		if c.Stage == "request" {
			require.NoError(t, err, "%s is a valid pickle", c.File)
		} else {
			require.ErrorIs(t, err, pickle.ErrPickle, c.File)
			t.Logf("%s: %v", c.File, err)
		}
		assert.LessOrEqual(t, allocated, uint64(64<<20), c.File)
		assert.LessOrEqual(t, took, time.Second, c.File)
	}
	_, err = os.Stat(trace)
	require.ErrorIs(t, err, os.ErrNotExist, "a pickle ran its command")
}

func TestGoldenPicklesCutOffAnywhereAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range goldenCases(t) {
		if c.Stage == "decode" || len(c.data) > 1100 {
			continue
		}
		for n := range c.data {
			_, err := pickle.Decode(c.data[:n], pickle.Limits{})
			require.ErrorIs(t, err, pickle.ErrMalformed, "%s cut to %d bytes", c.File, n)
		}
	}
}
