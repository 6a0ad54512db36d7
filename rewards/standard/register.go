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

// Deps provides what the scorers need from the process. A missing field only prevents the scorers
// that need it from being built: every scorer is registered, so that it can be listed and its
// options can be shown.
type Deps struct {
	// Readers provides the readers of the ocr scorer. The owner of the readers closes them, after
	// the managers that use them.
	Readers ocr.Readers
	// Python runs functions in Python. If nil, Register uses the defaults. The managers that use
	// the functions close them.
	Python *python.Functions
	// Judges provides the engines of the judges.
	Judges judge.Deps
	// Upstreams provides the connections of scorers that use other servers.
	Upstreams remote.Upstreams
	// Preference provides the devices and folders of the ONNX models.
	Preference preference.Deps
	// VLM provides the vision-language models on this machine. If nil, there are none.
	VLM *vlm.Judges
}

// Register adds every scorer of rewardloop to reg. It panics if one of the names is already
// registered, as Registry.Register does.
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
