package standard_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/standard"
)

// The registry knows what the configuration may name, and says so.
func ExampleRegister() {
	var reg rewards.Registry
	standard.Register(&reg, standard.Deps{})
	fmt.Println("ocr is a scorer:", slices.Contains(reg.Names(), "ocr"))
	_, err := reg.Build("jpeg", nil)
	message, _, _ := strings.Cut(err.Error(), ", want one of ")
	fmt.Println(message)
	// Output:
	// ocr is a scorer: true
	// unknown scorer "jpeg"
}
