//go:build cgo && tesseract

package tesseract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/otiai10/gosseract/v2"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// kindName is the hidden argument of a child: "rewardloop child tesseract".
const kindName = "tesseract"

// Kinds returns the kinds of child processes of this build; main passes them to subprocess.Main.
func Kinds() []subprocess.Kind {
	return []subprocess.Kind{{Name: kindName, New: newHandler}}
}

// size is the meta of a request.
type size struct {
	Width  int `json:"width"`
	Height int `json:"height"`
}

// handler owns one Tesseract, loaded once. A Tesseract is not safe for
// concurrent use; a slot calls its handler from one goroutine.
type handler struct {
	cfg    Config
	client *gosseract.Client
	pgm    []byte
}

func newHandler(init []byte) (subprocess.Handler, error) {
	var cfg Config
	if err := json.Unmarshal(init, &cfg); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := checkThreadLimit(); err != nil {
		return nil, err
	}
	h := &handler{cfg: cfg, client: gosseract.NewClient()}
	errs := []error{h.client.SetLanguage(cfg.Language)}
	for _, v := range cfg.variables() {
		errs = append(errs, h.client.SetVariable(gosseract.SettableVariable(v.name), v.value))
	}
	// Tesseract loads its model in the first read. Done here it runs in one slot
	// after the other even inline: gosseract redirects the process's stderr
	// meanwhile.
	if errs = append(errs, h.load()); errors.Join(errs...) != nil {
		return nil, errors.Join(append(errs, h.client.Close())...)
	}
	return h, nil
}

func (h *handler) load() error {
	white := bytes.Repeat([]byte{255}, 3*64*64)
	if _, err := h.look(greymap(nil, white, 64, 64)); err != nil {
		return fmt.Errorf("loading language %q: %w", h.cfg.Language, err)
	}
	return nil
}

// Handle answers with the lines as JSON.
func (h *handler) Handle(c subprocess.Call) ([]byte, error) {
	var s size
	if err := json.Unmarshal(c.Meta, &s); err != nil {
		return nil, fmt.Errorf("size: %w", err)
	}
	if s.Width < 1 || s.Height < 1 || len(c.Pixels) != 3*s.Width*s.Height {
		return nil, fmt.Errorf("%d bytes for %dx%d RGB pixels", len(c.Pixels), s.Width, s.Height)
	}
	h.pgm = greymap(h.pgm, c.Pixels, s.Width, s.Height)
	lines, err := twice(h.cfg, h.pgm, s.Width, s.Height, h.look)
	if err != nil {
		return nil, err
	}
	return json.Marshal(lines)
}

func (h *handler) look(pgm []byte) ([]ocr.Line, error) {
	if err := h.client.SetImageFromBytes(pgm); err != nil {
		return nil, err
	}
	boxes, err := h.client.GetBoundingBoxes(gosseract.RIL_TEXTLINE)
	if err != nil {
		return nil, err
	}
	lines := make([]ocr.Line, 0, len(boxes))
	for _, b := range boxes {
		// A picture without text yields one entry without text whose box was never set.
		if l, ok := line(b.Word, b.Confidence, [4]int{b.Box.Min.X, b.Box.Min.Y, b.Box.Max.X, b.Box.Max.Y}); ok {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// checkThreadLimit refuses a process whose OpenMP would spread each picture over
// all cores: that costs about twice the CPU time per picture and is no faster.
// libgomp reads the variable when it is loaded, so only the environment the
// process was started with counts, not os.Getenv.
func checkThreadLimit() error {
	env, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		env = []byte(threadLimit + "=" + os.Getenv(threadLimit))
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if string(kv) == threadLimit+"=1" {
			return nil
		}
	}
	return fmt.Errorf("%s=1 must be in the environment before the process starts (inline isolation: set it for rewardloop itself)", threadLimit)
}
