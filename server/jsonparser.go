package server

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
	"github.com/rewardloop/rewardloop/wire"
)

// jsonParser reads the JSON of /v1/score. What is wrong with the text is an error;
// what is wrong with one picture refuses its sample.
type jsonParser struct {
	most    int
	longest time.Duration
	files   map[string]*file
	request string // the flight's id
	batch   jsonBatch
}

// readRequest reads {"samples": […]} or one sample.
func (p *jsonParser) readRequest(t strictjson.Text) error {
	many := false
	if err := t.Object(func(key string, _ strictjson.Text) error {
		many = many || key == samplesPart
		return nil
	}); err != nil {
		return err
	}
	if !many {
		return p.readSample(t)
	}
	return t.Object(func(key string, v strictjson.Text) (err error) {
		switch key {
		case samplesPart:
			err = v.Array(func(_ int, v strictjson.Text) error { return p.readSample(v) })
		case "reward":
			p.batch.reward, err = v.Str()
		case "deadline_ms":
			p.batch.deadline, err = p.deadline(v)
		case "on_sample_failure":
			var text string
			var policy rewards.SamplePolicy
			if text, err = v.Str(); err != nil {
				break
			}
			policy, err = rewards.ParseSamplePolicy(text)
			p.batch.policy = &policy
		default:
			err = strictjson.ErrUnknownKey
		}
		return err
	})
}

func (p *jsonParser) deadline(v strictjson.Text) (time.Duration, error) {
	ms, err := v.Integer(1, p.longest.Milliseconds())
	return time.Duration(ms) * time.Millisecond, err
}

// readSample reads one sample and appends its plan.
func (p *jsonParser) readSample(t strictjson.Text) error {
	if len(p.batch.plans) == p.most {
		return compat.Faultf(rewards.TooLarge, "more than %d samples in one request", p.most)
	}
	s := &rewards.Sample{}
	pl := compat.Plan{Sample: s}
	err := t.Object(func(key string, v strictjson.Text) (err error) {
		switch key {
		case "id":
			s.ID, err = v.Str()
		case "step":
			s.Step, err = v.Integer(math.MinInt64, math.MaxInt64)
		case "split":
			var text string
			text, err = v.Str()
			if s.Split = rewards.Split(text); err == nil && s.Split != rewards.Train && s.Split != rewards.Val {
				err = fmt.Errorf("%q: want train or val", strictjson.Clip(text))
			}
		case "index":
			var n int64
			n, err = v.Integer(0, math.MaxInt32)
			s.Index = &n
		case "uid":
			s.UID, err = v.Str()
		case "group_size":
			var n int64
			n, err = v.Integer(0, int64(p.most))
			s.GroupSize = int(n)
		case "reward":
			s.Reward, err = v.Str()
		case "data_source":
			s.DataSource, err = v.Str()
		case "prompt":
			s.Prompt, err = v.Str()
		case "response":
			s.Response, err = v.Str()
		case "ground_truth":
			if v.Kind() != 'n' {
				s.GroundTruth = []byte(v)
			}
		case "extra_info":
			if v.Kind() != '{' {
				return fmt.Errorf("want an object: found %s", v.Short())
			}
			s.ExtraInfo = []byte(v)
		case "deadline_ms":
			pl.Timeout, err = p.deadline(v)
		case "traceparent":
			if s.Traceparent, err = v.Str(); err == nil && s.Traceparent != "" {
				err = wire.CheckTraceparent(s.Traceparent)
			}
		case "images":
			err = v.Array(func(_ int, v strictjson.Text) error { return p.readImage(v, &pl) })
		case "audios":
			err = v.Array(func(_ int, v strictjson.Text) error { return p.readSound(v, &pl) })
		case "videos":
			err = v.Array(func(_ int, v strictjson.Text) error { return p.readVideo(v, &pl) })
		default:
			if err = strictjson.ErrUnknownKey; mediaKey.MatchString(key) {
				err = fmt.Errorf(`%w: pictures go into "images": [picture, …], videos into "videos": [{"frames": [picture, …]}] or [{"b64": an MP4, WebM or GIF file}], sounds into "audios"; %s`, err, pictureForm)
			}
		}
		return err
	})
	p.batch.plans = append(p.batch.plans, pl)
	return err
}

