package standard_test

import (
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/standard"
)

// The registry knows what the configuration may name, and says so.
func ExampleRegister() {
	var reg rewards.Registry
	standard.Register(&reg, standard.Deps{})
	fmt.Println(len(reg.Names()), "scorers, the first of them", reg.Names()[0])
	_, err := reg.Build("jpeg", nil)
	before, _, _ := strings.Cut(err.Error(), ", ")
	fmt.Println(before)
	// Output:
	// 44 scorers, the first of them aesthetic
	// unknown scorer "jpeg"; known are aesthetic
}
