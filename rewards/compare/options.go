package compare

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

// asking says who is asked and how answers are drawn.
type asking struct {
	chat.Asking
	chat.Sampling
	// Concurrency is the maximum number of questions in flight for one group. 16.
	Concurrency int `json:"concurrency"`
	// System is the system message; empty: none.
	System string `json:"system"`
}

// showing says what of a member is shown, and how pictures are sent.
type showing struct {
	// Show is "auto" (the first image or video where a member has one, else its
	// response), "text" or "media".
	Show string `json:"show"`
	// Frames are those of a video that are shown; uniform:4.
	Frames rewards.FrameChoice `json:"frames"`
	// Pictures are sent as JPEG by default: each is sent with every comparison of its
	// member, and as PNG it takes ten times as much.
	chat.Pictures
}

// Words of options.
const (
	showAuto  = "auto"
	showText  = "text"
	showMedia = "media"
)

// Bounds of options: more is a slip of the keyboard.
const (
	maxConcurrency = 256
	maxFrames      = 64
)

func defaultAsking() asking {
	return asking{Asking: chat.DefaultAsking(), Sampling: chat.Greedy(1024), Concurrency: 16}
}

func defaultShowing() showing {
	return showing{Show: showAuto, Frames: rewards.EvenFrames(4), Pictures: chat.DefaultPictures(chat.FormatJPEG)}
}

func (a *asking) validate() error {
	return errors.Join(a.Asking.Validate(), a.Sampling.Validate(), within("concurrency", a.Concurrency, 1, maxConcurrency))
}

func (s *showing) validate() error {
	return errors.Join(
		oneOf("show", s.Show, showAuto, showText, showMedia),
		within("frames", max(s.Frames.Uniform(), 1), 1, maxFrames),
		s.Validate(chat.FormatJPEG, chat.FormatPNG, chat.FormatAsIs),
	)
}

// oneOf checks an option that is a word.
func oneOf(name, got string, want ...string) error {
	if slices.Contains(want, got) {
		return nil
	}
	return fmt.Errorf("%s: %q is unknown, want one of %q", name, got, want)
}

// within checks an option that counts something.
func within(name string, got, low, high int) error {
	if got >= low && got <= high {
		return nil
	}
	return fmt.Errorf("%s: %d, want %d to %d", name, got, low, high)
}

// The documentation of the options above.

func askingDocs() []rewards.Option {
	docs := append(chat.AskingDocs(), chat.SamplingDocs("0", "the engine's", "1024")...)
	return append(
		docs,
		rewards.Option{Name: "system", Type: "string", Default: "none", Doc: "system message of the question"},
		rewards.Option{Name: "concurrency", Type: "int", Default: "16", Doc: "maximum number of questions in flight for one group"},
	)
}

func showingDocs() []rewards.Option {
	docs := []rewards.Option{
		{Name: "show", Type: "string", Default: showAuto, Doc: "what the judge sees of a member: text (the response), media (the first image or video), or auto (media if there is one, else text)"},
		{Name: "frames", Type: "string", Default: "uniform:4", Doc: "frames of a video that the judge sees: " + rewards.FramesForm + " (at floor(i·N/n)); a number n means uniform:n"},
	}
	return append(docs, chat.PictureDocs(chat.FormatJPEG, "jpeg, png, or as_is: the bytes it came in", "0")...)
}

func referenceDoc() rewards.Option {
	return rewards.Option{
		Name: "reference", Type: "string", Default: "none",
		Doc: "field of the sample with a reference answer, which joins each group of validation as one more member: ground_truth, extra_info.y.0.content",
	}
}

// ofGroup are the placeholders that stand for what all members have in common.
func ofGroup() []string { return []string{prompt.Prompt, prompt.GroundTruth, prompt.DataSource} }

// parseTemplate reads a question of the configuration, in which every one of required
// stands.
func parseTemplate(text string, required []string, more ...string) (prompt.Template, error) {
	t, err := prompt.Parse("template", text, slices.Concat(ofGroup(), required, more)...)
	errs := rewards.Faults{err}
	for _, p := range required {
		errs.Add(!t.Has(p), "template: has no %s", p)
	}
	return t, errors.Join(errs...)
}

// filled puts into a template what its placeholders stand for, in one of values.
func filled(t prompt.Template, values ...map[string]string) string {
	text, _ := t.FillWith(func(placeholder string) (string, error) { // which does not fail
		for _, v := range values {
			if text, ok := v[placeholder]; ok {
				return text, nil
			}
		}
		return "", nil
	})
	return text
}
