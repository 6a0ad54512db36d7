package wire

import (
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/internal/tracing"
	"github.com/rewardloop/rewardloop/rewards"
)

// readSample parses the JSON text of __metadata__.sample.
func (p *headerParser) readSample() error {
	s := scanner{b: p.sample}
	if err := s.object(func(key []byte) error { return p.readField(&s, key) }); err != nil {
		return err
	}
	if err := s.end(); err != nil {
		return err
	}
	if p.h.Sample.ID == "" {
		return fmt.Errorf("%w: a sample needs an id", ErrMissing)
	}
	return nil
}

// readField reads one field of the sample.
func (p *headerParser) readField(s *scanner, key []byte) (err error) {
	sm := &p.h.Sample
	switch string(key) {
	case "id":
		sm.ID, err = s.name("id")
	case "run":
		sm.Run, err = s.name("run")
	case "step":
		sm.Step, err = s.int64()
	case "split":
		sm.Split, err = s.split()
	case "index":
		var v int64
		v, err = s.natural("index")
		sm.Index = &v
	case "uid":
		sm.UID, err = s.name("uid")
	case "group_size":
		var v int64
		v, err = s.natural("group_size")
		sm.GroupSize = int(v)
	case "reward":
		sm.Reward, err = s.name("reward")
	case "data_source":
		sm.DataSource, err = s.string()
	case "prompt":
		sm.Prompt, err = s.string()
	case "response":
		sm.Response, err = s.string()
	case "ground_truth":
		sm.GroundTruth, err = s.value()
	case "extra_info":
		if s.space() != '{' {
			return s.unexpected("extra_info to be an object")
		}
		sm.ExtraInfo, err = s.value()
	case "media":
		err = s.array(func() error { return p.readEntry(s) })
	case "deadline_ms":
		p.h.Deadline, err = s.deadline()
	case "traceparent":
		sm.Traceparent, err = s.traceparent()
	default:
		err = s.fail(ErrUnknownName, "%q is not a field of a sample", clip(key))
	}
	return err
}

// readEntry reads one element of media.
func (p *headerParser) readEntry(s *scanner) error {
	if len(p.entries) >= MaxMedia {
		return s.fail(ErrTooLarge, "more than %d media", MaxMedia)
	}
	var e entry
	err := s.object(func(key []byte) (err error) {
		switch string(key) {
		case "tensor":
			e.hasOne = true
			e.tensor, err = s.string()
		case "tensors":
			e.hasMany = true
			err = s.array(func() error {
				if len(e.tensors) >= MaxTensors {
					return s.fail(ErrTooLarge, "more than %d tensors", MaxTensors)
				}
				name, err := s.string()
				e.tensors = append(e.tensors, name)
				return err
			})
		case "kind":
			e.media.Kind, err = word(s, rewards.Image, rewards.Video, rewards.Latent, rewards.Audio)
		case "layout":
			e.media.Layout, err = word(s, rewards.HWC, rewards.CHW, rewards.THWC, rewards.TCHW, rewards.CTHW)
		case "encoding":
			e.media.Encoding, err = word(s, rewards.Raw, rewards.JPEG, rewards.PNG, rewards.WebP, rewards.Frames,
				rewards.MP4, rewards.WebM, rewards.GIF, rewards.WAV, rewards.FLAC)
		case "fps":
			e.media.FPS, err = s.float64()
		case "sample_rate":
			var v int64
			v, err = s.natural("sample_rate")
			e.media.SampleRate = int(v)
		default:
			err = s.fail(ErrUnknownName, "%q is not a field of a media entry", clip(key))
		}
		return err
	})
	p.entries = append(p.entries, e)
	return err
}

// name reads a string of at most MaxNameBytes bytes; empty is the same as absent.
func (s *scanner) name(field string) (string, error) {
	v, err := s.str()
	if err != nil {
		return "", err
	}
	if len(v) > MaxNameBytes {
		return "", s.fail(ErrValue, "%s of %d bytes, want at most %d", field, len(v), MaxNameBytes)
	}
	return string(v), nil
}

func (s *scanner) split() (rewards.Split, error) {
	v, err := word(s, rewards.Train, rewards.Val)
	if err == nil && v != rewards.Train && v != rewards.Val {
		err = s.fail(ErrValue, "split %q, want train or val", clip([]byte(v)))
	}
	return v, err
}

// natural reads an integer from 0 to 2^31-1, what every trainer's rows, group
// sizes and rates fit in.
func (s *scanner) natural(field string) (int64, error) {
	v, err := s.int64()
	if err == nil && (v < 0 || v > 1<<31-1) {
		err = s.fail(ErrValue, "%s is %d, want 0 to %d", field, v, 1<<31-1)
	}
	return v, err
}

func (s *scanner) deadline() (time.Duration, error) {
	ms, err := s.int64()
	if err == nil && (ms < 1 || ms > MaxDeadline.Milliseconds()) {
		err = s.fail(ErrValue, "deadline_ms is %d, want 1 to %d", ms, MaxDeadline.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond, err
}

// traceparent reads a W3C trace context; empty is the same as absent.
func (s *scanner) traceparent() (string, error) {
	v, err := s.str()
	if err != nil || len(v) == 0 {
		return "", err
	}
	text := clip(v)
	if len(v) <= tracing.MaxBytes {
		text = string(v)
	}
	if err := CheckTraceparent(text); err != nil {
		return "", s.fail(ErrValue, "%v", err)
	}
	return text, nil
}

// CheckTraceparent returns an error if text is not a W3C trace context.
func CheckTraceparent(text string) error {
	if _, err := tracing.Parse(text); err != nil {
		return fmt.Errorf("traceparent %q: %w", clip([]byte(text)), err)
	}
	return nil
}

// sniffID looks for the id of a sample whose header was refused, so that the
// refusal can name it. It finds the id in front of the first fault of syntax.
func sniffID(text []byte) string {
	var id string
	s := scanner{b: text}
	_ = s.object(func(key []byte) error {
		if string(key) != metadataKey || s.space() != '{' {
			_, err := s.value()
			return err
		}
		return s.object(func(key []byte) error {
			if string(key) != "sample" || s.space() != '"' {
				_, err := s.value()
				return err
			}
			inner, err := s.str()
			in := scanner{b: inner}
			_ = in.object(func(key []byte) error {
				if string(key) != "id" || in.space() != '"' {
					_, err := in.value()
					return err
				}
				if v, err := in.str(); err == nil && len(v) <= MaxNameBytes {
					id = string(v)
				}
				return errFound
			})
			if id != "" {
				return errFound
			}
			return err
		})
	})
	return id
}
