package judge

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

// atomQuestion is how GenEval 2 asks for the answer to one of its questions.
const atomQuestion = "{question} Answer in one word."

// placeQuestion is the placeholder of an atom's question.
const placeQuestion = "{question}"

// maxAtoms bounds the questions about one sample; GenEval 2 has at most about 20.
const maxAtoms = 64

type softTIFAOptions struct {
	likelihoodOptions
	Mean     string `json:"mean"`
	Template string `json:"template"`
}

// Words of the option mean.
const (
	meanGeometric  = "geometric"
	meanArithmetic = "arithmetic"
)

func (o *softTIFAOptions) validate() error {
	return errors.Join(o.likelihoodOptions.validate(), oneOf("mean", o.Mean, meanGeometric, meanArithmetic))
}

func softTIFASpec(d Deps) rewards.Spec {
	return rewards.Spec{
		AsksEngine: true,
		Name:       "soft_tifa",
		Summary:    "probability that a vision-language model gives the right answer to the sample's questions, as a mean (Soft-TIFA of GenEval 2)",
		Options: likelihoodDocs(
			rewards.Option{Name: "mean", Type: "string", Default: meanGeometric, Doc: "mean of the probabilities: geometric (for the prompt as a whole, Soft-TIFA GM) or arithmetic (for single atoms, Soft-TIFA AM)"},
			rewards.Option{Name: "template", Type: "string", Default: atomQuestion, Doc: "template around each question; placeholder: {question}"},
		),
		Build: build(d, func() *softTIFAOptions {
			return &softTIFAOptions{likelihoodOptions: defaultLikelihood(), Mean: meanGeometric, Template: atomQuestion}
		}, newSoftTIFA),
	}
}

// newSoftTIFA makes soft_tifa: the score of GenEval 2 (arXiv 2512.16853), by its description. Its data and code are
// CC BY-NC 4.0, and none of either is here: the questions are the sample's.
func newSoftTIFA(o *softTIFAOptions) (*scorer, error) {
	t, err := prompt.Parse("template", o.Template, placeQuestion)
	if err != nil {
		return nil, err
	}
	if !t.Has(placeQuestion) {
		return nil, fmt.Errorf("template: %q has no {question}", o.Template)
	}
	return &scorer{
		looks: true, asking: o.Asking, pictures: o.Pictures, sampling: chat.Greedy(1), top: topTokens, fields: numbers("am", "gm", "lowest", "mass"),
		prepare: func(s *rewards.Sample) (*inquiry, error) {
			atoms, err := atomsOf(s)
			if err != nil {
				return nil, err
			}
			inq := &inquiry{shows: each(o.choice()), join: o.join}
			for i, a := range atoms {
				text, err := t.FillWith(func(string) (string, error) { return a.question, nil })
				if err != nil {
					return nil, err
				}
				inq.questions = append(inq.questions, question{label: fmt.Sprintf("question %d", i), text: text, weight: 1, read: a.read})
			}
			return inq, nil
		},
	}, nil
}

// atom is one question with its answer.
type atom struct {
	question string
	// forms are the words that are the right answer, and others those that would have been an answer, too; in lower case.
	forms, others []string
}

// atomsOf are the questions of a sample: [question, answer] pairs as the list vqa_list of a row of GenEval 2, which is the
// ground truth or an entry of extra_info, or as the ground truth itself.
func atomsOf(s *rewards.Sample) ([]atom, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: sample %q: %s", rewards.BadInput, s.ID, fmt.Sprintf(format, args...))
	}
	raw, where := vqaList(s)
	if raw == nil {
		return nil, bad("no questions; put pairs of question and answer into ground_truth, ground_truth.vqa_list or extra_info.vqa_list")
	}
	var pairs [][]string
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return nil, bad("%s is not a list of [question, answer] pairs of texts: %v", where, err)
	}
	if len(pairs) < 1 || len(pairs) > maxAtoms {
		return nil, bad("%s has %d questions, want 1 to %d", where, len(pairs), maxAtoms)
	}
	atoms := make([]atom, len(pairs))
	for i, p := range pairs {
		if len(p) != 2 || strings.TrimSpace(p[0]) == "" {
			return nil, bad("%s[%d] is not a pair of a question and its answer", where, i)
		}
		if err := prompt.Bounded(s, "question", p[0]); err != nil {
			return nil, err
		}
		atoms[i].question = p[0]
		if atoms[i].forms, atoms[i].others = answers(p[1]); atoms[i].forms == nil {
			return nil, bad("the answer %q of %s[%d] is not Yes, No or a number from 0 to 10: other words can have several tokens, and the scorer reads one", clipTo(p[1], 50), where, i)
		}
	}
	return atoms, nil
}

