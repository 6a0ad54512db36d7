package jpeg_test

import (
	"fmt"

	"github.com/rewardloop/rewardloop/rewards/jpeg"
)

// A grey picture costs the header and a few bits per block.
func ExampleSize() {
	rgb := make([]byte, 64*48*3)
	for i := range rgb {
		rgb[i] = 128
	}
	n, err := jpeg.Size(rgb, 64, 48, 95)
	fmt.Println(n, err)
	// Output: 673 <nil>
}
