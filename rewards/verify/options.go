package verify

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// decode reads a kind's options one by one.
func decode(raw json.RawMessage, into any, known []rewards.Option) error {
	var all []string
	for _, k := range known {
		all = append(all, k.Name)
	}
	return service.Decode(raw, into, func(name string) error { // names the options
		if !slices.Contains(all, name) {
			return fmt.Errorf("there is no such option; want one of %s", strings.Join(all, ", "))
		}
		return nil
	})
}

// header is what every request of a verifier carries: JSON goes and comes.
func header(a *service.Addresses) http.Header {
	h := a.RequestHeader("application/json")
	h.Set("Accept", "application/json")
	return h
}
