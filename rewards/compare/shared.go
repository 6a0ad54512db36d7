package compare

import (
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

// shared is what the template wants of the whole group: the first member that has it
// gives it, for all answer the same prompt.
func shared(t prompt.Template, g *rewards.Group) (map[string]string, error) {
	values := map[string]string{}
	for _, name := range ofGroup() {
		if !t.Has(name) {
			continue
		}
		for _, m := range g.Members {
			if values[name] == "" {
				values[name], _ = prompt.Text(m.Sample, name)
			}
		}
		what := strings.Trim(name, "{}")
		switch v := values[name]; {
		case v == "":
			return nil, fmt.Errorf("%w: group %q has no %s", rewards.BadInput, g.UID, what)
		case len(v) > prompt.MaxText:
			return nil, fmt.Errorf("%w: the %s of group %q has %d bytes, a judge is shown at most %d", rewards.BadInput, what, g.UID, len(v), prompt.MaxText)
		}
	}
	return values, nil
}
