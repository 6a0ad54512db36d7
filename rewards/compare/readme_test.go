package compare_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/compare"
)

func TestTheReadmeNamesEveryOptionWithItsDefault(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("README.md")
	require.NoError(t, err)
	section := func(title string) string {
		_, text, found := strings.Cut(string(file), "\n## "+title+"\n")
		require.True(t, found, title)
		text, _, _ = strings.Cut(text, "\n## ")
		return text
	}
	for _, spec := range compare.Specs(nil) {
		text := section(spec.Name)
		if spec.Name == "pairwise" || spec.Name == "listwise" {
			text += section("What `pairwise` and `listwise` share")
		}
		for _, o := range spec.Options {
			assert.Contains(t, text, "| `"+o.Name+"` | "+o.Default+" |", spec.Name)
		}
	}
}
