package judge

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/rewards"
)

// The questions: of t2v_metrics (VQAScore) and of GenEval2 and UniRL; of
// Flow-Factory's vllm_evaluate.py (Apache-2.0), which defines both and asks the
// second.
const (
	vqaT2V     = `Does this figure show "{prompt}"? Please answer yes or no.`
	vqaGenEval = `Does this image show "{prompt}"? Answer the question with Yes or No.`
	checklist  = "You are an expert image quality assessor. " +
		"Evaluate this AI-generated image by considering ALL of the following criteria:\n" +
		"1. Naturalness: Does the scene look realistic with correct perspective, shadows, and lighting?\n" +
		"2. Artifacts: Is the image free from distortions, blurriness, watermarks, " +
		"deformed faces, unusual body parts, or unharmonized subjects?\n" +
		"3. Aesthetic Appeal: Does the image exhibit pleasing composition, color harmony, and visual balance?\n" +
		"4. Detail & Clarity: Are textures, edges, and fine details rendered sharply and coherently without noise or smearing?\n" +
		"5. Overall Coherence: Is the image semantically consistent, with all elements logically fitting together in a unified scene?\n\n" +
		"Considering all the above criteria holistically, is this a high-quality image? Answer Yes or No."
	beautiful = "Is it a beautiful image?"
	rateDigit = "How well does this image match the description \"{prompt}\"? " +
		"Answer with one digit from %d (not at all) to %d (perfectly), and nothing else."
)

// likelihoodOptions are those of the scorers that read probabilities, not text.
type likelihoodOptions struct {
	chat.Asking
	chat.Pictures
	interval
}

func defaultLikelihood() likelihoodOptions {
	return likelihoodOptions{Asking: chat.DefaultAsking(), Pictures: defaultPictures(), interval: interval{FrameInterval: 4}}
}

func (o *likelihoodOptions) validate() error {
	return errors.Join(o.Asking.Validate(), checkPictures(&o.Pictures), positive(o.FrameInterval))
}

func likelihoodDocs(more ...rewards.Option) []rewards.Option {
	docs := append(chat.AskingDocs(), pictureDocs("0")...)
	return append(append(docs, frameDocs()...), more...)
}

// scorer asks every nth frame for one token, the likeliest, with its alternatives.
func (o *likelihoodOptions) scorer(text string, fields []rewards.Field, read func(chat.Reply) (reading, error)) (*scorer, error) {
	t, err := parseTemplate("question", text)
	if err != nil {
		return nil, err
	}
	return &scorer{
		looks: true, asking: o.Asking, pictures: o.Pictures, sampling: chat.Greedy(1), top: topTokens, fields: fields,
		prepare: func(s *rewards.Sample) (*inquiry, error) {
			q, err := t.Fill(s)
			if err != nil {
				return nil, err
			}
			return one(each(o.choice()), q, read), nil
		},
	}, nil
}

// named is a question by its name, or the question itself.
func named(q string, names map[string]string) string {
	if known, ok := names[q]; ok {
		return known
	}
	return q
}

type vqaOptions struct {
	likelihoodOptions
	Template string `json:"template"`
	Forms    string `json:"forms"`
}

// Words of vqascore's options.
const (
	templateT2V     = "t2v_metrics"
	templateGenEval = "geneval2"
	formsAuto       = "auto"
	formsExact      = "exact"
	formsAll        = "all"
)

func (o *vqaOptions) validate() error {
	return errors.Join(o.likelihoodOptions.validate(), oneOf("forms", o.Forms, formsAuto, formsExact, formsAll))
}

func vqaSpec(d Deps) rewards.Spec {
	return rewards.Spec{
		AsksEngine: true,
		Name:       "vqascore",
		Summary:    "probability that a vision-language model answers yes to \"does this show the prompt?\" (VQAScore, GenEval2)",
		Options: likelihoodDocs(
			rewards.Option{Name: "template", Type: "string", Default: templateT2V, Doc: "template of the question: t2v_metrics, geneval2, or your own question with {prompt}"},
			rewards.Option{Name: "forms", Type: "string", Default: formsAuto, Doc: "tokens that count as yes: exact (the token Yes), all (yes in any case, with or without spaces), or auto (all with the template geneval2, else exact)"},
		),
		Build: build(d, func() *vqaOptions {
			return &vqaOptions{likelihoodOptions: defaultLikelihood(), Template: templateT2V, Forms: formsAuto}
		}, newVQA),
	}
}

