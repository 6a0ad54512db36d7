package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// The protocols of the scorer http.
const (
	deepgen        = "deepgen"
	verlOmni       = "verl_omni_http"
	deepgenGenEval = "deepgen_geneval"
	deqa           = "deqa"
	genEval        = "geneval"
	unifiedReward  = "unified_reward_remote"
	latent         = "latent"
	uniRL          = "unirl"
	flowFactory    = "flow_factory"
	slime          = "slime"
	openRLHF       = "openrlhf"
	cosmos         = "cosmos"
	generic        = "json"
)

func protocols() []string {
	return []string{deepgen, verlOmni, deepgenGenEval, deqa, genEval, unifiedReward, latent, uniRL, flowFactory, slime, openRLHF, cosmos, generic}
}

// options are those of the scorer http. Which protocol takes which, and the
// defaults that depend on it, stand in the README.
type options struct {
	Protocol string `json:"protocol"`
	service.Addresses
	// Scale and Bias make the value of what the scorer says: raw·scale + bias.
	Scale float64 `json:"score_scale"`
	Bias  float64 `json:"score_bias"`
	// Batch is the most samples of one request; BatchWait how long a sample waits for
	// others, 0: not at all.
	Batch     int              `json:"batch"`
	BatchWait service.Duration `json:"batch_wait"`
	// Extras are fields of the answer that become columns.
	Extras []extra `json:"extras"`

	Prompt      string `json:"prompt"`
	Metadata    string `json:"metadata"`
	ImageFormat string `json:"image_format"`
	Quality     int    `json:"quality"`
	Video       string `json:"video"`

	Frames rewards.FrameChoice `json:"frames"` // of a video that is sent as frames
	// SourceImage is the place of the picture that an edit began from among the
	// sample's pictures; 0 is the result, so it is 1 or more. 0: no edit.
	SourceImage int `json:"source_image"`

	OnlyStrict   bool   `json:"only_strict"`
	GenEvalValue string `json:"geneval_value"`

	NoiseLevel float64 `json:"noise_level"`
	NoiseSeed  *int64  `json:"noise_seed"`

	Reward    string `json:"reward"`
	Reduce    string `json:"sub_metric_reduce"`
	ScoreKey  string `json:"score_key"`
	RewardKey string `json:"reward_key"`

	Request   json.RawMessage `json:"request"`
	ScorePath string          `json:"score_path"`
}

// extra declares a field of the answer as a column.
type extra struct {
	Name string `json:"name"`
	// Path is where it stands; empty: under its name.
	Path string            `json:"path"`
	Kind rewards.FieldKind `json:"kind"`
}

// parseOptions reads the options of http over the defaults of their protocol.
func parseOptions(raw json.RawMessage) (options, error) {
	var head struct {
		Protocol string `json:"protocol"`
	}
	_ = json.Unmarshal(raw, &head) // what is wrong with it is said below
	o := defaults(head.Protocol)
	known := slices.Contains(protocols(), head.Protocol)
	err := service.Decode(raw, &o, func(name string) error {
		i := slices.IndexFunc(optionTable(), func(e optionEntry) bool { return e.Name == name })
		switch {
		case i < 0:
			return fmt.Errorf("unknown option; %s has %s", httpName, strings.Join(optionNames(head.Protocol), ", "))
		case known && !optionTable()[i].of(head.Protocol):
			return fmt.Errorf("unknown option of the protocol %s; want one of %s", head.Protocol, strings.Join(optionNames(head.Protocol), ", "))
		}
		return nil
	})
	return o, errors.Join(err, o.validate())
}

// defaults are what the clients that the protocol is known from send.
func defaults(protocol string) options {
	zero := int64(0)
	o := options{
		Scale: 1, Batch: 16, Prompt: "prompt", ImageFormat: "jpeg", Quality: 75, Video: "refuse",
		GenEvalValue: "scores", NoiseLevel: 0.4, NoiseSeed: &zero, Reduce: "first",
	}
	switch protocol {
	case verlOmni:
		o.Prompt, o.Video = "ground_truth", "first_frame"
	case genEval, deepgenGenEval:
		o.Metadata = "ground_truth"
	case flowFactory:
		o.ImageFormat, o.Video = "png", "frames"
	case uniRL, generic:
		o.ImageFormat = "png"
	}
	return o
}

// optionEntry is a row of the table of options.
type optionEntry struct {
	rewards.Option
	protocols []string // nil: all
}

func (e optionEntry) of(protocol string) bool {
	return e.protocols == nil || slices.Contains(e.protocols, protocol)
}

// optionNames are the options of a protocol; of one that is not known, all.
func optionNames(protocol string) []string {
	var out []string
	for _, e := range optionTable() {
		if e.of(protocol) || !slices.Contains(protocols(), protocol) {
			out = append(out, e.Name)
		}
	}
	return out
}

func documentation() []rewards.Option {
	var out []rewards.Option
	for _, e := range optionTable() {
		if e.protocols != nil {
			e.Doc += " (" + strings.Join(e.protocols, ", ") + ")"
		}
		out = append(out, e.Option)
	}
	return out
}

