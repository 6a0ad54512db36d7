package chat_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rewardloop/rewardloop/internal/chat"
)

func TestASeedFollowsFromTheID(t *testing.T) {
	t.Parallel()
	// FNV-1a of "a" is 0xaf63dc4c8601ec8c (the algorithm's published test vectors).
	assert.Equal(t, int64(0xaf63dc4c8601ec8c&^(1<<63)-16), chat.SeedOf("a"))
	assert.NotEqual(t, chat.SeedOf("0-1"), chat.SeedOf("0-2"))
	assert.GreaterOrEqual(t, chat.SeedOf(""), int64(0))
}
