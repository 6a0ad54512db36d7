package python_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// The tree of control groups is made of plain files here: what is looked for is where a
// group may be made, without one of its own server's being touched.
func TestAControlGroupIsMadeOnlyWhereItMayBe(t *testing.T) {
	t.Parallel()
	tree := func(own, controllers string) (mount, self string) {
		mount = t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(mount, "unit.service", "server"), 0o755))
		for path, text := range map[string]string{own: controllers} {
			require.NoError(t, os.WriteFile(filepath.Join(mount, path, "cgroup.subtree_control"), []byte(text), 0o600))
		}
		self = filepath.Join(t.TempDir(), "cgroup")
		return mount, self
	}
	write := func(self, text string) { require.NoError(t, os.WriteFile(self, []byte(text), 0o600)) }

	mount, self := tree("/", "cpu memory pids\n")
	write(self, "0::/\n")
	assert.Equal(t, mount, python.CgroupParent(mount, self), "a root has processes and gives memory")
	write(self, "5:memory:/\n")
	assert.Empty(t, python.CgroupParent(mount, self), "version 1")
	assert.Empty(t, python.CgroupParent(mount, self+"/none"))

	mount, self = tree("/unit.service", "memory\n")
	write(self, "4:memory:/x\n0::/unit.service/server\n")
	if os.Geteuid() == 0 {
		assert.Empty(t, python.CgroupParent(mount, self), "the group above was not delegated")
	}
	delegated := filepath.Join(mount, "unit.service")
	if err := unix.Setxattr(delegated, "user.delegate", []byte("1"), 0); err != nil {
		t.Logf("no extended attributes here, so that no delegated group was tried: %v", err)
	} else {
		assert.Equal(t, delegated, python.CgroupParent(mount, self))
	}
	mount, self = tree("/unit.service", "cpu\n")
	write(self, "0::/unit.service/server\n")
	assert.Empty(t, python.CgroupParent(mount, self), "it gives no memory")
	assert.Nil(t, python.NewCgroupIn("", 1))
}

func TestAControlGroupHasTheLimitAndSaysWhenItWasReached(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	g := python.NewCgroupIn(parent, 512<<20)
	require.NotNil(t, g)
	made, err := filepath.Glob(filepath.Join(parent, "rewardloop-*"))
	require.NoError(t, err)
	require.Len(t, made, 1)
	for file, want := range map[string]string{"memory.max": "536870912", "memory.swap.max": "0", "memory.oom.group": "1"} {
		text, err := os.ReadFile(filepath.Join(made[0], file))
		require.NoError(t, err)
		assert.Equal(t, want, string(text), file)
	}
	assert.False(t, g.RanOut())
	events := filepath.Join(made[0], "memory.events")
	require.NoError(t, os.WriteFile(events, []byte("low 0\noom 1\noom_kill 0\n"), 0o600))
	assert.False(t, g.RanOut())
	require.NoError(t, os.WriteFile(events, []byte("low 0\noom 1\noom_kill 2\n"), 0o600))
	assert.True(t, g.RanOut())
}

func TestTheKernelHoldsAProcessToItsLimit(t *testing.T) {
	t.Parallel()
	if python.CgroupParent("/sys/fs/cgroup", "/proc/self/cgroup") == "" {
		t.Skip("SKIPPED: no control group of version 2 with memory was left to this process: run it as a systemd service with Delegate=memory and DelegateSubgroup=")
	}
	s := process(t, python.Config{}, python.Options{Name: "allocate", Memory: 160 << 20})
	_, err := score(t, s, asks("child"))
	assert.Equal(t, rewards.Crashed, rewards.ClassOf(err), "%v", err)
	require.ErrorContains(t, err, "reached the memory limit of the cgroup;  the limit is 160 MiB")
}
