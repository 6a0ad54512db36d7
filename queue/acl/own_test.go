package acl_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue/acl"
)

func TestTheKeysOfAUserAreMadeOnceAndAreItsAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "config", "rewardloop", "nats")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := acl.Own(dir)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	for _, role := range acl.Roles() {
		info, err := os.Stat(filepath.Join(dir, acl.SeedFile(role)))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	left, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Len(t, left, 1, "the folders of those that came second are gone")
	first := seedIn(t, filepath.Join(dir, "worker.nk"))

	users, err := acl.Own(dir)
	require.NoError(t, err)
	o := options(t)
	users.Apply(o)
	s := started(t, o)
	dial(t, s, acl.Worker, option(t, acl.NKey, filepath.Join(dir, "worker.nk")))
	dial(t, s, acl.Gateway, option(t, acl.NKey, filepath.Join(dir, "gateway.nk")))
	require.Error(t, try(s), "without a key")
	other := made(t, acl.Config{})
	require.Error(t, try(s, option(t, acl.NKey, filepath.Join(other, "worker.nk"))), "with another key")
	require.Equal(t, first, seedIn(t, filepath.Join(dir, "worker.nk")))
}

func TestKeysOfAUserThatOthersMayReadOrThatAreDamagedAreRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "nats")
	_, err := acl.Own(dir)
	require.NoError(t, err)
	file := filepath.Join(dir, "worker.nk")
	require.NoError(t, os.Chmod(file, 0o644))
	_, err = acl.Own(dir)
	require.ErrorContains(t, err, "chmod 600 "+file)
	require.NoError(t, os.Remove(file))
	_, err = acl.Own(dir)
	require.ErrorContains(t, err, "move the folder away so that new keys are made")
	_, err = acl.Own("/proc/none/nats")
	require.ErrorContains(t, err, "/proc/none/nats")
}
