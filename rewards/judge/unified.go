package judge

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/rewards"
)

// The prompts UnifiedReward was trained on, and on which its values rest: of version
// 1.5 as flow_grpo/rewards.py has it (unifiedreward_score_sglang; MIT), of 2.0 as
// verl_omni/utils/reward_score/unified_reward.py (Apache-2.0) and, for videos,
// point_score_APS_video_generation.py of CodeGoat24/UnifiedReward have it.
const (
	unified15 = "<image>\nYou are given a text caption and a generated image based on that caption. " +
		"Your task is to evaluate this image based on two key criteria:\n" +
		"1. Alignment with the Caption: Assess how well this image aligns with the provided caption. " +
		"Consider the accuracy of depicted objects, their relationships, and attributes as described in the caption.\n" +
		"2. Overall Image Quality: Examine the visual quality of this image, including clarity, detail preservation, " +
		"color accuracy, and overall aesthetic appeal.\n" +
		"Based on the above criteria, assign a score from 1 to 5 after 'Final Score:'.\n" +
		"Your task is provided as follows:\nText Caption: [%s]"
	unified20 = "You are presented with a generated %[1]s and its associated text caption. " +
		"Your task is to analyze the %[1]s across multiple dimensions in relation to the caption. Specifically:\n" +
		"Provide overall assessments for the %[1]s along the following axes (each rated from 1 to 5):\n" +
		"- Alignment Score: How well the %[1]s matches the caption in terms of content.\n" +
		"%[2]s\n\n" +
		"Output your evaluation using the format below:\n\n" +
		"Alignment Score (1-5): X\n%[3]s Score (1-5): Y\nStyle Score (1-5): Z\n\n" +
		"Your task is provided as follows:\nText Caption: [%[4]s]"
	unifiedImageAxes = "- Coherence Score: How logically consistent the image is (absence of visual glitches, object distortions, etc.).\n" +
		"- Style Score: How aesthetically appealing the image looks, regardless of caption accuracy."
	unifiedVideoAxes = "- Physics Score: How well the gravity, movements, collisions, and interactions make physical sense.\n" +
		"- Style Score: How visually appealing the video looks, regardless of caption accuracy."
)

// The patterns. space is Python's \s.
const (
	space   = `[\s\v\x1c-\x1f\x{85}\p{Z}]*`
	spaces  = `[\s\v\x1c-\x1f\x{85}\p{Z}]+`
	decimal = `[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?`
	// emphasis is what Markdown puts around a word; only the strict reading ignores it.
	emphasis = `[*_]*`
)

//nolint:gochecknoglobals // patterns, never changed
var (
	finalScore  = regexp.MustCompile(`Final Score:` + space + `([1-5](?:\.\d+)?)`)
	anyNumber   = regexp.MustCompile(decimal)
	imageAxis   = axisPattern("Coherence", "")
	videoAxis   = axisPattern("Physics", "")
	strictImage = axisPattern("Coherence", emphasis)
	strictVideo = axisPattern("Physics", emphasis)
)

