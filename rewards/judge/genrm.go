package judge

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// The words of verl_omni/utils/reward_score/genrm_ocr.py (Apache-2.0), on which its
// published values rest.
const (
	genrmSystem = "You are a helpful assistant."
	genrmPrompt = "Please output only the text content from the image without any additional descriptions or formatting."
)

// maxTarget bounds a target in code points, as rewards/ocr does: the distance takes
// at most 2·maxTarget² steps.
const maxTarget = 4096

type genrmOptions struct {
	chat.Asking
	chat.Sampling
	chat.Pictures
	interval
}

func (o *genrmOptions) validate() error {
	return errors.Join(o.Asking.Validate(), o.Sampling.Validate(), checkPictures(&o.Pictures), positive(o.FrameInterval))
}

func genrmSpec(d Deps) rewards.Spec {
	docs := append(chat.AskingDocs(), chat.SamplingDocs("0.7", "0.8", "4096")...)
	docs = append(docs, pictureDocs("0")...)
	return rewards.Spec{
		AsksEngine: true,
		Name:       "genrm_ocr",
		Summary:    "a vision-language model reads the text of an image or video; the reward compares the text with the ground truth (verl-omni)",
		Options:    append(docs, frameDocs()...),
		Build: build(d, func() *genrmOptions {
			temperature, topP := 0.7, 0.8
			return &genrmOptions{
				Asking: chat.DefaultAsking(), Pictures: defaultPictures(), interval: interval{FrameInterval: 4},
				Sampling: chat.Sampling{Temperature: &temperature, TopP: &topP, MaxTokens: 4096},
			}
		}, newGenRM),
	}
}

// newGenRM makes genrm_ocr: variant D of the OCR rewards. The model sees pixels and
// never the target. An empty answer is a reading: there is no text in the picture.
func newGenRM(o *genrmOptions) (*scorer, error) {
	compare, err := ocr.Preset(ocr.VerlOmni)
	if err != nil {
		return nil, fmt.Errorf("genrm_ocr: %w", err)
	}
	return &scorer{
		looks: true, asking: o.Asking, sampling: o.Sampling, pictures: o.Pictures,
		fields: numbers("distance", "target_len"),
		prepare: func(s *rewards.Sample) (*inquiry, error) {
			target, ok := s.Truth()
			if !ok {
				return nil, fmt.Errorf("%w: sample %q has no ground_truth that is a string, the text to read", rewards.BadInput, s.ID)
			}
			if n := utf8.RuneCountInString(target); n > maxTarget {
				return nil, fmt.Errorf("%w: sample %q has a wanted text of %d characters, want at most %d", rewards.BadInput, s.ID, n, maxTarget)
			}
			inq := one(each(o.choice()), genrmPrompt, func(r chat.Reply) (reading, error) {
				m, err := compare.Compare(target, r.Text)
				if err != nil {
					return reading{}, fmt.Errorf("comparing: %w", err)
				}
				return reading{m.Value, map[string]float64{"distance": float64(m.Distance), "target_len": float64(m.Length)}}, nil
			})
			inq.system = genrmSystem
			return inq, nil
		},
	}, nil
}
