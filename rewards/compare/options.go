package compare

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
)

// asking says who is asked and how answers are drawn. Null leaves a parameter to the
// engine.
type asking struct {
	// Engine names an entry of the configuration; empty: the engines of reward_model.
	Engine string `json:"engine"`
	// Model overrides the engine's own.
	Model string `json:"model"`
	// AnswerRetries is how often an answer that cannot be read is asked for again. 1.
	AnswerRetries int `json:"answer_retries"`
	// ExtraBody is sent with every request, for what only some engines know.
	ExtraBody map[string]any `json:"extra_body"`
	// Concurrency bounds the questions of one group that are under way together. 16.
	Concurrency int      `json:"concurrency"`
	Temperature *float64 `json:"temperature"`
	TopP        *float64 `json:"top_p"`
	MaxTokens   int      `json:"max_tokens"`
	// Seed makes draws repeatable, and their answers worth remembering. A further
	// attempt at an answer adds 1 to it.
	Seed *int64 `json:"seed"`
	// System is the system message; empty: none.
	System string `json:"system"`
}

// showing says what of a member is shown, and how pictures are sent.
type showing struct {
	// Show is "auto" (the first image or video where a member has one, else its
	// response), "text" or "media".
	Show string `json:"show"`
	// Frames is how many frames of a video are shown, evenly spread; 4.
	Frames int `json:"frames"`
	// ImageFormat is "jpeg" (default: each picture is sent with every comparison of its
	// member, and as PNG it takes ten times as much), "png", or "as_is" (the bytes the
	// picture came in, where it came as PNG, JPEG or WebP, and PNG where not).
	ImageFormat string `json:"image_format"`
	// JPEGQuality is 1 to 100; 95.
	JPEGQuality int `json:"jpeg_quality"`
	// Resize makes every frame a square of this side in pixels, bicubic; 0: no change.
	Resize int `json:"resize"`
}

// Words of options.
const (
	showAuto  = "auto"
	showText  = "text"
	showMedia = "media"

	formatPNG  = "png"
	formatJPEG = "jpeg"
	formatAsIs = "as_is"
)

// Bounds of options: more is a slip of the keyboard.
const (
	maxAnswerRetries = 10
	maxConcurrency   = 256
	maxFrames        = 64
	maxSide          = 8192
	maxTemplate      = 1 << 20
)

func defaultAsking() asking {
	return asking{AnswerRetries: 1, Concurrency: 16, Temperature: new(float64), MaxTokens: 1024}
}

func defaultShowing() showing {
	return showing{Show: showAuto, Frames: 4, ImageFormat: formatJPEG, JPEGQuality: 95}
}

func (a *asking) validate() error {
	errs := []error{
		within("answer_retries", a.AnswerRetries, 0, maxAnswerRetries),
		within("concurrency", a.Concurrency, 1, maxConcurrency),
	}
	if t := a.Temperature; t != nil && !(*t >= 0 && *t <= 100) {
		errs = append(errs, fmt.Errorf("temperature: %v, want 0 to 100", *t))
	}
	if p := a.TopP; p != nil && !(*p > 0 && *p <= 1) {
		errs = append(errs, fmt.Errorf("top_p: %v, want above 0, at most 1", *p))
	}
	if a.MaxTokens < 0 {
		errs = append(errs, fmt.Errorf("max_tokens: %d, want 0 (the engine's) or more", a.MaxTokens))
	}
	return errors.Join(errs...)
}

func (s *showing) validate() error {
	errs := []error{
		oneOf("show", s.Show, showAuto, showText, showMedia),
		within("frames", s.Frames, 1, maxFrames),
		oneOf("image_format", s.ImageFormat, formatJPEG, formatPNG, formatAsIs),
		within("jpeg_quality", s.JPEGQuality, 1, 100),
		within("resize", s.Resize, 0, maxSide),
	}
	if s.Resize > 0 && s.ImageFormat == formatAsIs {
		errs = append(errs, errors.New("resize: a picture sent as_is is not resized; choose one of the two"))
	}
	return errors.Join(errs...)
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
	return []rewards.Option{
		{Name: "engine", Type: "string", Default: "the engines of reward_model", Doc: "who is asked: an entry of the configuration"},
		{Name: "model", Type: "string", Default: "the engine's", Doc: "the model's name at the engine"},
		{Name: "system", Type: "string", Default: "none", Doc: "the system message"},
		{Name: "answer_retries", Type: "int", Default: "1", Doc: "how often an answer that cannot be read is asked for again, past the cache"},
		{Name: "extra_body", Type: "object", Default: "none", Doc: `sent with every request: {"chat_template_kwargs": {"enable_thinking": false}}`},
		{Name: "concurrency", Type: "int", Default: "16", Doc: "questions of one group that are under way together"},
		{Name: "temperature", Type: "number", Default: "0", Doc: "null leaves it to the engine"},
		{Name: "top_p", Type: "number", Default: "the engine's", Doc: "null leaves it to the engine"},
		{Name: "max_tokens", Type: "int", Default: "1024", Doc: "the longest answer; 0 leaves it to the engine"},
		{Name: "seed", Type: "int", Default: "none", Doc: "makes a draw of the engine repeatable, and remembered"},
	}
}

func showingDocs() []rewards.Option {
	return []rewards.Option{
		{Name: "show", Type: "string", Default: showAuto, Doc: "of a member: auto (its first image or video, else its response), text, media"},
		{Name: "frames", Type: "int", Default: "4", Doc: "frames of a video that are shown, at floor(i·N/frames)"},
		{Name: "image_format", Type: "string", Default: formatJPEG, Doc: "jpeg, png, or as_is: the bytes it came in"},
		{Name: "jpeg_quality", Type: "int", Default: "95", Doc: "1 to 100"},
		{Name: "resize", Type: "int", Default: "0", Doc: "make every frame a square of this side, bicubic; 0: no change"},
	}
}

func referenceDoc() rewards.Option {
	return rewards.Option{
		Name: "reference", Type: "string", Default: "none",
		Doc: "where the reference answer stands that takes part in validation: ground_truth, extra_info.y.0.content",
	}
}