func axisPattern(second, around string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)(Alignment|` + second + `|Style)` + spaces + `Score` + around + space + `(?:\(1-5\))?` + around +
		space + `:` + around + space + around + `(` + decimal + `)`)
}

// Words of the options.
const (
	version15     = "1.5"
	version20     = "2.0"
	parseVerlOmni = "verl_omni"
	parseStrict   = "strict"
	videoClip     = "clip"
	videoFrames   = "frames"
)

type unifiedOptions struct {
	chat.Asking
	chat.Sampling
	chat.Pictures
	Version string `json:"version"`
	Parse   string `json:"parse"`
	Video   string `json:"video"`

	Frames        *rewards.FrameChoice `json:"frames"`
	FrameInterval int                  `json:"frame_interval"`
}

// clip is which frames are shown together, singly which are asked about one by one.
func (o *unifiedOptions) clip() rewards.FrameChoice {
	return rewards.FramesOr(o.Frames, rewards.EvenFrames(16))
}

func (o *unifiedOptions) singly() rewards.FrameChoice {
	return rewards.FramesOr(o.Frames, rewards.EveryFrame(o.FrameInterval))
}

func (o *unifiedOptions) validate() error {
	errs := rewards.Faults{
		o.Asking.Validate(), o.Sampling.Validate(), checkPictures(&o.Pictures),
		oneOf("version", o.Version, version15, version20),
		oneOf("parse", o.Parse, parseVerlOmni, parseStrict),
		oneOf("video", o.Video, videoClip, videoFrames),
		positive(o.FrameInterval),
	}
	errs.Add(o.clip().Uniform() > maxFrames, "frames: %d, want at most %d", o.clip().Uniform(), maxFrames)
	return errors.Join(errs...)
}

func unifiedSpec(d Deps) rewards.Spec {
	docs := append(chat.AskingDocs(), chat.SamplingDocs("0", "1 (1.5: the engine's)", "512 (1.5: the engine's)")...)
	docs = append(docs, pictureDocs("0 (1.5: 512)")...)
	docs = append(
		docs,
		rewards.Option{Name: "version", Type: "string", Default: version20, Doc: "version of UnifiedReward: 2.0, three axes (verl-omni); or 1.5, one score (flow_grpo)"},
		rewards.Option{Name: "parse", Type: "string", Default: parseVerlOmni, Doc: "how the answer is read: verl_omni, any axis that is named, else the first three numbers; or strict, every axis must be named with 1 to 5 (Markdown is ignored)"},
		rewards.Option{Name: "video", Type: "string", Default: videoClip, Doc: "how a video is judged: clip, all frames in one question with the axes for videos (2.0 only); or frames, each frame in a question of its own (verl-omni)"},
		rewards.Option{Name: "frames", Type: "string", Default: "uniform:16; with video: frames and 1.5 every:1", Doc: "frames of a video that are shown: " + rewards.FramesForm + " (at floor(i·N/n)); a number n means uniform:n"},
		rewards.Option{Name: "frame_interval", Type: "int", Default: "1", Doc: "n: with video: frames every nth frame is judged; ignored if frames is set"},
	)
	spec := rewards.Spec{
		AsksEngine: true,
		Name:       "unified_reward",
		Summary:    "UnifiedReward, a model of human preference: alignment, coherence or physics, and style of an image or video (verl-omni, flow_grpo)",
		Options:    docs,
	}
	spec.Build = func(raw json.RawMessage) (rewards.Scorer, error) {
		// The version gives other options their defaults. Faults are found below.
		var chosen struct {
			Version string `json:"version"`
		}
		if len(raw) > 0 {
			_ = json.Unmarshal(raw, &chosen)
		}
		return build(d, func() *unifiedOptions { return unifiedDefaults(chosen.Version) }, newUnified)(raw)
	}
	return spec
}

func unifiedDefaults(version string) *unifiedOptions {
	o := &unifiedOptions{
		Asking: chat.DefaultAsking(), Sampling: chat.Greedy(512), Pictures: defaultPictures(),
		Version: version20, Parse: parseVerlOmni, Video: videoClip, FrameInterval: 1,
	}
	topP := 1.0
	o.TopP = &topP
	if version == version15 {
		o.Sampling, o.Resize = chat.Greedy(0), 512
	}
	return o
}

func newUnified(o *unifiedOptions) (*scorer, error) {
	sc := &scorer{looks: true, asking: o.Asking, sampling: o.Sampling, pictures: o.Pictures}
	if o.Version == version15 {
		sc.fields = numbers("raw_score")
		sc.prepare = func(s *rewards.Sample) (*inquiry, error) {
			c, err := captionOrTruth(s)
			if err != nil {
				return nil, err
			}
			return one(each(o.singly()), fmt.Sprintf(unified15, c), readUnified15), nil
		}
		return sc, nil
	}
	sc.fields = numbers("raw_score", "alignment", "coherence", "physics", "style")
	sc.prepare = func(s *rewards.Sample) (*inquiry, error) {
		c, err := captionOrTruth(s)
		if err != nil {
			return nil, err
		}
		if isVideo(s) && o.Video == videoClip {
			return one(together(o.clip()), fmt.Sprintf(unified20, "video", unifiedVideoAxes, "Physics", c), o.reader(true)), nil
		}
		return one(each(o.singly()), fmt.Sprintf(unified20, "image", unifiedImageAxes, "Coherence", c), o.reader(false)), nil
	}
	return sc, nil
}

// readUnified15 is flow_grpo's _extract_scores: the first score after "Final Score:",
// divided by 5. Where it finds none it says 0; here that is a failure.
func readUnified15(r chat.Reply) (reading, error) {
	m := finalScore.FindStringSubmatch(r.Text)
	if m == nil {
		return reading{}, errors.New("no score of 1 to 5 after 'Final Score:'")
	}
	raw, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return reading{}, fmt.Errorf("the score is not a number: %w", err)
	}
	return reading{raw / 5, map[string]float64{"raw_score": raw}}, nil
}

// reader reads the three axes and makes their mean, clipped to 1 to 5, a value of
// 0 to 1: (mean − 1)/4.
func (o *unifiedOptions) reader(video bool) func(chat.Reply) (reading, error) {
	pattern, names := imageAxis, []string{"alignment", "coherence", "style"}
	if video {
		pattern, names = videoAxis, []string{"alignment", "physics", "style"}
	}
	strict := o.Parse == parseStrict
	if strict {
		pattern = strictImage
		if video {
			pattern = strictVideo
		}
	}
	return func(r chat.Reply) (reading, error) {
		axes, order, err := axesOf(r.Text, pattern)
		if err == nil && len(axes) == 0 && !strict {
			axes, order, err = firstNumbers(r.Text, names)
		}
		if err == nil && strict {
			err = allWithin(axes, names)
		}
		if err != nil {
			return reading{}, err
		}
		sum := 0.0
		for _, name := range order {
			sum += axes[name]
		}
		raw := sum / float64(len(order))
		axes["raw_score"] = raw
		return reading{(min(max(raw, 1), 5) - 1) / 4, axes}, nil
	}
}

// axesOf finds the axes and in which order they came first; of an axis that comes
// twice the last score counts.
func axesOf(text string, pattern *regexp.Regexp) (axes map[string]float64, order []string, err error) {
	axes = map[string]float64{}
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		name := strings.ToLower(m[1])
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, nil, fmt.Errorf("the score of %s overflows a float", name)
		}
		if _, twice := axes[name]; !twice {
			order = append(order, name)
		}
		axes[name] = v
	}
	return axes, order, nil
}

// firstNumbers takes the first three numbers of the text for the axes, as verl-omni
// does where it finds no axis. It reads "(1-5)" as 1 and -5; parse: strict does not.
func firstNumbers(text string, names []string) (map[string]float64, []string, error) {
	found := anyNumber.FindAllString(text, len(names))
	if len(found) < len(names) {
		return nil, nil, fmt.Errorf("no score of %s, and fewer than %d numbers", words(names), len(names))
	}
	axes := map[string]float64{}
	for i, name := range names {
		v, err := strconv.ParseFloat(found[i], 64)
		if err != nil {
			return nil, nil, fmt.Errorf("the score of %s overflows a float", name)
		}
		axes[name] = v
	}
	return axes, names, nil
}

func allWithin(axes map[string]float64, names []string) error {
	for _, name := range names {
		v, ok := axes[name]
		if !ok {
			return fmt.Errorf("no score of %s", name)
		}
		if v < 1 || v > 5 {
			return fmt.Errorf("the score of %s is %v, want 1 to 5", name, v)
		}
	}
	return nil
}
