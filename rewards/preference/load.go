package preference

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
)

// network is a folder whose graphs are loaded and bound.
type network struct {
	side *sidecar
	out  outputs
	// vision and text are the towers of kind two_tower; whole is the one graph of the
	// other kinds.
	vision, text, whole *graph
	words               *words // nil: reads nothing
}

// file is a part of a model and what is asked of it.
type file struct {
	into *(*graph)
	role string
	wants
}

// files are the parts of a kind.
func (e *network) files() []file {
	names, inputs := e.side.Files.names(), e.side.Inputs.names()
	all := map[role]string{rolePixels: inputs.Pixels, roleIDs: inputs.IDs, roleMask: inputs.Mask, roleTypes: inputs.Types}
	said := map[role]bool{roleMask: e.side.Inputs.Mask != "", roleTypes: e.side.Inputs.Types != ""}
	look := func() wants {
		return wants{file: names.Vision, names: map[role]string{rolePixels: all[rolePixels]}, must: map[role]bool{rolePixels: true}, outputs: []string{e.out.Image}}
	}
	read := func() wants {
		return wants{
			file: names.Text, names: map[role]string{roleIDs: all[roleIDs], roleMask: all[roleMask], roleTypes: all[roleTypes]},
			must: map[role]bool{roleIDs: true, roleMask: said[roleMask], roleTypes: said[roleTypes]}, outputs: []string{e.out.Text},
		}
	}
	if e.side.Kind == kindTwoTower {
		return []file{{&e.vision, "vision", look()}, {&e.text, "text", read()}}
	}
	w := wants{file: names.Model, names: map[role]string{}, must: map[role]bool{}, outputs: []string{e.out.Score}, constants: e.side.Constants}
	if e.side.Image != nil {
		w.names[rolePixels], w.must[rolePixels] = all[rolePixels], true
	}
	if e.side.Text != nil {
		w.names[roleIDs], w.must[roleIDs] = all[roleIDs], true
		w.names[roleMask], w.must[roleMask] = all[roleMask], said[roleMask]
		w.names[roleTypes], w.must[roleTypes] = all[roleTypes], said[roleTypes]
	}
	if e.side.Kind == kindCombined {
		w.outputs = []string{e.out.Image, e.out.Text}
	}
	return []file{{&e.whole, "model", w}}
}

// load loads a folder's graphs and its tokenizer, and asks each graph once, so that what
// cannot work is known by name before the first sample.
func load(ctx context.Context, nets infer.Nets, folder, device string, side *sidecar) (*network, error) {
	e := &network{side: side, out: side.Outputs.names()}
	var faults []error
	for _, f := range e.files() {
		net, err := nets.Net(infer.Model{Name: side.Name + "/" + f.role, Path: filepath.Join(folder, f.file), Device: device})
		if err == nil {
			*f.into, err = bind(ctx, net, f.wants)
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	if side.Text != nil {
		var err error
		if e.words, err = loadWords(folder, side); err != nil {
			faults = append(faults, err)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if e.words != nil {
		e.words.masked = e.reader().reads(roleMask)
	}
	return e, e.probe(ctx)
}

// reader is the graph that takes tokens.
func (e *network) reader() *graph {
	if e.text != nil {
		return e.text
	}
	return e.whole
}

// probe asks the graphs about a grey picture and the tokenizer's first token, then about
// its last: a graph whose embedding is smaller than the tokenizer's vocabulary would
// otherwise fail with the first rare word.
func (e *network) probe(ctx context.Context) error {
	picture, err := e.grey()
	if err != nil {
		return err
	}
	if e.words == nil {
		return e.answers(ctx, "probe", picture, nil)
	}
	size := int64(e.words.tokenizer.Size())
	first, last := e.words.only(0), e.words.only(size-1)
	if err := e.answers(ctx, "probe", picture, &first); err != nil {
		return err
	}
	if e.text != nil {
		_, err = e.text.run(ctx, "probe of the last token", nil, &last, e.out.Text)
	} else {
		err = e.answers(ctx, "probe of the last token", picture, &last)
	}
	if err == nil || passing(err) {
		return err
	}
	return fmt.Errorf("%w: %s: wrong vocabulary: %s has %d tokens, but the graph fails at token %d, so its embedding is smaller; put the tokenizer of this model into the folder: %s",
		infer.ErrModel, e.reader().file, e.side.Files.names().Tokenizer, size, size-1, err.Error())
}

// grey is a picture to probe with; nil where the model looks at none.
func (e *network) grey() (*infer.Tensor, error) {
	if e.side.Image == nil {
		return nil, nil //nolint:nilnil // absence is a value here
	}
	px := &rewards.Pixels{Width: 64, Height: 48, Count: 1, RGB: make([]byte, 64*48*3)}
	for i := range px.RGB {
		px.RGB[i] = byte(64 + i%128)
	}
	t, err := e.tensor(px, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: image of %s: %w", infer.ErrModel, sidecarFile, err)
	}
	return t, nil
}

// answers asks every graph once and holds the widths of the embeddings against each other.
func (e *network) answers(ctx context.Context, item string, picture *infer.Tensor, text *tokens) error {
	switch e.side.Kind {
	case kindTwoTower:
		image, err := e.vision.run(ctx, item, picture, nil, e.out.Image)
		if err != nil {
			return err
		}
		words, err := e.text.run(ctx, item, nil, text, e.out.Text)
		if err != nil {
			return err
		}
		return e.sameWidth(image[0], words[0], e.vision.file, e.text.file)
	case kindCombined:
		out, err := e.whole.run(ctx, item, picture, text, e.out.Image, e.out.Text)
		if err != nil {
			return err
		}
		return e.sameWidth(out[0], out[1], e.whole.file, e.whole.file)
	}
	out, err := e.whole.run(ctx, item, picture, text, e.out.Score)
	if err != nil {
		return err
	}
	if n := out[0].Len(); len(out[0].Shape) > 1 || e.side.Score.Index >= n {
		return fmt.Errorf("%w: %s: output %q has shape %v for an item, and score.index of %s is %d", infer.ErrModel, e.whole.file, e.out.Score, out[0].Shape, sidecarFile, e.side.Score.Index)
	}
	return nil
}

func (e *network) sameWidth(image, text infer.Tensor, imageFile, textFile string) error {
	if len(image.Shape) != 1 || len(text.Shape) != 1 || image.Len() != text.Len() || image.Len() == 0 {
		return fmt.Errorf("%w: %s returns embeddings of shape %v for a picture, %s of shape %v for a text: want one width for both", infer.ErrModel, imageFile, image.Shape, textFile, text.Shape)
	}
	return nil
}

// lasting is how long a failure that another try would only repeat is answered from
// memory.
const lasting = 5 * time.Second

// remember says how long others are told of a failure to load.
func remember(err error) time.Duration {
	switch rewards.ClassOf(localmodel.Classify(context.Background(), err)) {
	case rewards.Internal, rewards.BadInput, rewards.InvalidScore, rewards.Panicked:
		return lasting
	}
	return 0
}

// passing tells whether an error says nothing about the graph.
func passing(err error) bool {
	for _, e := range []error{context.Canceled, context.DeadlineExceeded, infer.ErrTimeout, infer.ErrUnavailable, infer.ErrMemory, infer.ErrCrashed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
