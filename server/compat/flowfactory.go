package compat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// readFlowFactory reads POST /compute, the protocol of Flow-Factory's remote reward models
// (src/flow_factory/rewards/my_reward_remote.py). Its clients append /compute and
// /health to the address they are given, so that http://host:port/scorers/ocr asks
// for the reward ocr:
//
//	{"prompt": [str], "image": [base64]|null, "video": [[base64…]…]|null,
//	 "condition_images": [[base64…]…]|null, "condition_videos": [[[base64…]…]…]|null}
//
// Every list has one entry for each prompt. A sample has its picture or its video
// first, then the pictures and the videos it was made from. "kwargs" and "extra",
// which other versions of the client send, are the extra_info of all samples.
//
//	200 {"rewards": [float]}
//
// The client gives up at 60 s and tries again at once, so that samples expire at
// ComputeTimeout, 55 s, with a 503.
func readFlowFactory(req *Request) (*Batch, *Fault) {
	p, f := req.reward()
	if f != nil {
		return nil, f
	}
	t, err := strictjson.Parse(req.Body)
	if err != nil {
		return nil, AsFault(err)
	}
	c := &computeBatch{req: req, reward: p.Name}
	if err := c.read(t); err != nil {
		return nil, AsFault(err)
	}
	if f := c.badPictures(); f != nil {
		return nil, f
	}
	return &Batch{Plans: c.plans, Whole: true, Answer: allOrNone(func(scores []decimal, _ []*wire.Result) any {
		return map[string]any{"rewards": scores}
	})}, nil
}

// computeBatch is a body of /compute.
type computeBatch struct {
	req    *Request
	reward string
	plans  []Plan
}

func (c *computeBatch) read(t strictjson.Text) error {
	keys, err := t.Fields("prompt", "image", "video", "condition_images", "condition_videos", "kwargs", "extra")
	if err != nil {
		return err
	}
	if err := c.count(keys); err != nil {
		return err
	}
	// The order is that of a sample's media.
	for _, list := range []struct {
		key  string
		read func(*Plan, strictjson.Text) error
	}{
		{"prompt", func(pl *Plan, v strictjson.Text) (err error) {
			pl.Sample.Prompt, err = v.Str()
			return err
		}},
		{"image", addPicture},
		{"video", addVideo},
		{"condition_images", addEach(addPicture)},
		{"condition_videos", addEach(addVideo)},
	} {
		err := keys[list.key].Each(len(c.plans), "samples", func(i int, v strictjson.Text) error { return list.read(&c.plans[i], v) })
		if err != nil {
			return fmt.Errorf("%s: %w", list.key, err)
		}
	}
	return c.extraInfo(keys["kwargs"], keys["extra"])
}

// count makes the plans: one for each prompt or, without prompts, picture or video.
func (c *computeBatch) count(keys map[string]strictjson.Text) error {
	most := c.req.Limits.Samples
	for _, key := range []string{"prompt", "image", "video"} {
		v := keys[key]
		if v == nil || v.Null() {
			continue
		}
		n, err := v.Length(most)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if n > most {
			return c.req.tooMany()
		}
		for i := range n {
			c.plans = append(c.plans, newPlan(c.req, c.reward, i))
		}
		return nil
	}
	return errors.New(`no "prompt", "image" or "video"`)
}

// addPicture appends a picture to a plan's sample.
func addPicture(pl *Plan, v strictjson.Text) error {
	m, err := readPicture(v, pl)
	if m != nil {
		pl.Sample.Media = append(pl.Sample.Media, m)
	}
	return err
}

// addVideo appends a video to a plan's sample.
func addVideo(pl *Plan, v strictjson.Text) error {
	m, err := readFrames(v, pl)
	pl.Sample.Media = append(pl.Sample.Media, m)
	return err
}

// addEach adds each of a list; null is an empty one.
func addEach(add func(*Plan, strictjson.Text) error) func(*Plan, strictjson.Text) error {
	return func(pl *Plan, v strictjson.Text) error {
		if v.Null() {
			return nil
		}
		return v.Array(func(_ int, v strictjson.Text) error { return add(pl, v) })
	}
}

// extraInfo gives all samples what the client was configured with.
func (c *computeBatch) extraInfo(kwargs, extra strictjson.Text) error {
	if kwargs == nil || kwargs.Null() {
		kwargs = extra
	} else if extra != nil && !extra.Null() {
		return errors.New("kwargs and extra are two names for the same field; send only one of them")
	}
	if kwargs == nil {
		return nil
	}
	truth, rest, err := splitMetadata(kwargs)
	if err != nil {
		return fmt.Errorf("kwargs: %w", err)
	}
	// It is written out once for each sample.
	if n := int64(len(truth)+len(rest)) * int64(len(c.plans)); n > c.req.Limits.JSONBytes {
		return Faultf(rewards.TooLarge, "kwargs become %d bytes for %d samples; the limit is %d", n, len(c.plans), c.req.Limits.JSONBytes)
	}
	for i := range c.plans {
		c.plans[i].Sample.GroundTruth, c.plans[i].Sample.ExtraInfo = truth, rest
	}
	return nil
}

// badPictures refuses the batch if a sample has a picture that cannot be decoded, and
// gives the others their deadline.
func (c *computeBatch) badPictures() *Fault {
	var bad []int
	for i := range c.plans {
		c.plans[i].Timeout = c.req.Limits.ComputeTimeout
		if c.plans[i].Refused != nil {
			bad = append(bad, i)
		}
	}
	if bad == nil {
		return nil
	}
	f := Faultf(rewards.BadInput, "the samples at %v have a picture that is neither JPEG nor PNG nor WebP", bad[:min(len(bad), 20)])
	f.Failed = slices.Clip(bad)
	return f
}
