//go:build cgo

package ort

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// Language is a language model that is loaded into this process: a decoder with a cache of keys and
// values, and the model that computes the embeddings of its tokens. Its rules for concurrent use
// are those of Session.
//
// A batch runs as follows. The tokens become embeddings, and those of image tokens are replaced by
// the embeddings of the images (prompt.go). The decoder runs over the whole prompt with an empty
// cache (prefill.go). The result is either the logits of the last positions, or a sequence of
// tokens, which are appended one by one; each run uses the cache of the previous run (greedy.go).
//
// The cache never leaves the process and is never copied by this package: a run writes it into this
// package's memory, and the next run reads it there. On a CUDA device the cache crosses the bus
// twice for every token, because the bindings cannot create a value in the device's memory (they
// have no call to bind to a device). This is 45 KiB for each token of context for a model of 256M,
// that is about 100 MB for each generated token after a prompt of 1,100 tokens, or about 10 ms with
// pageable memory. If only the logits of a prompt are requested, the cache crosses the bus once. A
// cache of F16 stays F16, which halves these amounts.
type Language struct {
	decoder, embed *Session
	ports          decoderPorts
	rows           logitRows
	info           infer.Info
	limits         LanguageLimits
}

// logitRows says of which positions a decoder gives logits.
type logitRows uint8

const (
	rowsUnknown logitRows = iota
	rowsAll               // of every one that it was given
	rowsLast              // of the last
	rowsAsked             // of as many as num_logits_to_keep says
)

// OpenLanguage loads a model whose Embed is set, and tests it with two tokens. Its errors are those
// of OpenSession; infer.ErrModel contains the name of every port that does not fit.
func OpenLanguage(cfg SessionConfig) (*Language, error) {
	cfg = cfg.withDefaults()
	m := cfg.Model
	cfg.decoder = true
	decoder, err := OpenSession(cfg)
	if err != nil {
		return nil, err
	}
	l := &Language{decoder: decoder, limits: cfg.Language}
	if l.ports, err = bindDecoder(m, decoder.info.Inputs, decoder.info.Outputs); err != nil {
		return nil, errors.Join(err, decoder.Close())
	}
	cfg.decoder, cfg.Want = false, infer.Info{}
	cfg.Model = infer.Model{Name: m.Name, Path: m.Embed, Device: m.Device}
	if l.embed, err = OpenSession(cfg); err != nil {
		return nil, errors.Join(err, decoder.Close())
	}
	decoder.buffers.most = maxHeldCache
	if err = bindEmbed(cfg.Model, l.embed.info, l.ports.width); err == nil {
		err = l.probe()
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.info = l.about()
	return l, nil
}

// about is what the decoder says, and what callers need besides.
func (l *Language) about() infer.Info {
	info := l.decoder.info
	info.Metadata = maps.Clone(info.Metadata)
	if info.Metadata == nil {
		info.Metadata = make(map[string]string)
	}
	for key, n := range map[string]int{
		infer.MetaVocabulary: l.ports.vocabulary, infer.MetaLayers: len(l.ports.caches) / 2, infer.MetaWidth: l.ports.width,
		infer.MetaAxes: l.ports.axes, infer.MetaLongest: l.limits.Positions,
	} {
		info.Metadata[key] = strconv.Itoa(n)
	}
	info.Inputs = slices.Clone(info.Inputs)
	for i, p := range info.Inputs {
		if p.Name == embedsPort && l.ports.batch == 1 { // though it may be the cache that says so
			info.Inputs[i].Shape = append([]int{1}, p.Shape[1:]...)
		}
	}
	return info
}

// Info returns the description of the decoder, with the entries infer.Meta…. The caller must not
// modify it.
func (l *Language) Info() infer.Info { return l.info }

// Close waits for the current runs and frees the memory of the models.
func (l *Language) Close() error { return errors.Join(l.decoder.Close(), l.embed.Close()) }

// probe runs two tokens and then a third behind them, so that an export whose shapes
// or cache are not what they say is found when it is loaded, and learns what the file
// may leave open: the vocabulary, the width, and of which positions there are logits.
func (l *Language) probe() error {
	batch := 2
	if l.ports.batch == 1 {
		batch = 1
	}
	err := l.try(context.Background(), batch)
	if err == nil || errors.Is(err, infer.ErrMemory) || deviceFault.MatchString(err.Error()) {
		return err
	}
	// Its class was for a run; that of a load is another.
	return fmt.Errorf("%w: %q from %s: a batch of %d prompts of two tokens: %s", infer.ErrModel, l.decoder.cfg.Model.Name, l.decoder.cfg.Model.Path, batch, err.Error())
}

func (l *Language) try(ctx context.Context, batch int) error {
	g := l.generation(batch, 3)
	defer g.release()
	for step, n := range []int{2, 1} {
		embeds, err := l.embeddings(ctx, make([]int64, batch*n), batch)
		if err != nil {
			return err
		}
		width := embeds.Outputs[0].Shape[2]
		if l.ports.width >= 0 && l.ports.width != width {
			return fmt.Errorf("embeddings have %d numbers, but the decoder takes %d", width, l.ports.width)
		}
		l.ports.width = width
		positions := make([]int64, max(l.ports.axes, 1)*batch*n)
		for i := range positions {
			positions[i] = int64(2*step + i%n)
		}
		logits, err := g.step(ctx, embeds.Outputs[0].F32, n, positions, 1)
		embeds.Release()
		if err != nil {
			return err
		}
		if step == 0 {
			if err := l.learn(logits.Shape, batch, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// learn takes in which logits a prompt of n tokens had when one was asked for.
func (l *Language) learn(shape []int, batch, n int) error {
	switch {
	case len(shape) != 3 || shape[0] != batch || shape[2] < 1 || shape[1] != 1 && shape[1] != n:
		return fmt.Errorf("logits have the unexpected shape %v", shape)
	case shape[1] == n:
		l.rows = rowsAll
	case l.ports.keep:
		l.rows = rowsAsked
	default:
		l.rows = rowsLast
	}
	l.ports.vocabulary = shape[2]
	return nil
}
