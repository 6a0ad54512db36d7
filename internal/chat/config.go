package chat

import (
	"cmp"
	"errors"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/rewards"
)

// Config holds what is the same for all questions of a Client.
type Config struct {
	// Model is asked where a Request names none.
	Model string
	// CacheEntries bounds the answers remembered, the least recently used go first.
	// Negative: none is remembered. Defaults to 4,096.
	CacheEntries int
	// CacheBytes counts text, log probabilities and 256 for each entry.
	CacheBytes int64
	// MaxRequestBytes bounds a request, pictures in base64 included. Defaults to 64 MiB.
	MaxRequestBytes int64
	// MaxAnswerBytes bounds an answer. Defaults to 16 MiB: 4,096 tokens with 20 log
	// probabilities each take about 9.
	MaxAnswerBytes int64
	// ImageTokens is what a picture is booked with in a limit of tokens per minute,
	// until the engine says what it took. Defaults to 1,000, about a picture of
	// 1,024 × 1,024 with 28-pixel patches.
	ImageTokens int
	// PromptPrice and CompletionPrice are in any currency.
	PromptPrice, CompletionPrice float64
}

// Keys implements keys.Described: what is remembered of an engine's answers, and what they cost.
func (c *Config) Keys(k *keys.Set) {
	k.Size(&c.CacheBytes, "cache_bytes", 64<<20, "Maximum memory of the cache of answers. Requests with the same model, text, images and parameters get the same answer. 0: no cache.")
	k.Float(&c.PromptPrice, "prompt_price", 0, "Price of one million prompt tokens for the metric rewardloop_judge_cost_total, in any currency.")
	k.Float(&c.CompletionPrice, "completion_price", 0, "Price of one million completion tokens for the metric rewardloop_judge_cost_total, in the currency of prompt_price.")
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.CacheEntries = cmp.Or(c.CacheEntries, 4096)
	keys.Fill(&c)
	c.MaxRequestBytes = cmp.Or(c.MaxRequestBytes, 64<<20)
	c.MaxAnswerBytes = cmp.Or(c.MaxAnswerBytes, 16<<20)
	c.ImageTokens = cmp.Or(c.ImageTokens, 1000)
	return c
}

// Validate names everything that is wrong with a configuration that has its defaults.
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
