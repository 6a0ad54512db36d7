package python

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// sourceImage is the picture from which the first one was edited: the second, as in every protocol
// of package remote.
const sourceImage = "source image"

const promptInput = "prompt"

// InputWords returns the values of Options.Inputs.
func InputWords() []string {
	return []string{string(rewards.Image), sourceImage, string(rewards.Video), string(rewards.Audio), promptInput}
}

// lacking says what of Inputs a sample does not have; nil: it has all.
func (o Options) lacking(sample *rewards.Sample) error {
	if len(o.Inputs) == 0 {
		return nil
	}
	has := map[string]bool{promptInput: sample.Prompt != ""}
	images := 0
	for _, m := range sample.Media {
		has[string(m.Kind)] = true
		if m.Kind == rewards.Image {
			images++
		}
	}
	has[sourceImage] = images > 1
	lacks := slices.DeleteFunc(slices.Clone(o.Inputs), func(input string) bool { return has[input] })
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s needs %s, but sample %q has no %s", rewards.BadInput, o.label(),
		strings.Join(o.Inputs, ", "), sample.ID, strings.Join(lacks, ", no "))
}
