package preference_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/preference"
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
	shared := section("What all of them share")
	for _, spec := range preference.Specs(preference.Deps{}) {
		text := section(spec.Name)
		for _, o := range spec.Options {
			row := "| `" + o.Name + "` | " + o.Default + " |"
			if o.Name != "model" && strings.Contains(shared, row) {
				continue
			}
			assert.Contains(t, text, row, spec.Name)
		}
	}
}
