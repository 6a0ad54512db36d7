package ppocr

import (
	"context"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// Warm loads the models. It fails if the recogniser has no alphabet or one that does not fit the
// recogniser's output. It may be called again, and tries again after a failure.
func (r *Reader) Warm(ctx context.Context) error {
	_, err := r.load(ctx)
	return err
}

// load returns the alphabet of the loaded models, and loads them if nobody did.
func (r *Reader) load(ctx context.Context) (dictionary, error) {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	d, err := r.alphabet.Get(ctx, r.open)
	if err != nil {
		return nil, r.classify(ctx, err)
	}
	return d, nil
}

// open asks the models what they are, and holds the alphabet against the recogniser's
// output.
func (r *Reader) open(ctx context.Context) (dictionary, error) {
	if !r.cfg.WholePicture {
		if _, err := describe(ctx, r.models.Det); err != nil {
			return nil, fmt.Errorf("detector: %w", err)
		}
	}
	info, err := describe(ctx, r.models.Rec)
	if err != nil {
		return nil, fmt.Errorf("recogniser: %w", err)
	}
	d, err := loadDictionary(info)
	if err != nil {
		return nil, err
	}
	classes, err := r.classes(ctx, info)
	if err != nil {
		return nil, fmt.Errorf("recogniser: %w", err)
	}
	return d, d.fits(classes)
}

// describe has a model loaded; of one that does not describe itself it knows nothing.
func describe(ctx context.Context, m Inferer) (infer.Info, error) {
	if d, ok := m.(describer); ok {
		return d.Info(ctx)
	}
	return infer.Info{}, nil
}

// classes is the last size of the recogniser's output: as the model says, or else
// as an empty line shows.
func (r *Reader) classes(ctx context.Context, info infer.Info) (int, error) {
	if len(info.Outputs) > 0 {
		if s := info.Outputs[0].Shape; len(s) > 0 && s[len(s)-1] > 0 {
			return s[len(s)-1], nil
		}
	}
	h, w := r.constants.recHeight, r.constants.recWidth
	out, err := r.models.Rec.Infer(ctx, infer.Request{Name: "empty line", Inputs: []infer.Tensor{infer.Floats("", make([]float32, 3*h*w), 3, h, w)}})
	if err != nil {
		return 0, err
	}
	if len(out) == 0 || len(out[0].Shape) != 2 {
		return 0, fmt.Errorf("%w: want an output of steps and classes", infer.ErrModel)
	}
	return out[0].Shape[1], nil
}
