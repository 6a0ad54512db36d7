package chat

import (
	"cmp"
	"errors"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/rewards"
)

// Config contains the settings for all questions of a Client.
type Config struct {
	// Model is the model for a Request without a model.
	Model string
	// CacheEntries is the maximum number of cached replies; the least recently used reply is
	// removed first. Negative: no cache. The default is 4,096.
	CacheEntries int
	// CacheBytes is the maximum size of the cache: text, log probabilities and 256 bytes for each
	// entry.
	CacheBytes int64
	// MaxRequestBytes is the maximum size of a request, including pictures in base64. The default
	// is 64 MiB.
	MaxRequestBytes int64
	// MaxAnswerBytes is the maximum size of an answer. The default is 16 MiB: 4,096 tokens with 20
	// log probabilities each take about 9 MiB.
	MaxAnswerBytes int64
	// ImageTokens is the number of tokens that are booked for a picture in a limit of tokens per
	// minute, until the engine reports the real number. The default is 1,000, about the number for
	// a picture of 1,024 × 1,024 with patches of 28 pixels.
	ImageTokens int
	// PromptPrice and CompletionPrice are the prices of one million tokens, in any currency.
	PromptPrice, CompletionPrice float64
}

// Keys implements keys.Described for the cache of an engine's answers and their prices.
func (c *Config) Keys(k *keys.Set) {
	k.Size(&c.CacheBytes, "cache_bytes", 64<<20, "Maximum memory of the cache of answers. Requests with the same model, text, images and parameters get the same answer. 0: no cache.")
	k.Float(&c.PromptPrice, "prompt_price", 0, "Price of one million prompt tokens for the metric rewardloop_judge_cost_total, in any currency.")
	k.Float(&c.CompletionPrice, "completion_price", 0, "Price of one million completion tokens for the metric rewardloop_judge_cost_total, in the currency of prompt_price.")
}

// WithDefaults returns a copy of c in which the defaults are set.
func (c Config) WithDefaults() Config {
	c.CacheEntries = cmp.Or(c.CacheEntries, 4096)
	keys.Fill(&c)
	c.MaxRequestBytes = cmp.Or(c.MaxRequestBytes, 64<<20)
	c.MaxAnswerBytes = cmp.Or(c.MaxAnswerBytes, 16<<20)
	c.ImageTokens = cmp.Or(c.ImageTokens, 1000)
	return c
}

// Validate returns an error that lists all invalid fields of a configuration whose defaults are
// set.
func (c Config) Validate() error {
	errs := rewards.Faults{keys.Validate("", &c)}
	positive := func(name string, v int64) {
		errs.Add(v < 1, "%s: %d, want 1 or more", name, v)
	}
	positive("max_request_bytes", c.MaxRequestBytes)
	positive("max_answer_bytes", c.MaxAnswerBytes)
	positive("image_tokens", int64(c.ImageTokens))
	return errors.Join(errs...)
}
