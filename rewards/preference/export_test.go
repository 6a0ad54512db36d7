package preference

import (
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// What the tests name of a sidecar.
type (
	Sidecar    = sidecar
	ScoreRules = scoreRules
)

const (
	SidecarFile  = sidecarFile
	SelfTestFile = selfTestFile
	TwoTower     = kindTwoTower
)

// ParseSidecar reads a sidecar.
func ParseSidecar(data []byte) (*Sidecar, error) { return parseSidecar(data) }

// ReadSidecar reads the sidecar of a folder.
func ReadSidecar(folder string) (*Sidecar, error) {
	data, err := readFile(filepath.Join(folder, sidecarFile), maxSidecar)
	if err != nil {
		return nil, err
	}
	return parseSidecar(data)
}

// Near compares what a model answers with what is expected, to a thousandth.
func Near(got, want []float64) error { return selfCase{tolerance: 1e-3}.near("score", got, want) }

// Folder is a loaded model, for tests that look between its parts.
type Folder struct{ e *network }

// Open loads a folder.
func Open(ctx context.Context, nets infer.Nets, folder, device string) (*Folder, error) {
	side, err := ReadSidecar(folder)
	if err != nil {
		return nil, err
	}
	e, err := load(ctx, nets, folder, device, side)
	return &Folder{e}, err
}

// Tokens returns the ids that a text is read as, and how many are not padding.
func (f *Folder) Tokens(prompt, response string) (ids []int64, count int, err error) {
	t, err := f.e.words.encode("", prompt, response)
	return t.ids, t.count, err
}

// Embeds returns the embeddings of a picture and a text, with length 1.
func (f *Folder) Embeds(ctx context.Context, px *rewards.Pixels, prompt string) (image, text []float64, err error) {
	t, err := f.e.words.encode("", prompt, "")
	if err != nil {
		return nil, nil, err
	}
	var a, b embedding
	if f.e.side.Kind == kindCombined {
		a, b, err = f.e.both(ctx, "test", px, 0, t)
	} else {
		if a, err = f.e.picture(ctx, "test", px, 0, nil); err == nil {
			b, err = f.e.sentence(ctx, "test", t)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return a.unit(), b.unit(), nil
}

// Picture returns the bytes that the model is given of a frame, channel by channel.
func (f *Folder) Picture(px *rewards.Pixels) ([]byte, error) {
	t, err := f.e.tensor(px, 0)
	if err != nil {
		return nil, err
	}
	return t.U8, nil
}

// Sidecar is the folder's.
func (f *Folder) Sidecar() *Sidecar { return f.e.side }

// SelfTest runs the folder's self-test.
func (f *Folder) SelfTest(ctx context.Context, folder string) error { return f.e.selfTest(ctx, folder) }

// Rate applies the rules to a graph's numbers.
func (s scoreRules) Rate(all []float32) (float64, error) {
	r, err := s.rate(all)
	return r.value, err
}

// ParseSelfTest reads a self-test file and says how many cases it has.
func ParseSelfTest(data []byte, side *Sidecar) (int, error) {
	c, err := parseSelfTest(data, side)
	return len(c), err
}

// MaxFrames is the bound on the frames of a video.
const MaxFrames = maxFrames

// Build makes a scorer of Specs.
func Build(specs []rewards.Spec, name, options string) (rewards.Scorer, error) {
	var reg rewards.Registry
	for _, s := range specs {
		reg.Register(s)
	}
	return reg.Build(name, json.RawMessage(options))
}
