package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/spool"
)

func TestADurableGatewayNeedsAFolderThatHoldsASample(t *testing.T) {
	t.Parallel()
	load := func(overrides ...string) (*config.Config, error) {
		return config.Load("", append([]string{"reward.custom_reward_function.path=builtin://ocr"}, overrides...), func(string) (string, bool) { return "", false })
	}
	c, err := load()
	require.NoError(t, err)
	require.False(t, c.Queue.Durable)
	_, err = load("++queue.durable=true", "++queue.spool_bytes=1MiB")
	require.ErrorContains(t, err, "needs queue.spool_dir")
	require.ErrorContains(t, err, "loop.message_bytes: 128MiB")
	_, err = load("++queue.spool_dir=spool")
	require.ErrorContains(t, err, "needs queue.durable: true")
	_, err = load("++queue.spool_fsync=group")
	require.ErrorContains(t, err, "queue.spool_fsync: needs queue.durable: true")
	_, err = load("++queue.durable=true", "++queue.spool_dir=spool", "++queue.spool_fsync=always")
	require.ErrorContains(t, err, "group")
	c, err = load("++queue.durable=true", "++queue.spool_dir=spool", "++queue.spool_fsync=group")
	require.NoError(t, err)
	require.Equal(t, spool.FsyncGroup, c.Queue.Spool.Fsync)
	c, err = load("++queue.durable=true", "++queue.spool_dir=spool")
	require.NoError(t, err)
	require.Equal(t, "spool", c.Queue.Spool.Dir)
	require.EqualValues(t, 16<<30, c.Queue.Spool.MaxBytes)
}
