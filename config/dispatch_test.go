package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/wire"
)

func TestDispatchAndStepsAreRead(t *testing.T) {
	t.Parallel()
	c, err := config.Load("", []string{
		"+reward.reward_functions.a.path=builtin://jpeg_compressibility",
		"loop.dispatch.policy=speed_weighted", "loop.dispatch.backup_after=2.5", "loop.dispatch.backup_share=0.1",
		"loop.step_bytes=1MiB", "loop.step_age=60s", "loop.on_step_deadline=fail", "loop.deterministic=true",
	}, nil)
	require.NoError(t, err)
	assert.Equal(t, dispatch.Config{Policy: dispatch.SpeedWeighted, BackupAfter: 2.5, BackupShare: 0.1}, c.Loop.Dispatch)
	assert.EqualValues(t, 1<<20, c.Loop.StepBytes)
	assert.Equal(t, time.Minute, c.Loop.StepAge)
	assert.Equal(t, wire.DeadlineFail, c.Loop.OnStepDeadline)
	assert.True(t, c.Loop.Deterministic)
	assert.Contains(t, fmt.Sprint(c.Notes()), "has no effect with loop.deterministic")
}

func TestDispatchThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	for overrides, message := range map[string]string{
		"loop.dispatch.policy=fastest":      "speed_weighted",
		"loop.dispatch.policy=random_blind": "random_blind has been removed: write random or speed_weighted; `rewardloop plan --policy random_blind,random` still compares it",
		"loop.dispatch.backup_after=0.5":    "1 and more times the usual service time",
		"loop.dispatch.backup_after=-1":     "between 0 and",
		"loop.dispatch.backup_share=0":      "between",
		"loop.dispatch.backup_share=1.5":    "between",
		"loop.dispatch.backup_after=.nan":   "backup_after",
		"loop.on_step_deadline=wait":        "proceed_with_shortfall",
		"loop.deterministic=perhaps":        "deterministic",
	} {
		_, err := config.Load("", strings.Fields(overrides), nil)
		require.ErrorContains(t, err, message, overrides)
	}
}
