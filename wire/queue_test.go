package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/wire"
)

func TestAQueueIsNamedAfterItsProfileAndTheDigest(t *testing.T) {
	t.Parallel()
	for want, of := range map[string][2]string{
		"ocr":             {"ocr", ""},
		"_":               {"", ""},
		"___3fa9":         {"", "3fa9"},
		"ocr__3fa9":       {"ocr", "3fa9"},
		"_41_20b_2e_2a-c": {"A b.*-c", ""},
		"a_5f_5fb":        {"a__b", ""},
	} {
		assert.Equal(t, want, wire.QueueName(of[0], of[1]))
	}
	long := wire.QueueName(strings.Repeat("A", 300), "3fa9")
	assert.True(t, strings.HasPrefix(long, "_-"))
	assert.LessOrEqual(t, len(long), 100)
}

func TestProfilesOfDifferentNameOrDigestHaveDifferentQueues(t *testing.T) {
	t.Parallel()
	parts := []string{"", "a", "A", "_", "__", "a_", "_a", "-", "_-", "61", "_61", "a__", "default", strings.Repeat("x", 99), strings.Repeat("x", 100), strings.Repeat("x", 101)}
	seen := map[string][2]string{}
	for _, profile := range parts {
		for _, digest := range parts {
			name := wire.QueueName(profile, digest)
			before, taken := seen[name]
			require.False(t, taken, "%q and %q share the queue %q", before, [2]string{profile, digest}, name)
			seen[name] = [2]string{profile, digest}
		}
	}
}

func FuzzQueueName(f *testing.F) {
	f.Add("ocr", "3fa9", "ocr__3fa9", "")
	f.Add("", "", "_", "")
	f.Add(strings.Repeat("A", 40), "b", strings.Repeat("A", 40)+"b", "")
	f.Fuzz(func(t *testing.T, profile, digest, profile2, digest2 string) {
		one, other := wire.QueueName(profile, digest), wire.QueueName(profile2, digest2)
		for _, name := range []string{one, other} {
			require.NotEmpty(t, name)
			require.LessOrEqual(t, len(name), 100)
			require.Empty(t, strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_"))
		}
		require.Equal(t, profile == profile2 && digest == digest2, one == other)
	})
}