// mediaKey matches what people call a picture's key who have not read what it is called.
var mediaKey = regexp.MustCompile(`(?i)image|picture|video|frame|media|path|url|file|b64|base64`)

// pictureForm says how a picture is sent.
const pictureForm = `a picture is {"b64": "its bytes in base64"}, or {"file": "name"} with its bytes in the part of that name of a multipart/form-data body; ` +
	`this server opens neither paths nor URLs`

// readImage reads {"b64"|"file", "encoding", "layout", "dtype", "shape"}.
func (p *jsonParser) readImage(t strictjson.Text, pl *compat.Plan) error {
	if t.Kind() != '{' {
		return fmt.Errorf("want an object: found %s; %s", t.Short(), pictureForm)
	}
	var data []byte
	have := 0
	var m rewards.Media
	err := t.Object(func(key string, v strictjson.Text) (err error) {
		switch key {
		case "b64":
			have++
			data, err = v.Base64()
		case "file":
			have++
			data, err = p.file(v)
		case "encoding":
			err = word(v, &m.Encoding)
		case "layout":
			err = word(v, &m.Layout)
		case "dtype":
			m.DType, err = v.Str()
		case "shape":
			err = v.Array(func(_ int, v strictjson.Text) error {
				n, err := v.Integer(0, math.MaxInt32)
				m.Shape = append(m.Shape, int(n))
				return err
			})
		default:
			err = fmt.Errorf("%w: %s", strictjson.ErrUnknownKey, pictureForm)
		}
		return err
	})
	if err != nil {
		return err
	}
	if have != 1 {
		return errors.New(`a picture needs either "b64" or "file": ` + pictureForm)
	}
	if m.Encoding == rewards.Raw {
		m.Kind, m.Data = rewards.Image, data
		pl.Sample.Media = append(pl.Sample.Media, &m)
		return nil
	}
	sniffed := compat.Picture(data)
	switch {
	case m.Layout != "" || m.DType != "" || m.Shape != nil:
		return errors.New(`layout, dtype and shape go with "encoding": "raw"`)
	case sniffed == nil:
		pl.Refuse("picture %d is neither JPEG nor PNG nor WebP", len(pl.Sample.Media))
	case m.Encoding != "" && m.Encoding != sniffed.Encoding:
		pl.Refuse("picture %d is a %s, not a %s", len(pl.Sample.Media), sniffed.Encoding, m.Encoding)
	default:
		pl.Sample.Media = append(pl.Sample.Media, sniffed)
	}
	return nil
}

// readVideo reads {"frames": [picture…], "fps"}, or the file of a video: {"b64"|"file", "fps"}.
func (p *jsonParser) readVideo(t strictjson.Text, pl *compat.Plan) error {
	m := &rewards.Media{Kind: rewards.Video, Encoding: rewards.Frames, DType: "U8"}
	have := 0
	err := t.Object(func(key string, v strictjson.Text) (err error) {
		switch key {
		case "frames":
			have++
			err = v.Array(func(_ int, v strictjson.Text) error { return p.readFrame(v, m, pl) })
		case "b64":
			have++
			m.Data, err = v.Base64()
		case "file":
			have++
			m.Data, err = p.file(v)
		case "fps":
			m.FPS, err = v.Number()
		default:
			err = strictjson.ErrUnknownKey
		}
		return err
	})
	switch {
	case err != nil || pl.Refused != nil:
	case have != 1:
		err = errors.New(`a video needs frames, or its file: one of "frames", "b64" and "file"`)
	case m.Data != nil:
		if m.Encoding, m.Shape = media.SniffFile(m.Data), []int{len(m.Data)}; !m.Encoding.OfVideo() {
			pl.Refuse("video %d is neither MP4 nor WebM nor GIF", len(pl.Sample.Media))
			return nil
		}
	case len(m.Frames) == 0:
		err = errors.New("a video needs frames")
	}
	pl.Sample.Media = append(pl.Sample.Media, m)
	return err
}

