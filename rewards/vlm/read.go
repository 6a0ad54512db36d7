package vlm

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

const (
	// readQuestion is what verl-omni's genrm_ocr.py asks (Apache-2.0).
	readQuestion = "Please output only the text content from the image without any additional descriptions or formatting."
	// readTokens bounds what is read in a frame.
	readTokens = 512
)

var _ ocr.Named = (*Judge)(nil)

// Reader implements ocr.Named.
func (*Judge) Reader() string { return ocr.ReaderVLM }

// ReadText lets the model write down the text in a frame. The model gets neither a prompt nor a
// target. Every line of the answer becomes a Line with the confidence of the whole answer: e to the
// mean log probability of its tokens. The model returns no positions, so the box is the whole
// frame.
func (j *Judge) ReadText(ctx context.Context, px *rewards.Pixels, frame int) ([]ocr.Line, error) {
	var a answer
	err := rewards.Guard(func() error {
		l, err := j.model.load(ctx)
		if err != nil {
			return err
		}
		q := inquiry{turns: func(pictures int) []turn { return turnsOf("", readQuestion, pictures) }}
		o, err := j.open(ctx, l, q, px, []int{frame})
		if err != nil {
			return err
		}
		// There is room for one: open has looked.
		a, err = l.say(ctx, "reading", o.prompt, o.seen, min(readTokens, l.context-len(o.prompt.ids)), 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("vlm: %s: %w", j.model.name, localmodel.Classify(ctx, err))
	}
	var lines []ocr.Line
	confidence := math.Min(math.Exp(a.mean()), 1)
	for line := range strings.SplitSeq(a.text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, ocr.Line{Text: line, Confidence: confidence, Box: [4]int{0, 0, px.Width, px.Height}})
		}
	}
	return lines, nil
}
