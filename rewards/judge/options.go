package judge

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// Asking is what all scorers that chat have as options.
type Asking struct {
	Endpoint
	// AnswerRetries is how often an answer that cannot be read is asked for again. 1.
	AnswerRetries int `json:"answer_retries"`
	// ExtraBody is sent with every request, for what only some engines know.
	ExtraBody map[string]any `json:"extra_body"`
}

// Sampling says how answers are drawn. Null leaves a parameter to the engine.
type Sampling struct {
	Temperature *float64 `json:"temperature"`
	TopP        *float64 `json:"top_p"`
	MaxTokens   int      `json:"max_tokens"`
	// Seed makes draws repeatable, and their answers worth remembering. A further
	// attempt at an answer adds 1 to it.
	Seed *int64 `json:"seed"`
}

// Pictures says how frames are sent.
type Pictures struct {
	// ImageFormat is "png", "jpeg", "as_is" (the bytes the picture came in, where it
	// came as PNG, JPEG or WebP, and PNG where not), or "auto" (default): PNG, and
	// JPEG for several frames in one message, which as PNG would be tens of megabytes.
	ImageFormat string `json:"image_format"`
	// JPEGQuality is 1 to 100; 95.
	JPEGQuality int `json:"jpeg_quality"`
	// Resize makes every frame a square of this side in pixels, bicubic; 0: no change.
	Resize int `json:"resize"`
}

// The values of image_format.
const (
	formatAuto = "auto"
	formatPNG  = "png"
	formatJPEG = "jpeg"
	formatAsIs = "as_is"
)

// Bounds of options: more is a slip of the keyboard.
const (
	maxAnswerRetries = 10
	maxSide          = 8192
	maxTemplate      = 1 << 20
)

func defaultAsking() Asking { return Asking{AnswerRetries: 1} }

func defaultPictures() Pictures { return Pictures{ImageFormat: formatAuto, JPEGQuality: 95} }

func greedy(maxTokens int) Sampling { return Sampling{Temperature: new(float64), MaxTokens: maxTokens} }

func (a *Asking) endpoint() Endpoint { return a.Endpoint }

func (a *Asking) validate() error {
	if a.AnswerRetries < 0 || a.AnswerRetries > maxAnswerRetries {
		return fmt.Errorf("answer_retries: %d, want 0 to %d", a.AnswerRetries, maxAnswerRetries)
	}
	return nil
}

func (s *Sampling) validate() error {
	var errs []error
	if t := s.Temperature; t != nil && !(*t >= 0 && *t <= 100) {
		errs = append(errs, fmt.Errorf("temperature: %v, want 0 to 100", *t))
	}
	if p := s.TopP; p != nil && !(*p > 0 && *p <= 1) {
		errs = append(errs, fmt.Errorf("top_p: %v, want above 0, at most 1", *p))
	}
	if s.MaxTokens < 0 {
		errs = append(errs, fmt.Errorf("max_tokens: %d, want 0 (the engine's) or more", s.MaxTokens))
	}
	return errors.Join(errs...)
}

func (p *Pictures) validate() error {
	errs := []error{oneOf("image_format", p.ImageFormat, formatAuto, formatPNG, formatJPEG, formatAsIs)}
	if p.JPEGQuality < 1 || p.JPEGQuality > 100 {
		errs = append(errs, fmt.Errorf("jpeg_quality: %d, want 1 to 100", p.JPEGQuality))
	}
	if p.Resize < 0 || p.Resize > maxSide {
		errs = append(errs, fmt.Errorf("resize: %d, want 0 (no change) to %d", p.Resize, maxSide))
	}
	if p.Resize > 0 && p.ImageFormat == formatAsIs {
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

// positive checks an option that counts something.
func positive(name string, got int) error {
	if got >= 1 {
		return nil
	}
	return fmt.Errorf("%s: %d, want 1 or more", name, got)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// The documentation of the options above.

func askingDocs() []rewards.Option {
	return append(endpointDocs(),
		rewards.Option{Name: "answer_retries", Type: "int", Default: "1", Doc: "how often an answer that cannot be read is asked for again, past the cache"},
		rewards.Option{Name: "extra_body", Type: "object", Default: "none", Doc: `sent with every request: {"chat_template_kwargs": {"enable_thinking": false}}`})
}

func endpointDocs() []rewards.Option {
	return []rewards.Option{
		{Name: "engine", Type: "string", Default: "the engines of reward_model", Doc: "who is asked: an entry of the configuration"},
		{Name: "model", Type: "string", Default: "the engine's", Doc: "the model's name at the engine"},
	}
}

func samplingDocs(temperature, topP, maxTokens string) []rewards.Option {
	return []rewards.Option{
		{Name: "temperature", Type: "number", Default: temperature, Doc: "null leaves it to the engine"},
		{Name: "top_p", Type: "number", Default: topP, Doc: "null leaves it to the engine"},
		{Name: "max_tokens", Type: "int", Default: maxTokens, Doc: "the longest answer; 0 leaves it to the engine"},
		{Name: "seed", Type: "int", Default: "none", Doc: "makes a draw repeatable, and remembered"},
	}
}

func pictureDocs(resize string) []rewards.Option {
	return []rewards.Option{
		{Name: "image_format", Type: "string", Default: formatAuto, Doc: "png, jpeg, as_is (the bytes it came in), or auto: png, and jpeg for several frames in one message"},
		{Name: "jpeg_quality", Type: "int", Default: "95", Doc: "1 to 100"},
		{Name: "resize", Type: "int", Default: resize, Doc: "make every frame a square of this side, bicubic; 0: no change"},
	}
}

func frameIntervalDoc() rewards.Option {
	return rewards.Option{Name: "frame_interval", Type: "int", Default: "4", Doc: "ask about every nth frame of a video, and take the mean"}
}

// words joins what a message lists.
func words(list []string) string { return strings.Join(list, ", ") }
