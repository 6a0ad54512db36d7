package models_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/models"
)

func TestAProgramOfACloneUsesTheModelsThatMakePutThere(t *testing.T) {
	t.Parallel()
	clone := t.TempDir()
	program := filepath.Join(clone, "bin", "rewardloop")
	require.NoError(t, os.Mkdir(filepath.Dir(program), 0o700))
	require.NoError(t, os.WriteFile(program, nil, 0o600))
	require.Empty(t, models.OfClone(program, nil), "make has fetched none")
	require.NoError(t, os.MkdirAll(filepath.Join(clone, ".cache", "models"), 0o700))
	require.Equal(t, filepath.Join(clone, ".cache", "models"), models.OfClone(program, nil))
	link := filepath.Join(t.TempDir(), "rewardloop")
	require.NoError(t, os.Symlink(program, link))
	require.Equal(t, filepath.Join(clone, ".cache", "models"), models.OfClone(link, nil), "found by what the link means")
	require.Empty(t, models.OfClone("", errors.New("no such thing")))
}