// readSound reads {"b64"|"file"}: a WAV or FLAC file.
func (p *jsonParser) readSound(t strictjson.Text, pl *compat.Plan) error {
	m := &rewards.Media{Kind: rewards.Audio, DType: "U8"}
	have := 0
	err := t.Object(func(key string, v strictjson.Text) (err error) {
		have++
		switch key {
		case "b64":
			m.Data, err = v.Base64()
		case "file":
			m.Data, err = p.file(v)
		default:
			err = strictjson.ErrUnknownKey
		}
		return err
	})
	if err == nil && have != 1 {
		err = errors.New(`a sound needs its file: either "b64" or "file"`)
	}
	if err != nil {
		return err
	}
	m.Encoding, m.Shape = media.SniffFile(m.Data), []int{len(m.Data)}
	if m.Encoding != rewards.WAV && m.Encoding != rewards.FLAC {
		pl.Refuse("sound %d is neither WAV nor FLAC", len(pl.Sample.Media))
		return nil
	}
	pl.Sample.Media = append(pl.Sample.Media, m)
	return nil
}

// readFrame reads one picture of a video.
func (p *jsonParser) readFrame(t strictjson.Text, m *rewards.Media, pl *compat.Plan) error {
	inner := compat.Plan{Sample: &rewards.Sample{}}
	if err := p.readImage(t, &inner); err != nil {
		return err
	}
	switch {
	case inner.Refused != nil:
		pl.Refuse("frame %d: %s", len(m.Frames), inner.Refused.Message)
	case inner.Sample.Media[0].Encoding == rewards.Raw:
		return errors.New("the frames of a video are encoded pictures; raw videos go over /v1/stream")
	default:
		m.Frames = append(m.Frames, inner.Sample.Media[0].Data)
	}
	return nil
}

func word[T ~string](v strictjson.Text, to *T) error {
	text, err := v.Str()
	*to = T(text)
	return err
}

// file looks up a part of a multipart body.
func (p *jsonParser) file(v strictjson.Text) ([]byte, error) {
	name, err := v.Str()
	if err != nil {
		return nil, err
	}
	f := p.files[name]
	if f == nil {
		return nil, fmt.Errorf("the body has no part named %q", strictjson.Clip(name))
	}
	f.used = true
	return f.data, nil
}

// groupName is what makes samples members of one group.
type groupName struct {
	split rewards.Split
	step  int64
	uid   string
}

func groupOf(s *rewards.Sample) groupName {
	split := s.Split
	if split == "" {
		split = rewards.Train
	}
	return groupName{split, s.Step, s.UID}
}

// finish checks the samples against each other and gives them names that no other
// request uses: ids and groups of different requests must never meet in the loop.
func (p *jsonParser) finish() error {
	b := &p.batch
	if len(b.plans) == 0 {
		return errors.New("no samples")
	}
	for name, f := range p.files {
		if !f.used {
			return fmt.Errorf("no picture refers to the part %q", strictjson.Clip(name))
		}
	}
	seen := map[string]bool{}
	groups, sound := map[groupName]int{}, map[groupName]int{}
	for i := range b.plans {
		pl := &b.plans[i]
		s := pl.Sample
		if len(s.ID) > wire.MaxNameBytes/2 || len(s.UID) > wire.MaxNameBytes/2 {
			return fmt.Errorf("samples[%d]: want at most %d bytes for id and for uid", i, wire.MaxNameBytes/2)
		}
		if s.ID == "" {
			s.ID = fmt.Sprintf("%s-%d", p.request, i)
		}
		if seen[s.ID] {
			return fmt.Errorf("samples[%d]: duplicate id %q", i, strictjson.Clip(s.ID))
		}
		seen[s.ID] = true
		b.ids, b.uids = append(b.ids, s.ID), append(b.uids, s.UID)
		if s.HasGroup() {
			groups[groupOf(s)]++
			if pl.Refused == nil {
				sound[groupOf(s)]++
			}
		}
		if s.Reward == "" {
			s.Reward = b.reward
		}
		if pl.Timeout == 0 {
			pl.Timeout = b.deadline
		}
	}
	for i := range b.plans {
		s := b.plans[i].Sample
		g := groupOf(s)
		if s.HasGroup() && groups[g] != s.GroupSize {
			return fmt.Errorf("samples[%d]: group %q of step %d has %d samples in this request and group_size %d; send whole groups, or use /v1/stream",
				i, strictjson.Clip(s.UID), s.Step, groups[g], s.GroupSize)
		}
		// A group that waits for a member nobody submits would wait till its deadline.
		s.GroupSize = sound[g]
		s.ID = p.request + "/" + s.ID
		if s.UID != "" {
			s.UID = p.request + "/" + s.UID
		}
	}
	return nil
}
