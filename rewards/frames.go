package rewards

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// FrameChoice selects the frames of a video that a component scores: the option `frames`. For an
// image it always selects the one picture. The zero value selects all frames.
type FrameChoice struct {
	mode frameMode
	n    float64
}

type frameMode string

const (
	allFrames     frameMode = "all"
	firstFrame    frameMode = "first"
	everyFrame    frameMode = "every"
	framesPerTime frameMode = "fps"
	evenFrames    frameMode = "uniform"
)

// FramesForm is the syntax of the option, for documents and errors.
const FramesForm = "all, first, every:<n>, fps:<rate> or uniform:<n>"

// maxChoice bounds the number of a choice: more is a slip of the keyboard.
const maxChoice = 1 << 20

// AllFrames selects every frame.
func AllFrames() FrameChoice { return FrameChoice{} }

// FirstFrame selects frame 0 only.
func FirstFrame() FrameChoice { return FrameChoice{mode: firstFrame} }

// EveryFrame selects every nth frame, beginning with frame 0.
func EveryFrame(n int) FrameChoice { return FrameChoice{everyFrame, float64(n)} }

// EvenFrames selects n of N frames, at floor(i·N/n), or all frames if N is less than n.
func EvenFrames(n int) FrameChoice { return FrameChoice{evenFrames, float64(n)} }

// ParseFrames parses the option, in the syntax of FramesForm. n is at most 1,048,576, and rate is
// in frames per second, from 0.001 to 1000.
func ParseFrames(text string) (FrameChoice, error) {
	word, number, has := strings.Cut(text, ":")
	c := FrameChoice{mode: frameMode(word)}
	wrong := fmt.Errorf("frames: %q is unknown, want %s", clip(text, 40), FramesForm)
	switch c.mode {
	case allFrames, firstFrame:
		if has {
			return FrameChoice{}, wrong
		}
		if c.mode == allFrames {
			return FrameChoice{}, nil
		}
		return c, nil
	case everyFrame, evenFrames:
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > maxChoice {
			return FrameChoice{}, fmt.Errorf("frames: %q: want %s:<n> with a number from 1 to %d", clip(text, 40), word, maxChoice)
		}
		c.n = float64(n)
		return c, nil
	case framesPerTime:
		rate, err := strconv.ParseFloat(number, 64)
		if err != nil || !(rate >= 0.001 && rate <= 1000) {
			return FrameChoice{}, fmt.Errorf("frames: %q: want fps:<rate> with frames in a second, from 0.001 to 1000", clip(text, 40))
		}
		c.n = rate
		return c, nil
	}
	return FrameChoice{}, wrong
}

// String returns the option in the syntax of ParseFrames.
func (c FrameChoice) String() string {
	switch c.mode {
	case "", allFrames:
		return string(allFrames)
	case firstFrame:
		return string(firstFrame)
	}
	return string(c.mode) + ":" + strconv.FormatFloat(c.n, 'f', -1, 64)
}

// UnmarshalJSON reads the option: a string in the syntax of ParseFrames, or a number n, which means
// uniform:n. null changes nothing.
func (c *FrameChoice) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" { // as for every other type: it changes nothing
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = "uniform:" + string(raw)
		if len(raw) == 0 || raw[0] < '0' || raw[0] > '9' {
			return fmt.Errorf("frames: %s, want %s, or a number n for uniform:n", clip(string(raw), 40), FramesForm)
		}
	}
	chosen, err := ParseFrames(text)
	if err == nil {
		*c = chosen
	}
	return err
}

// MarshalJSON writes the option as a string.
func (c FrameChoice) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

func (c FrameChoice) all() bool { return c.mode == "" }

// First reports whether only frame 0 is selected.
func (c FrameChoice) First() bool { return c.mode == firstFrame }

// Uniform returns n of uniform:n, or 0 for any other choice.
func (c FrameChoice) Uniform() int {
	if c.mode == evenFrames {
		return int(c.n)
	}
	return 0
}

