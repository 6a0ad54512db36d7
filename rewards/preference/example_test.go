package preference_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/preference"
)

// graphs stand in for a pool with ONNX Runtime: every picture is worth its first byte.
type graphs struct{}

func (graphs) Net(infer.Model) (infer.Net, error) {
	return net{
		info: declares([]infer.Port{floats("pixel_values", -1, 3, 32, 32)}, []infer.Port{floats("score", -1)}),
		infer: func(_ context.Context, req infer.Request) ([]infer.Tensor, error) {
			return []infer.Tensor{infer.Floats("score", []float32{float32(req.Inputs[0].U8[0])})}, nil
		},
	}, nil
}

func ExampleSpecs() {
	catalogue := func(string) (string, error) {
		return filepath.Join("..", "..", "testdata", "models", "tiny-aesthetic"), nil
	}
	var scorers rewards.Registry
	for _, s := range preference.Specs(preference.Deps{Nets: graphs{}, Folder: catalogue}) {
		scorers.Register(s)
	}
	s, err := scorers.Build("aesthetic", json.RawMessage(`{"scale": 0.1, "selftest": false}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	score, err := s.Score(context.Background(), sample("", plain(60)))
	fmt.Printf("%.1f %v %v\n", score.Value, score.Extra["output"], err)
	// Output: 6.1 61 <nil>
}
