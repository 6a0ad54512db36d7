//go:build unix

package acl

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASecretThatRootMountedMayBeItsGroups(t *testing.T) {
	t.Parallel()
	const root, user = 0, 10001
	for _, tt := range []struct {
		mode      os.FileMode
		owner, me int
		want      bool
	}{
		{0o600, user, user, false},
		{0o400, root, root, false},
		{0o440, root, user, false}, // as Kubernetes mounts it for a pod with a group
		{0o640, root, user, false},
		{0o440, root, root, true},
		{0o440, user, user, true},
		{0o460, root, user, true},
		{0o444, root, user, true},
		{0o604, user, user, true},
		{0o620, user, user, true},
		{0o640, -1, user, true},
	} {
		require.Equal(t, tt.want, tooOpen(tt.mode, tt.owner, tt.me), "%o of %d for %d", tt.mode, tt.owner, tt.me)
	}
}