// newVQA makes vqascore: P(Yes) as it is, not beside P(No).
func newVQA(o *vqaOptions) (*scorer, error) {
	folded := o.Forms == formsAll || (o.Forms == formsAuto && o.Template == templateGenEval)
	text := named(o.Template, map[string]string{templateT2V: vqaT2V, templateGenEval: vqaGenEval})
	if !strings.Contains(text, "{prompt}") {
		return nil, fmt.Errorf("template: %q, want %s, %s or a question with {prompt}", o.Template, templateT2V, templateGenEval)
	}
	return o.scorer(text, numbers("mass"), func(r chat.Reply) (reading, error) {
		p, err := yesNo(r, folded)
		if err != nil {
			return reading{}, err
		}
		return reading{min(math.Exp(p.yes), 1), map[string]float64{"mass": p.mass()}}, nil
	})
}

type yesNoOptions struct {
	likelihoodOptions
	Question     string `json:"question"`
	Canonicalize bool   `json:"canonicalize"`
}

func yesNoSpec(d Deps) rewards.Spec {
	return rewards.Spec{
		AsksEngine: true,
		Name:       "vlm_yes_no",
		Summary:    "P(Yes)/(P(Yes)+P(No)) of a vision-language model for a question about the picture (Flow-Factory's vllm_evaluate)",
		Options: likelihoodDocs(
			rewards.Option{Name: "question", Type: "string", Default: "checklist", Doc: "question about the picture: checklist or beautiful (both Flow-Factory's), or your own, with or without {prompt}"},
			rewards.Option{Name: "canonicalize", Type: "bool", Default: "false", Doc: "true: yes, Yes and YES, with or without spaces, count together (and no likewise); false: only the tokens Yes and No count"},
		),
		Build: build(d, func() *yesNoOptions {
			return &yesNoOptions{likelihoodOptions: defaultLikelihood(), Question: "checklist"}
		}, newYesNo),
	}
}

func newYesNo(o *yesNoOptions) (*scorer, error) {
	text := named(o.Question, map[string]string{"checklist": checklist, "beautiful": beautiful})
	return o.scorer(text, numbers("mass"), func(r chat.Reply) (reading, error) {
		p, err := yesNo(r, o.Canonicalize)
		if err != nil {
			return reading{}, err
		}
		return reading{p.ratio(), map[string]float64{"mass": p.mass()}}, nil
	})
}

type digitOptions struct {
	likelihoodOptions
	Question string `json:"question"`
	Min      int    `json:"min"`
	Max      int    `json:"max"`
}

func (o *digitOptions) validate() error {
	err := o.likelihoodOptions.validate()
	if o.Min < 0 || o.Max > 9 || o.Min >= o.Max {
		err = errors.Join(err, fmt.Errorf("min and max: %d and %d, want two digits, the lower first: a longer number is not a single token", o.Min, o.Max))
	}
	return err
}

func digitSpec(d Deps) rewards.Spec {
	return rewards.Spec{
		AsksEngine: true,
		Name:       "digit",
		Summary:    "rating of a picture by a vision-language model: the mean of the digits, weighted by the probability of each",
		Options: likelihoodDocs(
			rewards.Option{Name: "question", Type: "string", Default: "how well it matches {prompt}", Doc: "question that asks for one digit"},
			rewards.Option{Name: "min", Type: "int", Default: "1", Doc: "lowest digit, which becomes 0"},
			rewards.Option{Name: "max", Type: "int", Default: "5", Doc: "highest digit, which becomes 1"},
		),
		Build: build(d, func() *digitOptions {
			return &digitOptions{likelihoodOptions: defaultLikelihood(), Min: 1, Max: 5}
		}, newDigit),
	}
}

func newDigit(o *digitOptions) (*scorer, error) {
	text := o.Question
	if text == "" {
		text = fmt.Sprintf(rateDigit, o.Min, o.Max)
	}
	return o.scorer(text, numbers("expected", "mass"), func(r chat.Reply) (reading, error) {
		e, mass, err := expectedDigit(r, o.Min, o.Max)
		if err != nil {
			return reading{}, err
		}
		return reading{(e - float64(o.Min)) / float64(o.Max-o.Min), map[string]float64{"expected": e, "mass": mass}}, nil
	})
}
