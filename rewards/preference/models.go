package preference

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
)

// Deps provides what the scorers need from the process.
type Deps struct {
	// Nets runs the graphs. If nil, no scorer can be built.
	Nets infer.Nets
	// Folder returns the folder of a model. The option `model` is a folder or a name in the
	// catalogue. The error describes how to get the model.
	Folder func(model string) (string, error)
}

// The bounds of what is kept of a model's embeddings of texts and of reference pictures.
const (
	cacheEntries = 4096
	cacheBytes   = 64 << 20
)

// shelf holds every model that scorers use, once for each folder and device.
type shelf struct {
	deps Deps

	mu     sync.Mutex // guards models
	models map[place]*model
}

type place struct{ folder, device string }

// model is a folder on a device, shared by all scorers that name it.
type model struct {
	folder, device string
	side           *sidecar
	written        [sha256.Size]byte // of the sidecar

	nets   infer.Nets
	loaded *localmodel.Once[*network]
	tested *localmodel.Once[struct{}]
	texts  *localmodel.Cache[embedding]
}

// model finds or makes the model that options name; it reads the sidecar and loads
// nothing. A sidecar that was changed makes another model: scorers that have the old one
// keep it.
func (s *shelf) model(o base, want ...kind) (*model, error) {
	if s.deps.Nets == nil {
		return nil, errors.New("this process has no runner for models")
	}
	folder := o.Model
	if s.deps.Folder != nil {
		var err error
		if folder, err = s.deps.Folder(o.Model); err != nil {
			return nil, fmt.Errorf("model %q: %w", o.Model, err)
		}
	}
	data, err := readFile(filepath.Join(folder, sidecarFile), maxSidecar)
	if err != nil {
		return nil, fmt.Errorf("model %q: %w", o.Model, err)
	}
	m, err := s.find(place{filepath.Clean(folder), o.Device}, data)
	if err != nil {
		return nil, fmt.Errorf("model %q: %s: %w", o.Model, filepath.Join(folder, sidecarFile), err)
	}
	if !slices.Contains(want, m.side.Kind) {
		return nil, fmt.Errorf("model %q is of kind %s, want %s", o.Model, m.side.Kind, either(want))
	}
	return m, nil
}

func either(kinds []kind) string {
	words := make([]string, len(kinds))
	for i, k := range kinds {
		words[i] = string(k)
	}
	return strings.Join(words, " or ")
}

func (s *shelf) find(at place, sidecar []byte) (*model, error) {
	written := sha256.Sum256(sidecar)
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.models[at]; m != nil && bytes.Equal(m.written[:], written[:]) {
		return m, nil
	}
	side, err := parseSidecar(sidecar)
	if err != nil {
		return nil, err
	}
	m := &model{
		folder: at.folder, device: at.device, side: side, written: written, nets: s.deps.Nets,
		loaded: localmodel.NewOnce[*network](remember), tested: localmodel.NewOnce[struct{}](remember),
		texts: localmodel.NewCache(cacheEntries, cacheBytes, embedding.bytes),
	}
	s.models[at] = m
	return m, nil
}

// network loads the model if nobody did before, and with test holds it to its self-test.
func (m *model) network(ctx context.Context, test bool) (*network, error) {
	e, err := m.loaded.Get(ctx, func(ctx context.Context) (*network, error) {
		return load(ctx, m.nets, m.folder, m.device, m.side)
	})
	if err != nil {
		return nil, m.named(err)
	}
	if !test {
		return e, nil
	}
	_, err = m.tested.Get(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, e.selfTest(ctx, m.folder)
	})
	return e, m.named(err)
}

// executors are what runs the model's graphs.
func (m *model) executors() any {
	var nets []infer.Net
	if e, ok := m.loaded.Made(); ok {
		for _, g := range []*graph{e.vision, e.text, e.whole} {
			if g != nil {
				nets = append(nets, g.net)
			}
		}
	}
	return localmodel.Executors(m.nets, m.device, nets...)
}

func (m *model) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("model %s on %s: %w", m.side.Name, m.device, err)
}

// sentence is the embedding of a prompt: computed once for all who ask at the same time,
// then kept.
func (m *model) sentence(ctx context.Context, e *network, item, prompt string) (embedding, error) {
	const of = "text "
	key := of + prompt // a copy: the work may go on for others when the sample is done
	item = strings.Clone(item)
	return m.texts.Get(ctx, key, func(ctx context.Context) (embedding, error) {
		t, err := e.words.encode("", key[len(of):], "")
		if err != nil {
			return embedding{}, err
		}
		return e.sentence(ctx, item, t)
	})
}

// reference is the embedding of a frame that other samples of the group have too: kept by
// what the model sees of it.
func (m *model) reference(ctx context.Context, e *network, item string, px *rewards.Pixels, frame int, t *tokens) (embedding, error) {
	in, err := e.tensor(px, frame)
	if err != nil {
		return embedding{}, err
	}
	sum := sha256.Sum256(in.U8)
	item = strings.Clone(item)
	return m.texts.Get(ctx, "picture "+string(sum[:])+fmt.Sprint(in.Shape), func(ctx context.Context) (embedding, error) {
		return e.pictureOf(ctx, item, in, t)
	})
}

// judging is what every scorer of a model has.
type judging struct {
	model    *model
	test     bool
	sampling sampling
}

// Concurrency is how many calls the model's device executes at a time.
func (j *judging) Concurrency() int { return rewards.ConcurrencyOf(j.model.executors()) }

// ConcurrencyReason says with what.
func (j *judging) ConcurrencyReason() string { return rewards.ConcurrencyReason(j.model.executors()) }

// Queues says that the component's time begins when the model begins with a picture or text.
func (*judging) Queues() {}

// Warm loads the model and holds it to its self-test.
func (j *judging) Warm(ctx context.Context) error {
	_, err := j.model.network(ctx, j.test)
	return localmodel.Classify(ctx, err)
}
