package chat

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// Pictures contains the options of scorers that send frames of a picture or a video.
type Pictures struct {
	// ImageFormat is one of the formats below. Each scorer selects the formats that it accepts, and
	// its default.
	ImageFormat string `json:"image_format"`
	// JPEGQuality is the JPEG quality, 1 to 100; the default is 95.
	JPEGQuality int `json:"jpeg_quality"`
	// Resize is the side in pixels of the square to which every frame is resized (bicubic); 0: no
	// change.
	Resize int `json:"resize"`
}

// The values of image_format.
const (
	FormatPNG  = "png"
	FormatJPEG = "jpeg"
	// FormatAsIs sends the received bytes if they are PNG, JPEG or WebP, and otherwise PNG.
	FormatAsIs = "as_is"
	// FormatAuto is PNG, or JPEG for several frames in one message, which would be tens of
	// megabytes as PNG. Encode has no information about messages and treats FormatAuto as PNG.
	FormatAuto = "auto"
)

// maxSide bounds an option: more is a slip of the keyboard.
const maxSide = 8192

// DefaultPictures returns options with that format and without resizing.
func DefaultPictures(format string) Pictures { return Pictures{ImageFormat: format, JPEGQuality: 95} }

// Validate returns an error that lists all invalid fields. formats are the formats that the scorer
// accepts.
func (p *Pictures) Validate(formats ...string) error {
	var errs rewards.Faults
	errs.Add(!slices.Contains(formats, p.ImageFormat), "image_format: %q is unknown, want one of %q", p.ImageFormat, formats)
	errs.Add(p.JPEGQuality < 1 || p.JPEGQuality > 100, "jpeg_quality: %d, want 1 to 100", p.JPEGQuality)
	errs.Add(p.Resize < 0 || p.Resize > maxSide, "resize: %d, want 0 (no change) to %d", p.Resize, maxSide)
	errs.Add(p.Resize > 0 && p.ImageFormat == FormatAsIs, "resize: a picture sent as_is is not resized; choose one of the two")
	return errors.Join(errs...)
}

// PictureDocs describes the options of Pictures with a scorer's defaults.
func PictureDocs(format, formatDoc, resize string) []rewards.Option {
	return []rewards.Option{
		{Name: "image_format", Type: "string", Default: format, Doc: formatDoc},
		{Name: "jpeg_quality", Type: "int", Default: "95", Doc: "quality of JPEG, 1 to 100"},
		{Name: "resize", Type: "int", Default: resize, Doc: "side in pixels of the square to which every picture or frame is resized (bicubic); 0: no change"},
	}
}

// Encode returns a message part with a frame of m, which has been decoded to px. format is used
// instead of ImageFormat.
func (p *Pictures) Encode(m *rewards.Media, px *rewards.Pixels, frame int, format string) (Part, error) {
	if format == FormatAsIs {
		if data, mime := original(m, frame); mime != "" {
			return Part{Image: data, MIME: mime}, nil
		}
	}
	one := &rewards.Pixels{Width: px.Width, Height: px.Height, Count: 1, RGB: px.Frame(frame)}
	if p.Resize > 0 {
		one = media.Resize(one, p.Resize, p.Resize, media.Bicubic)
	}
	encode, mime := media.EncodePNG, "image/png"
	if format == FormatJPEG {
		mime = "image/jpeg"
		encode = func(px *rewards.Pixels, frame int) ([]byte, error) { return media.EncodeJPEG(px, frame, p.JPEGQuality) }
	}
	data, err := encode(one, 0)
	if err != nil {
		return Part{}, fmt.Errorf("encoding frame %d: %w", frame, err)
	}
	return Part{Image: data, MIME: mime}, nil
}

// original is the frame in the bytes it came in, if it came encoded. It was decoded
// before, so it is what it says.
func original(m *rewards.Media, frame int) (data []byte, mime string) {
	switch {
	case m.Encoding == rewards.Frames && frame < len(m.Frames):
		data = m.Frames[frame]
	case m.Encoding != rewards.Raw && frame == 0:
		data = m.Data
	}
	switch mime = http.DetectContentType(data); mime {
	case "image/png", "image/jpeg", "image/webp":
		return data, mime
	}
	return nil, ""
}
