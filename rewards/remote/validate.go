package remote

import (
	"fmt"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// Bounds of options that have no natural one.
const (
	maxBatch  = 1024
	maxExtras = 64
	maxSource = 64
)

// validate names everything that is wrong with options over their defaults.
// Options that the protocol does not take have their defaults, which are right.
func (o *options) validate() error {
	var f service.Faults
	f.OneOf("protocol", o.Protocol, protocols()...)
	o.Validate(&f)
	f.Add(len(o.All()) > 1 && o.Protocol == cosmos, "urls", "a cosmos server keeps its results for itself; give one url")
	f.Add(!service.Finite(o.Scale) || o.Scale == 0, "score_scale", "is %v, want a finite number other than 0", o.Scale)
	f.Add(!service.Finite(o.Bias), "score_bias", "is %v, want a finite number", o.Bias)
	f.Add(o.Batch < 1 || o.Batch > maxBatch, "batch", "is %d, want 1 to %d", o.Batch, maxBatch)
	f.Add(o.BatchWait < 0 || time.Duration(o.BatchWait) > time.Minute, "batch_wait", "is %v, want 0 to 1m", time.Duration(o.BatchWait))
	f.Add(o.BatchWait > 0 && o.Protocol == deepgen && o.Metadata != "", "metadata", "a request with an object has a single sample, which excludes batch_wait; leave one of them out")
	o.validateExtras(&f)
	o.validateInput(&f)
	o.validateProtocol(&f)
	return f.Err()
}

func (o *options) validateInput(f *service.Faults) {
	_, err := service.ParseSource(o.Prompt)
	f.Check("prompt", err)
	if o.Metadata != "" {
		_, err := service.ParseSource(o.Metadata)
		f.Check("metadata", err)
	}
	f.OneOf("image_format", o.ImageFormat, "jpeg", "png")
	f.Add(o.Protocol == deqa && o.ImageFormat == "png", "image_format", "DeQA's server refuses PNG")
	f.Add(o.Quality < 1 || o.Quality > 100, "quality", "is %d, want 1 to 100", o.Quality)
	words := []string{"refuse", "first_frame"}
	if o.Protocol == flowFactory {
		words = append(words, "frames")
	}
	f.OneOf("video", o.Video, words...)
	f.Add(o.SourceImage < 0 || o.SourceImage > maxSource, "source_image", "is %d, want 1 to %d; picture 0 is the result", o.SourceImage, maxSource)
}

func (o *options) validateProtocol(f *service.Faults) {
	f.OneOf("geneval_value", o.GenEvalValue, genEvalLists()...)
	f.Add(o.OnlyStrict && o.GenEvalValue == "rewards", "geneval_value", "with only_strict the server does not return rewards; want scores or strict_rewards")
	f.Add(!(o.NoiseLevel >= 0 && o.NoiseLevel <= 1), "noise_level", "is %v, want 0 to 1", o.NoiseLevel)
	f.OneOf("sub_metric_reduce", o.Reduce, "first", "mean", "max")
	f.Add(o.Reward == "" && (o.Protocol == uniRL || o.Protocol == cosmos), "reward", "is missing: give the service's name of the reward")
	if o.Protocol == generic {
		f.Add(len(o.Request) == 0, "request", "is missing: give the request as an object")
		if len(o.Request) > 0 {
			_, err := parseTemplate(o.Request)
			f.Check("request", err)
		}
		_, err := parsePath(o.ScorePath)
		f.Check("score_path", err)
	}
}

func (o *options) validateExtras(f *service.Faults) {
	f.Add(len(o.Extras) > maxExtras, "extras", "are %d, want at most %d", len(o.Extras), maxExtras)
	seen := map[string]bool{}
	for _, field := range o.fixedFields() {
		seen[field.Name] = true
	}
	for i, e := range o.Extras {
		name := fmt.Sprintf("extras[%d]", i)
		f.Add(e.Name == "", name, "has no name")
		f.Add(seen[e.Name] && e.Name != "", name, "duplicate name %q", e.Name)
		f.Add(!slices.Contains([]rewards.FieldKind{"", rewards.Number, rewards.Bool, rewards.String}, e.Kind), name, "kind %q is unknown, want number, bool or string", e.Kind)
		_, err := parsePath(e.Path)
		f.Check(name+".path", err)
		seen[e.Name] = true
	}
}
