package standard

import (
	"encoding/json"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/compare"
	"github.com/rewardloop/rewardloop/rewards/jpeg"
	"github.com/rewardloop/rewardloop/rewards/judge"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/preference"
	"github.com/rewardloop/rewardloop/rewards/python"
	"github.com/rewardloop/rewardloop/rewards/remote"
	"github.com/rewardloop/rewardloop/rewards/text"
	"github.com/rewardloop/rewardloop/rewards/verify"
	"github.com/rewardloop/rewardloop/rewards/vlm"
)

// Deps is what the scorers need from the process that runs them. What is left out
// is missed only by a configuration that names a scorer needing it: every scorer
// is registered, so that it can be listed and its options shown.
type Deps struct {
	// Readers give ocr what reads the text in a picture. Whoever made them closes
	// them, after the managers that use them.
	Readers ocr.Readers
	// Python runs functions in Python; nil: with the defaults. The managers that use
	// the functions close them.
	Python *python.Functions
	// Judges give the judges whom they ask.
	Judges judge.Deps
	// Upstreams give the scorers that ask other servers their way out.
	Upstreams remote.Upstreams
	// Preference gives the scorers of ONNX models the devices they run on.
	Preference preference.Deps
	// VLM are the vision-language models that run here; nil: none.
	VLM *vlm.Judges
}

// Register adds every scorer that ships to reg. It panics if one of the names is
// taken, as Registry.Register does.
func Register(reg *rewards.Registry, deps Deps) {
	reg.Register(ocr.Spec(deps.Readers))
	if deps.Python == nil {
		deps.Python = python.NewFunctions(python.Config{}, nil)
	}
	reg.Register(deps.Python.Spec())
	reg.Verifier = func(kind string, raw json.RawMessage) (rewards.Verifier, error) {
		return verify.New(kind, raw, deps.Upstreams)
	}
	for _, s := range slices.Concat(jpeg.Specs(), text.Specs(), judge.Specs(deps.Judges), compare.Specs(deps.Judges.Clients), remote.Specs(deps.Upstreams), preference.Specs(deps.Preference), vlm.Specs(deps.VLM)) {
		reg.Register(s)
	}
}