// vqaList finds the questions, and says where they stand; nil: nowhere.
func vqaList(s *rewards.Sample) (raw json.RawMessage, where string) {
	var row struct {
		List json.RawMessage `json:"vqa_list"`
	}
	if trimmed := strings.TrimSpace(string(s.GroundTruth)); strings.HasPrefix(trimmed, "[") {
		return s.GroundTruth, "ground_truth"
	}
	if len(s.GroundTruth) > 0 && json.Unmarshal(s.GroundTruth, &row) == nil && row.List != nil {
		return row.List, "ground_truth.vqa_list"
	}
	if list := prompt.ExtraInfo(s)["vqa_list"]; list != nil {
		return list, "extra_info.vqa_list"
	}
	return nil, ""
}

//nolint:gochecknoglobals // a table
var numberWords = []string{"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}

// answers are the forms of an answer, and those of the others to the same question; nil for one that is none of both kinds.
func answers(a string) (forms, others []string) {
	a = fold(a)
	switch a {
	case "yes":
		return []string{"yes"}, []string{"no"}
	case "no":
		return []string{"no"}, []string{"yes"}
	}
	right := slices.Index(numberWords, a)
	if n, err := strconv.Atoi(a); right < 0 && err == nil && n >= 0 && n < len(numberWords) && strconv.Itoa(n) == a {
		right = n
	}
	if right < 0 {
		return nil, nil
	}
	for n, word := range numberWords {
		both := []string{word, strconv.Itoa(n)}
		if n == right {
			forms = both
		} else {
			others = append(others, both...)
		}
	}
	return forms, others
}

// read is the probability of the right answer among the likeliest first tokens. Where none of them is an answer to the
// question, right or wrong, the model did not answer it.
func (a atom) read(r chat.Reply) (reading, error) {
	top, err := alternatives(r)
	if err != nil {
		return reading{}, err
	}
	right, wrong := math.Inf(-1), math.Inf(-1)
	for _, t := range top {
		switch word := fold(t.Text); {
		case slices.Contains(a.forms, word):
			right = addLog(right, t.Logprob)
		case slices.Contains(a.others, word):
			wrong = addLog(wrong, t.Logprob)
		}
	}
	mass := addLog(right, wrong)
	if math.IsInf(mass, -1) {
		return reading{}, fmt.Errorf("none of the %d likeliest first tokens is an answer such as %s or %s", len(top), a.forms[0], a.others[0])
	}
	return reading{min(math.Exp(right), 1), map[string]float64{"mass": min(math.Exp(mass), 1)}}, nil
}

// join makes both means; a geometric one of which a probability is 0 is 0.
func (o *softTIFAOptions) join(of []reading) reading {
	am, logs, lowest, mass := 0.0, 0.0, 1.0, 0.0
	for _, r := range of {
		am += r.value
		logs += math.Log(r.value) // −Inf of 0
		lowest = min(lowest, r.value)
		mass += r.fields["mass"]
	}
	n := float64(len(of))
	am, mass = am/n, mass/n
	gm := math.Exp(logs / n)
	value := gm
	if o.Mean == meanArithmetic {
		value = am
	}
	return reading{value, map[string]float64{"am": am, "gm": gm, "lowest": lowest, "mass": mass}}
}
