package vlm

import "github.com/rewardloop/rewardloop/internal/prompt"

// The questions where the options have none: VQAScore's of t2v_metrics, and one for
// digits.
const (
	askYesNo = `Does this figure show "{prompt}"? Please answer yes or no.`
	askDigit = "How well does this image match the description \"{prompt}\"? " +
		"Answer with one digit from %d (not at all) to %d (perfectly), and nothing else."
)

// parseTemplate reads a question, or an answer that is offered with it, of the
// configuration.
func parseTemplate(option, text string) (prompt.Template, error) {
	return prompt.Parse(option, text, prompt.Prompt, prompt.Response, prompt.GroundTruth) //nolint:wrapcheck // it names the option
}