// optionTable is the one list of options: documentation, and which protocol takes
// which.
func optionTable() []optionEntry {
	pickled := []string{deepgen, verlOmni, deepgenGenEval, deqa, genEval, unifiedReward}
	lists := slices.Concat(pickled, []string{uniRL, flowFactory, openRLHF})
	encoded := slices.Concat(pickled, []string{uniRL, flowFactory, generic})
	table := []optionEntry{{rewards.Option{Name: "protocol", Type: "string", Default: "required", Doc: "protocol of the service: " + strings.Join(protocols(), ", ")}, nil}}
	for _, o := range service.AddressOptions() {
		table = append(table, optionEntry{o, nil})
	}
	return append(table,
		optionEntry{rewards.Option{Name: "score_scale", Type: "number", Default: "1", Doc: "factor of the value = score·score_scale + score_bias"}, nil},
		optionEntry{rewards.Option{Name: "score_bias", Type: "number", Default: "0", Doc: "summand of the value = score·score_scale + score_bias"}, nil},
		optionEntry{rewards.Option{Name: "batch", Type: "int", Default: "16", Doc: "maximum number of samples in one request, if batch_wait is set"}, lists},
		optionEntry{rewards.Option{Name: "batch_wait", Type: "duration", Default: "0", Doc: "maximum wait of a sample for others to share one request; 0: one request for each sample"}, lists},
		optionEntry{
			rewards.Option{Name: "extras", Type: "list", Default: "none", Doc: "fields of the answer that become columns of the result: {name, path (default: the name), kind (number, bool or string)}"},
			[]string{deepgen, verlOmni, deqa, unifiedReward, uniRL, slime, openRLHF, cosmos, generic},
		},
		optionEntry{
			rewards.Option{Name: "prompt", Type: "string", Default: "prompt; verl_omni_http ground_truth", Doc: "field of the sample with the prompt: prompt, ground_truth, extra_info.caption, …"},
			[]string{deepgen, verlOmni, deepgenGenEval, unifiedReward, uniRL, flowFactory, cosmos},
		},
		optionEntry{
			rewards.Option{Name: "metadata", Type: "string", Default: "ground_truth; deepgen and unirl none", Doc: "field of the sample with the object that is sent as metadata, such as GenEval's row"},
			[]string{deepgen, deepgenGenEval, genEval, uniRL},
		},
		optionEntry{rewards.Option{Name: "image_format", Type: "string", Default: "jpeg; unirl, flow_factory, json png", Doc: "format of pictures in the request: jpeg or png; a picture already in this format is sent unchanged"}, encoded},
		optionEntry{rewards.Option{Name: "quality", Type: "int", Default: "75", Doc: "quality of JPEG, 1 to 100; 75 is PIL's default, which the usual clients of these services use"}, encoded},
		optionEntry{
			rewards.Option{Name: "video", Type: "string", Default: "refuse; verl_omni_http first_frame; flow_factory frames", Doc: "part of a video that is sent: first_frame, frames (flow_factory), or refuse (a sample with a video fails)"},
			slices.Concat(encoded, []string{cosmos}),
		},
		optionEntry{
			rewards.Option{Name: "frames", Type: "string", Default: "all", Doc: "frames of a video that are sent, with video: frames: " + rewards.FramesForm + " (at floor(i·N/n))"},
			encoded,
		},
		optionEntry{
			rewards.Option{Name: "source_image", Type: "int", Default: "0", Doc: "place of an edit's source among the sample's pictures, from 1 on; 0: no source is sent"},
			[]string{deepgen, uniRL, flowFactory},
		},
		optionEntry{rewards.Option{Name: "only_strict", Type: "bool", Default: "false", Doc: "true: only GenEval's strict result is requested"}, []string{genEval, deepgenGenEval}},
		optionEntry{rewards.Option{Name: "geneval_value", Type: "string", Default: "scores", Doc: "list of the answer that has the value: scores, rewards or strict_rewards"}, []string{genEval, deepgenGenEval}},
		optionEntry{rewards.Option{Name: "noise_level", Type: "number", Default: "0.4", Doc: "noise level of the latents, 0 to 1"}, []string{latent}},
		optionEntry{rewards.Option{Name: "noise_seed", Type: "int or null", Default: "0", Doc: "seed of the noise; null: no seed is sent"}, []string{latent}},
		optionEntry{rewards.Option{Name: "reward", Type: "string", Default: "required", Doc: "name of the reward at the service"}, []string{uniRL, cosmos}},
		optionEntry{rewards.Option{Name: "sub_metric_reduce", Type: "string", Default: "first", Doc: "how several numbers in the answer become one: first, mean or max"}, []string{uniRL}},
		optionEntry{rewards.Option{Name: "score_key", Type: "string", Default: "the only one", Doc: "key of the score in the reward's answer; a+b: the sum of both"}, []string{cosmos}},
		optionEntry{rewards.Option{Name: "reward_key", Type: "string", Default: "none", Doc: "key of the score in an answer that is an object"}, []string{slime}},
		optionEntry{rewards.Option{Name: "request", Type: "object", Default: "required", Doc: "body of the request, with placeholders such as {prompt} and {image_b64} in its texts"}, []string{generic}},
		optionEntry{rewards.Option{Name: "score_path", Type: "string", Default: "the answer itself", Doc: "path to the score in the answer, such as rewards.0.score"}, []string{generic}},
	)
}
