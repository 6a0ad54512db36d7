package server

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// flowFactory is POST /compute, the protocol of Flow-Factory's remote reward models
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
func (s *Server) flowFactory() protocol {
	return protocol{run: "_flow_factory", read: func(req *request) (*batch, *fault) {
		p, f := s.profile(req.profile)
		if f != nil {
			return nil, f
		}
		t, err := parseJSON(req.body.data)
		if err != nil {
			return nil, asFault(err)
		}
		c := &computeBatch{server: s, req: req, reward: p.Name}
		if err := c.read(t); err != nil {
			return nil, asFault(err)
		}
		if f := c.badPictures(); f != nil {
			return nil, f
		}
		return &batch{plans: c.plans, whole: true, answer: allOrNone(func(scores []decimal, _ []*wire.Result) any {
			return map[string]any{"rewards": scores}
		})}, nil
	}}
}

// computeBatch is a body of /compute.
type computeBatch struct {
	server *Server
	req    *request
	reward string
	plans  []plan
}

func (c *computeBatch) read(t jsonText) error {
	keys := map[string]jsonText{}
	if err := t.object(func(key string, v jsonText) error {
		switch key {
		case "prompt", "image", "video", "condition_images", "condition_videos", "kwargs", "extra":
			keys[key] = v
			return nil
		}
		return errUnknownKey
	}); err != nil {
		return err
	}
	if err := c.count(keys); err != nil {
		return err
	}
	// The order is that of a sample's media.
	for _, list := range []struct {
		key  string
		read func(*plan, jsonText) error
	}{
		{"prompt", func(pl *plan, v jsonText) (err error) {
			pl.sample.Prompt, err = v.str()
			return err
		}},
		{"image", addPicture},
		{"video", addVideo},
		{"condition_images", addEach(addPicture)},
		{"condition_videos", addEach(addVideo)},
	} {
		err := keys[list.key].each(len(c.plans), "samples", func(i int, v jsonText) error { return list.read(&c.plans[i], v) })
		if err != nil {
			return fmt.Errorf("%s: %w", list.key, err)
		}
	}
	return c.extraInfo(keys["kwargs"], keys["extra"])
}

// count makes the plans: one for each prompt or, without prompts, picture or video.
func (c *computeBatch) count(keys map[string]jsonText) error {
	most := c.server.cfg.BatchSamples
	for _, key := range []string{"prompt", "image", "video"} {
		v := keys[key]
		if v == nil || v.null() {
			continue
		}
		n, err := v.length(most)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if n > most {
			return c.server.tooMany()
		}
		for i := range n {
			c.plans = append(c.plans, newPlan(c.req, c.reward, i))
		}
		return nil
	}
	return errors.New(`neither "prompt" nor "image" nor "video"`)
}

// addPicture appends a picture to a plan's sample.
func addPicture(pl *plan, v jsonText) error {
	m, err := readPicture(v, pl)
	if m != nil {
		pl.sample.Media = append(pl.sample.Media, m)
	}
	return err
}

// addVideo appends a video to a plan's sample.
func addVideo(pl *plan, v jsonText) error {
	m, err := readFrames(v, pl)
	pl.sample.Media = append(pl.sample.Media, m)
	return err
}

// addEach adds each of a list; null is an empty one.
func addEach(add func(*plan, jsonText) error) func(*plan, jsonText) error {
	return func(pl *plan, v jsonText) error {
		if v.null() {
			return nil
		}
		return v.array(func(_ int, v jsonText) error { return add(pl, v) })
	}
}

// extraInfo gives all samples what the client was configured with.
func (c *computeBatch) extraInfo(kwargs, extra jsonText) error {
	if kwargs == nil || kwargs.null() {
		kwargs = extra
	} else if extra != nil && !extra.null() {
		return errors.New("kwargs and extra are the same under two names; send one")
	}
	if kwargs == nil {
		return nil
	}
	truth, rest, err := splitMetadata(kwargs)
	if err != nil {
		return fmt.Errorf("kwargs: %w", err)
	}
	// It is written out once for each sample.
	if n := int64(len(truth)+len(rest)) * int64(len(c.plans)); n > c.server.cfg.JSONBytes {
		return faultf(rewards.TooLarge, "kwargs become %d bytes for %d samples; the limit is %d", n, len(c.plans), c.server.cfg.JSONBytes)
	}
	for i := range c.plans {
		c.plans[i].sample.GroundTruth, c.plans[i].sample.ExtraInfo = truth, rest
	}
	return nil
}

// badPictures refuses the batch if a sample has a picture that cannot be decoded, and
// gives the others their deadline.
func (c *computeBatch) badPictures() *fault {
	var bad []int
	for i := range c.plans {
		c.plans[i].timeout = min(c.server.cfg.ComputeTimeout, c.server.cfg.MaxSampleTimeout)
		if c.plans[i].refused != nil {
			bad = append(bad, i)
		}
	}
	if bad == nil {
		return nil
	}
	f := faultf(rewards.BadInput, "the samples at %v have a picture that is neither JPEG nor PNG nor WebP", bad[:min(len(bad), 20)])
	f.failed = slices.Clip(bad)
	return f
}
