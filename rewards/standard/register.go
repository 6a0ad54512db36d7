package standard

import (
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/jpeg"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// Deps is what the scorers need from the process that runs them. What is left out
// is missed only by a configuration that names a scorer needing it: every scorer
// is registered, so that it can be listed and its options shown.
type Deps struct {
	// Readers give ocr what reads the text in a picture. Whoever made them closes
	// them, after the managers that use them.
	Readers ocr.Readers
}

// Register adds every scorer that ships to reg. It panics if one of the names is
// taken, as Registry.Register does.
func Register(reg *rewards.Registry, deps Deps) {
	reg.Register(ocr.Spec(deps.Readers))
	for _, s := range jpeg.Specs() {
		reg.Register(s)
	}
}
