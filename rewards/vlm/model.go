package vlm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/hftok"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
)

// Bounds of what a model keeps and of how often it tries to load.
const (
	// maxTokenizer bounds tokenizer.json in bytes; those of 256,000 tokens have 35 MB.
	maxTokenizer = 128 << 20
	// promptEntries and promptBytes bound the prompts whose tokens are remembered.
	promptEntries = 4096
	promptBytes   = 64 << 20
	// retryAfter is how long a failed loading is not tried again: a thousand samples do
	// not read a broken folder a thousand times.
	retryAfter = 10 * time.Second
)

// modelKey tells one model from another.
type modelKey struct{ folder, device, dtype string }

// model is a folder's networks on a device, loaded once for all judges that use it.
type model struct {
	name   string
	key    modelKey
	nets   infer.Nets
	folder *folder

	prompts *localmodel.Cache[encoded]
	loaded  *localmodel.Once[*loaded]
}

// loaded is what a model has once it is loaded. It does not change any more.
type loaded struct {
	family    family
	tokenizer tokenizer
	render    renderer
	harmless  *strings.Replacer
	vision    infer.Net
	language  infer.Net
	image     int64
	stops     []int64
	words     words
	context   int
	bos       string // with which a rendered prompt begins that needs none added
}

func newModel(name string, key modelKey, nets infer.Nets) (*model, error) {
	f, err := openFolder(key.folder, key.dtype)
	if err != nil {
		return nil, err
	}
	if _, err := openFamily(f); err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	if f.overrides(key.dtype) { // both may run, and metrics tell models by their names
		name += " " + key.dtype
	}
	return &model{
		name: name, key: key, nets: nets, folder: f,
		prompts: localmodel.NewCache(promptEntries, promptBytes, encoded.bytes),
		loaded:  localmodel.NewOnce[*loaded](func(error) time.Duration { return retryAfter }),
	}, nil
}

// errLoad is wrapped by what a judge says that cannot be loaded: trying again helps
// only after the folder was put right.
var errLoad = errors.New("the judge cannot be loaded")

// load returns the loaded model, and loads it if nobody did, as long as anybody waits for
// it. A failure is what others are told, too, for retryAfter.
func (m *model) load(ctx context.Context) (*loaded, error) {
	return m.loaded.Get(ctx, func(ctx context.Context) (*loaded, error) {
		l, err := m.bringUp(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errLoad, m.key.folder, err)
		}
		return l, nil
	})
}

// executors are what runs the networks.
func (m *model) executors() any {
	if l, ok := m.loaded.Made(); ok {
		return localmodel.Executors(m.nets, m.key.device, l.vision, l.language)
	}
	return localmodel.Executors(m.nets, m.key.device)
}

// bringUp loads everything, and looks whether it fits together.
func (m *model) bringUp(ctx context.Context) (*loaded, error) {
	f, err := openFolder(m.key.folder, m.key.dtype) // anew: what was wrong may have been put right
	if err != nil {
		return nil, err
	}
	family, err := openFamily(f)
	if err != nil {
		return nil, err
	}
	l := &loaded{family: family, context: f.config.context(), bos: f.tokenizerConfig.BOS.text}
	if err := l.readTokenizer(f); err != nil {
		return nil, err
	}
	if l.render, _, err = newRenderer(family, f.template, f.tokenizerConfig); err != nil {
		return nil, err
	}
	l.vision, err = m.nets.Net(infer.Model{Name: m.name + " vision", Path: f.vision, Device: m.key.device})
	if err != nil {
		return nil, fmt.Errorf("vision encoder: %w", err)
	}
	l.language, err = m.nets.Net(infer.Model{Name: m.name, Path: f.decoder, Embed: f.embed, Device: m.key.device})
	if err != nil {
		return nil, fmt.Errorf("the ONNX graph of the language model: %w", err)
	}
	if err := l.introspect(ctx, f); err != nil {
		return nil, err
	}
	return l, l.probeVocabulary(ctx)
}

// enter waits for leave to make pictures ready for the vision encoder.
func (l *loaded) enter(ctx context.Context) (leave func(), err error) {
	if leave, err = infer.Enter(ctx, l.vision); err != nil {
		return nil, fmt.Errorf("vision encoder: %w", err)
	}
	return leave, nil
}

// readTokenizer loads tokenizer.json and finds the ids in it.
func (l *loaded) readTokenizer(f *folder) error {
	t, err := hftok.Load(filepath.Join(f.path, "tokenizer.json"))
	if err != nil {
		return fmt.Errorf("tokenizer.json: %w", err)
	}
	data, err := f.read("tokenizer.json", maxTokenizer)
	if err != nil {
		return err
	}
	special, err := readSpecial(data)
	if err != nil {
		return err
	}
	return l.bindTokenizer(t, special, f)
}