// NeedsCount reports whether the choice depends on the number of frames of the video.
func (c FrameChoice) NeedsCount() bool { return c.mode == evenFrames }

// errNoRate is why fps: chooses nothing.
var errNoRate = errors.New("frames: fps:<rate> needs a video whose frame rate is known: send fps with it, or choose every:<n> or uniform:<n>")

// Of returns the indices of the selected frames of a video with count frames and fps frames per
// second. An fps of 0 means unknown; fps:<rate> is then an error of class BadInput.
func (c FrameChoice) Of(count int, fps float64) ([]int, error) {
	step := 1.0
	most := count
	switch c.mode {
	case "", allFrames:
	case firstFrame:
		most = min(count, 1)
	case everyFrame:
		step = c.n
	case framesPerTime:
		if fps <= 0 {
			return nil, fmt.Errorf("%w: %w", BadInput, errNoRate)
		}
		step = max(1, fps/c.n)
	case evenFrames:
		most = min(int(c.n), count)
		if most > 0 {
			out := make([]int, most)
			for i := range out {
				out[i] = i * count / most
			}
			return out, nil
		}
	}
	var out []int
	for i := range most {
		at := math.Floor(float64(i)*step + 1e-9) // 1e-9: 3 × (1/3) is 1
		if at >= float64(count) {
			break
		}
		out = append(out, int(at))
	}
	return out, nil
}

// View is the selection of frames of a picture or video that a component scores.
type View struct {
	*Pixels

	// At contains the indices of the frames in Pixels, and Number their indices in the video. The
	// two are equal if the whole video was decoded. There is at least one frame.
	At, Number []int
	// FPS is the frame rate of the selected frames, from the first to the last, or that of the
	// video if only one frame is selected. 0 means unknown.
	FPS float64
}

// view finds the frames in what was decoded.
func (c FrameChoice) view(m *Media, px *Pixels) (View, error) {
	v := View{Pixels: px}
	fps := m.FPS
	if fps == 0 {
		fps = px.FPS
	}
	if px.Numbers != nil { // these were chosen already
		v.Number, v.At = px.Numbers, make([]int, px.Count)
		for i := range v.At {
			v.At[i] = i
		}
	} else {
		chosen := c
		if m.Kind != Video {
			chosen = FirstFrame()
		}
		at, err := chosen.Of(px.Count, fps)
		if err != nil {
			return View{}, err
		}
		v.At, v.Number = at, at
	}
	if len(v.At) == 0 {
		return View{}, fmt.Errorf("%w: a video without a frame", BadInput)
	}
	if v.FPS = fps; len(v.Number) > 1 {
		v.FPS = fps * float64(len(v.Number)-1) / float64(v.Number[len(v.Number)-1]-v.Number[0])
	}
	return v, nil
}

// Bytes returns the RGB bytes of the ith selected frame.
func (v View) Bytes(i int) []byte { return v.Frame(v.At[i]) }

// Places returns the indices in Pixels of frames that are given by their indices in the video. Each
// of them must be a selected frame.
func (v View) Places(numbers []int) []int {
	places := make([]int, len(numbers))
	for i, n := range numbers {
		at, _ := slices.BinarySearch(v.Number, n)
		places[i] = v.At[at]
	}
	return places
}

// FramesOr returns the chosen frames, or otherwise if the option is absent (nil).
func FramesOr(chosen *FrameChoice, otherwise FrameChoice) FrameChoice {
	if chosen != nil {
		return *chosen
	}
	return otherwise
}

// FramesOption returns the documentation of the option for a component with the default def.
func FramesOption(def string) Option {
	return Option{Name: "frames", Type: "string", Default: def, Doc: "frames of a video that are scored: " + FramesForm + " (at floor(i·N/n)); the value is the mean of these frames"}
}
