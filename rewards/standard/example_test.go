package standard_test

import (
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/standard"
)

// The registry knows what the configuration may name, and says so.
func ExampleRegister() {
	var reg rewards.Registry
	standard.Register(&reg, standard.Deps{})
	fmt.Println(reg.Names())
	_, err := reg.Build("jpeg", nil)
	fmt.Println(err)
	// Output:
	// [jpeg_compressibility jpeg_incompressibility ocr python]
	// unknown scorer "jpeg"; known are jpeg_compressibility, jpeg_incompressibility, ocr, python
}