func (l *loaded) bindTokenizer(t tokenizer, special []string, f *folder) error {
	l.tokenizer = t
	l.harmless = harmless(append(special, l.family.ImageToken()))
	var ok bool
	if l.image, ok = t.ID(l.family.ImageToken()); !ok {
		return fmt.Errorf("tokenizer.json has no token %s, the placeholder for pictures of %s", l.family.ImageToken(), l.family.Name())
	}
	if id, says := f.config.imageToken(); says && id != l.image {
		return fmt.Errorf("config.json: image_token_id is %d, but %s is %d in tokenizer.json: the files belong to different models", id, l.family.ImageToken(), l.image)
	}
	if n := f.config.vocabulary(); n > 0 && t.Size() > n {
		return fmt.Errorf("wrong vocabulary: tokenizer.json has ids up to %d, but config.json has a vocab_size of %d", t.Size()-1, n)
	}
	if l.stops = f.stops(t, l.family); len(l.stops) == 0 {
		return fmt.Errorf("no token ends an answer: neither generation_config.json nor config.json has an eos_token_id, and tokenizer.json has none of %s", strings.Join(l.family.Stops(), ", "))
	}
	l.words = findWords(t)
	return nil
}

// introspect loads the networks, and looks at what they take and give.
func (l *loaded) introspect(ctx context.Context, f *folder) error {
	vision, err := l.vision.Info(ctx)
	if err != nil {
		return fmt.Errorf("vision encoder: %w", err)
	}
	if err := l.family.Bind(vision); err != nil {
		return fmt.Errorf("onnx/%s: %w", filepath.Base(f.vision), err)
	}
	language, err := l.language.Info(ctx)
	if err != nil {
		return fmt.Errorf("the ONNX graph of the language model: %w", err)
	}
	about := func(key string) int {
		n, err := strconv.Atoi(language.Metadata[key])
		if err != nil {
			return -1 // not said
		}
		return n
	}
	if n := about(infer.MetaVocabulary); n >= 0 && l.tokenizer.Size() > n {
		return fmt.Errorf("wrong vocabulary: tokenizer.json has ids up to %d, but onnx/%s has %d logits", l.tokenizer.Size()-1, filepath.Base(f.decoder), n)
	}
	if n := about(infer.MetaLongest); n > 0 {
		l.context = min(l.context, n)
	}
	if n := about(infer.MetaAxes); n >= 0 && (n == 3) != (l.family.Axes() == 3) {
		return fmt.Errorf("onnx/%s takes positions of %d axes, but models of %s have %d", filepath.Base(f.decoder), n, l.family.Name(), l.family.Axes())
	}
	return nil
}

// probeVocabulary asks about the tokenizer's last token: many files do not say how many
// tokens they know.
func (l *loaded) probeVocabulary(ctx context.Context) error {
	last := int64(l.tokenizer.Size() - 1)
	if last == l.image {
		last--
	}
	out, err := l.language.Infer(ctx, infer.Request{
		Name:     "vocabulary",
		Inputs:   []infer.Tensor{{Name: infer.InputIDs, DType: infer.I64, Shape: []int{1}, I64: []int64{last}}},
		Generate: &infer.Generate{ImageToken: l.image, Keep: 1},
	})
	switch {
	case err != nil && (errors.Is(err, infer.ErrFault) || errors.Is(err, infer.ErrInput)):
		return fmt.Errorf("wrong vocabulary, or a model that cannot run: the model fails on token %d, the last of tokenizer.json: %w", last, err)
	case err != nil:
		return fmt.Errorf("the ONNX graph of the language model: %w", err)
	}
	t, err := named(out, "logits", infer.F32)
	if err != nil {
		return err
	}
	if n := t.Len(); l.tokenizer.Size() > n {
		return fmt.Errorf("wrong vocabulary: tokenizer.json has ids up to %d, but the decoder has %d logits", l.tokenizer.Size()-1, n)
	}
	return nil
}

// named finds an output.
func named(out []infer.Tensor, name string, dtype infer.DType) (infer.Tensor, error) {
	for _, t := range out {
		if t.Name == name && t.DType == dtype {
			return t, t.Check()
		}
	}
	return infer.Tensor{}, fmt.Errorf("%w: the model returned no %s of %s", rewards.Internal, name, dtype)
}
