package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"strings"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// trialTokens is how long the answer to a trial may be.
const trialTokens = 8

// trialSchema admits one answer. It has no place for white space, in which a model that is held to a
// larger schema may lose itself.
const trialSchema = `{"type": "string", "enum": ["ok"]}`

// Trial returns a test question with all features of a scorer's questions (Asking, Sampling, log
// probabilities, a schema, and that number of pictures). Only the form of its answer matters.
func Trial(a Asking, s Sampling, pictures int) Request {
	var parts []Part
	for range pictures {
		parts = append(parts, Part{Image: whitePNG(), MIME: "image/png"})
	}
	s.MaxTokens = trialTokens
	return Question(a, s, "", parts, "Is two more than one? Answer Yes or No.")
}

// Try sends a test question. lacks is an error that every question would have; err is a possibly
// transient error, after which nothing is known.
func Try(ctx context.Context, doer outbound.Doer, model string, r Request) (lacks, err error) {
	c, err := New(Config{Model: model, CacheEntries: -1}, doer)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if r.ResponseFormat != nil {
		r.ResponseFormat = &Schema{Name: "trial", Schema: json.RawMessage(trialSchema)}
		r.MaxTokens *= 2
	}
	reply, err := c.Chat(ctx, &r)
	switch {
	case err == nil && r.ResponseFormat != nil && strings.TrimSpace(reply.Text) != `"ok"`:
		return fmt.Errorf("the engine does not enforce a JSON schema: for %s the answer was %s", trialSchema, Excerpt(reply.Text)), nil
	case err == nil, errors.Is(err, rewards.InvalidScore): // it answers, if with nothing
		return nil, nil
	}
	return Lacks(err)
}

// Lacks returns the error of a test as lacks if every question would have it, or as passes if it
// may be transient.
func Lacks(err error) (lacks, passes error) {
	if blame, permanent := rewards.BlameOf(err); permanent && blame == rewards.BlameDependency || errors.Is(err, rewards.BadInput) {
		return err, nil
	}
	return nil, err
}

// TryCall sends a call of a scorer that does not use the chat API, with the results of Try.
func TryCall(ctx context.Context, doer outbound.Doer, c outbound.Call) (lacks, err error) {
	if _, err = doer.Do(ctx, &c); err == nil || errors.Is(err, rewards.InvalidScore) {
		return nil, nil
	}
	return Lacks(err)
}

// whitePNG is a white picture of 56×56, which every family of models takes: two patches of 28 a side.
func whitePNG() []byte {
	const side = 56
	white := image.NewGray(image.Rect(0, 0, side, side))
	for i := range white.Pix {
		white.Pix[i] = 255
	}
	var b bytes.Buffer
	_ = png.Encode(&b, white) // a buffer takes everything
	return b.Bytes()
}
