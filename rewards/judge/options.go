package judge

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

func defaultPictures() chat.Pictures { return chat.DefaultPictures(chat.FormatAuto) }

// checkPictures checks the options of pictures, of which the scorers here take every
// format.
func checkPictures(p *chat.Pictures) error {
	return p.Validate(chat.FormatAuto, chat.FormatPNG, chat.FormatJPEG, chat.FormatAsIs) // it names the option
}

func pictureDocs(resize string) []rewards.Option {
	return chat.PictureDocs(chat.FormatAuto, "png, jpeg, as_is (the bytes it came in), or auto: png, and jpeg for several frames in one message", resize)
}

// interval is which frames of a video are asked about one by one.
type interval struct {
	FrameInterval int                  `json:"frame_interval"`
	Frames        *rewards.FrameChoice `json:"frames"` // instead of FrameInterval
}

func (o interval) choice() rewards.FrameChoice {
	return rewards.FramesOr(o.Frames, rewards.EveryFrame(o.FrameInterval))
}

func frameDocs() []rewards.Option {
	return []rewards.Option{rewards.FramesOption("every:4"), frameIntervalDoc()}
}

func frameIntervalDoc() rewards.Option {
	return rewards.Option{Name: "frame_interval", Type: "int", Default: "4", Doc: "n: the judge is asked about every nth frame of a video, and the value is the mean; ignored if frames is set"}
}

// parseTemplate reads a question of the configuration.
func parseTemplate(option, text string) (prompt.Template, error) {
	return prompt.Parse(option, text, prompt.Prompt, prompt.Response, prompt.GroundTruth, prompt.DataSource) // it names the option
}

// oneOf checks an option that is a word.
func oneOf(name, got string, want ...string) error {
	if slices.Contains(want, got) {
		return nil
	}
	return fmt.Errorf("%s: %q is unknown, want one of %q", name, got, want)
}

// positive checks the interval.
func positive(got int) error {
	if got >= 1 {
		return nil
	}
	return fmt.Errorf("frame_interval: %d, want 1 or more", got)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// words joins what a message lists.
func words(list []string) string { return strings.Join(list, ", ") }

// captionOrTruth is the prompt of a sample or, where it has none, a ground truth that is
// a string.
func captionOrTruth(s *rewards.Sample) (string, error) {
	if _, ok := prompt.Text(s, prompt.Prompt); !ok {
		if truth, _ := s.Truth(); truth != "" {
			return truth, prompt.Bounded(s, "prompt", truth) // it names the sample
		}
	}
	return prompt.Of(s, prompt.Prompt) // it names the sample
}

// text is a JSON string, or empty.
func text(raw json.RawMessage) string {
	var v string
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return ""
	}
	return v
}

// hasVisual says whether the sample carries an image or a video.
func hasVisual(s *rewards.Sample) bool {
	_, err := s.Visual()
	return err == nil
}

// isVideo says whether what a judge is shown of the sample is a video.
func isVideo(s *rewards.Sample) bool {
	m, err := s.Visual()
	return err == nil && m.Kind == rewards.Video
}
