package subprocess_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/subprocess"
)

func TestOfAnOutputBothEndsAreKept(t *testing.T) {
	t.Parallel()
	short := &subprocess.Output{}
	fmt.Fprintln(short, "  a word")
	assert.Equal(t, "a word", short.String())
	assert.Equal(t, "a word", short.LastWords())

	for _, step := range []int{1, 1000, 100_000} {
		text := "the first" + strings.Repeat("é.", 50_000) + "the last"
		long := &subprocess.Output{}
		for rest := text; rest != ""; {
			n, err := long.Write([]byte(rest[:min(step, len(rest))]))
			require.NoError(t, err)
			rest = rest[n:]
		}
		assert.True(t, strings.HasPrefix(long.String(), "the first"))
		assert.Contains(t, long.String(), " … ")
		assert.True(t, strings.HasSuffix(long.String(), "the last"))
		assert.InDelta(t, 4096, len(long.String()), 10)
		assert.True(t, strings.HasSuffix(long.LastWords(), "the last"))
		assert.InDelta(t, 2048, len(long.LastWords()), 5)
		assert.True(t, strings.HasSuffix(long.String(), long.LastWords()[10:]))
	}
}
