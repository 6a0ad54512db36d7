package judge

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

// rubric is one thing that is rated.
type rubric struct {
	// Name is that of its extra field, rubric_<name>: a to z, 0 to 9 and _.
	Name string `json:"name"`
	// Text says what is rated, and when it is good.
	Text string `json:"text"`
	// Weight is its share; 1.
	Weight *float64 `json:"weight"`
}

type rubricOptions struct {
	chat.Asking
	chat.Sampling
	chat.Pictures
	showing
	Rubrics []rubric `json:"rubrics"`
	System  string   `json:"system"`
	// Reference shows the ground truth, too.
	Reference bool    `json:"reference"`
	Min       float64 `json:"min"`
	Max       float64 `json:"max"`
}

const maxRubrics = 64

var rubricName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,40}$`)

func (o *rubricOptions) validate() error {
	errs := rewards.Faults{o.Asking.Validate(), o.Sampling.Validate(), checkPictures(&o.Pictures), o.showing.validate()}
	errs.Add(len(o.Rubrics) < 1 || len(o.Rubrics) > maxRubrics, "rubrics: %d rubrics, want 1 to %d, each {name, text, weight}", len(o.Rubrics), maxRubrics)
	total, seen := 0.0, map[string]bool{}
	for i, r := range o.Rubrics {
		errs.Add(!rubricName.MatchString(r.Name) || seen[r.Name], "rubrics[%d].name: %q, want a unique name of a to z, 0 to 9 and _", i, r.Name)
		seen[r.Name] = true
		errs.Add(strings.TrimSpace(r.Text) == "" || len(r.Text) > prompt.MaxTemplate, "rubrics[%d].text: has %d bytes, want 1 to %d", i, len(r.Text), prompt.MaxTemplate)
		if w := r.weight(); !(w >= 0) || !finite(w) {
			errs = append(errs, fmt.Errorf("rubrics[%d].weight: %v, want 0 or more", i, w))
		} else {
			total += w
		}
	}
	errs.Add(len(o.Rubrics) > 0 && !(total > 0 && finite(total)), "rubrics: the weights add up to %v, want more than 0", total)
	errs.Add(!finite(o.Min) || !finite(o.Max) || o.Min >= o.Max, "min and max: %v and %v, want the lower first", o.Min, o.Max)
	return errors.Join(errs...)
}

func (r rubric) weight() float64 {
	if r.Weight == nil {
		return 1
	}
	return *r.Weight
}

func rubricSpec(d Deps) rewards.Spec {
	docs := append(chat.AskingDocs(), chat.SamplingDocs("0", "the engine's", "1024")...)
	docs = append(append(docs, pictureDocs("0")...), showingDocs()...)
	docs = append(
		docs,
		rewards.Option{Name: "rubrics", Type: "list", Default: "none, it is required", Doc: "list of rubrics {name, text, weight (default 1)}; each rubric is rated in a question of its own"},
		rewards.Option{Name: "system", Type: "string", Default: "none", Doc: "system message of the questions"},
		rewards.Option{Name: "reference", Type: "bool", Default: "false", Doc: "true: the question has the ground truth, too"},
		rewards.Option{Name: "min", Type: "number", Default: "1", Doc: "lowest rating, which becomes 0"},
		rewards.Option{Name: "max", Type: "number", Default: "10", Doc: "highest rating, which becomes 1"},
	)
	return rewards.Spec{
		AsksEngine: true,
		Name:       "rubric",
		Summary:    "a judge model rates a response or a picture by each of your rubrics; the reward is the weighted mean of the ratings",
		Options:    docs,
		Build: build(d, func() *rubricOptions {
			return &rubricOptions{
				Asking: chat.DefaultAsking(), Sampling: chat.Greedy(1024), Pictures: defaultPictures(), showing: defaultShowing(), Min: 1, Max: 10,
			}
		}, newRubric),
	}
}

// newRubric makes rubric. RM-Gallery's tutorial calls a rubric grader that it does
// not define; what it asks and how it counts is ours: one question for each rubric,
// of which the sample comes first and the rubric last, so that engines that keep the
// beginnings of prompts (vLLM, SGLang) read sample and pictures once.
func newRubric(o *rubricOptions) (*scorer, error) {
	score := (&extraction{Match: matchLast, OutOfRange: outRefuse, Min: &o.Min, Max: &o.Max}).reader()
	fields := make([]string, 0, len(o.Rubrics))
	for _, r := range o.Rubrics {
		fields = append(fields, "rubric_"+r.Name)
	}
	sc := &scorer{
		looks: o.Show == showAlways, asking: o.Asking, sampling: o.Sampling, pictures: o.Pictures, fields: numbers(fields...),
		prepare: func(s *rewards.Sample) (*inquiry, error) {
			about, err := o.describe(s)
			if err != nil {
				return nil, err
			}
			inq := &inquiry{system: o.System, shows: o.choice(s)}
			for i, r := range o.Rubrics {
				inq.questions = append(inq.questions, question{
					label: r.Name, weight: r.weight(), text: about + o.demand(r),
					read: func(reply chat.Reply) (reading, error) {
						raw, err := score(reply.Text)
						if err != nil {
							return reading{}, err
						}
						return reading{(raw - o.Min) / (o.Max - o.Min), map[string]float64{fields[i]: raw}}, nil
					},
				})
			}
			return inq, nil
		},
	}
	sc.breadth.Saw(min(len(o.Rubrics), maxCallsAtOnce)) // at least, of a video more
	return sc, nil
}

// describe is the beginning of every question about a sample: its prompt, its
// response (where it is a text), and with Reference its ground truth.
func (o *rubricOptions) describe(s *rewards.Sample) (string, error) {
	request, err := prompt.Of(s, prompt.Prompt)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("You rate what a model made for a request.\n\n<request>\n" + request + "\n</request>\n")
	if s.Response != "" || !hasVisual(s) {
		r, err := prompt.Of(s, prompt.Response)
		if err != nil {
			return "", err
		}
		b.WriteString("\n<response>\n" + r + "\n</response>\n")
	} else {
		b.WriteString("\nIt made what the pictures above show.\n")
	}
	if o.Reference {
		truth, err := prompt.Of(s, prompt.GroundTruth)
		if err != nil {
			return "", err
		}
		b.WriteString("\n<reference>\n" + truth + "\n</reference>\n")
	}
	return b.String(), nil
}

// demand is the end of a question: the rubric, and the form of the answer.
func (o *rubricOptions) demand(r rubric) string {
	return fmt.Sprintf("\nRate it by this rubric alone, whatever the response itself says of its quality:\n\n<rubric>\n%s\n</rubric>\n\n"+
		"Give a score from %v (worst) to %v (best). First say in one or two sentences why, then end with <score>X</score>.", r.Text, o.Min, o.Max)
}
