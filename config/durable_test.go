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
	require.False(t, c.Fabric.Durable)
	_, err = load("++fabric.durable=true", "++fabric.spool_bytes=1MiB")
	require.ErrorContains(t, err, "needs fabric.spool_dir")
	require.ErrorContains(t, err, "loop.message_bytes: 128MiB")
	_, err = load("++fabric.spool_dir=spool")
	require.ErrorContains(t, err, "is for fabric.durable: true")
	_, err = load("++fabric.spool_fsync=group")
	require.ErrorContains(t, err, "fabric.spool_fsync: is for fabric.durable: true")
	_, err = load("++fabric.durable=true", "++fabric.spool_dir=spool", "++fabric.spool_fsync=always")
	require.ErrorContains(t, err, "group")
	c, err = load("++fabric.durable=true", "++fabric.spool_dir=spool", "++fabric.spool_fsync=group")
	require.NoError(t, err)
	require.Equal(t, spool.FsyncGroup, c.Fabric.Spool.Fsync)
	c, err = load("++fabric.durable=true", "++fabric.spool_dir=spool")
	require.NoError(t, err)
	require.Equal(t, "spool", c.Fabric.Spool.Dir)
	require.EqualValues(t, 16<<30, c.Fabric.Spool.MaxBytes)
}
