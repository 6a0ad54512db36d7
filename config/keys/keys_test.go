package keys_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config/keys"
)

var errBig = errors.New("too big")

type inner struct{ Policy string }

func (c *inner) Keys(k *keys.Set) {
	k.Choice(&c.Policy, "policy", []string{"random", "fast"}, "Who is next.")
}

type sample struct {
	Bytes, Part int64
	Grace       time.Duration
	Attempts    int
	Share       float64
	Inner       inner
	Weights     map[string]float64
	program     int
}

func (c *sample) Keys(k *keys.Set) {
	k.Size(&c.Bytes, "bytes", 1<<30, "How many.").Min(1 << 20)
	k.Size(&c.Part, "part", 0, "How many of them.")
	k.Duration(&c.Grace, "grace", time.Minute, "How long.").Min(time.Second)
	k.Int(&c.Attempts, "attempts", 3, "How often.").Between(1, 100)
	k.Float(&c.Share, "share", 0.5, "Which part.").Between(0.1, 1)
	k.Weights(&c.Weights, "weights", "Shares.")
	k.Section("inner", "More.", &c.Inner)
	k.AtMost("part", "bytes")
	k.Check(func(r keys.Report) {
		if c.Attempts == 99 {
			r.Fault("attempts", "%w, beside %s", errBig, r.Path("grace"))
		}
	})
}

func TestFillGivesZeroFieldsTheirDefaultsAndLeavesOthers(t *testing.T) {
	t.Parallel()
	c := sample{Grace: time.Hour, program: 7}
	keys.Fill(&c)
	assert.Equal(t, sample{Bytes: 1 << 30, Grace: time.Hour, Attempts: 3, Share: 0.5, Inner: inner{"random"}, program: 7}, c)
	require.NoError(t, keys.Validate("x", &c))
}

func TestValidateNamesEachKeyThatNoProgramMaySet(t *testing.T) {
	t.Parallel()
	c := sample{Bytes: -1, Grace: 0, Attempts: 101, Share: 0, Inner: inner{"slow"}, Weights: map[string]float64{"a": 0}}
	require.EqualError(t, keys.Validate("x", &c), `x: bytes: want 1MiB or more, got -1
x: grace: want 1s or more, got 0s
x: attempts: want 1…100, got 101
x: share: want 0.1…1, got 0
x: weights: the weight of "a" must be positive, got 0
x: part: want at most -1, which is bytes, got 0
x: inner.policy: want one of random, fast, got "slow"`)
	c = sample{Bytes: 5, Grace: 1, Attempts: 99, Share: 0.1, Part: 6, Inner: inner{"fast"}}
	err := keys.Validate("x", &c)
	require.ErrorIs(t, err, errBig, "a program's size and duration have their unit and may be less than a file's; a check may wrap an error")
	assert.EqualError(t, err, "x: part: want at most 5, which is bytes, got 6\nx: attempts: too big, beside grace")
}

func TestAKeyOfASectionBelowIsFoundByItsPath(t *testing.T) {
	t.Parallel()
	var k keys.Set
	s := k.Section("top", "All.", new(sample), keys.Func(func(k *keys.Set) { k.Bool(new(bool), "on", "A switch.") }))
	assert.Equal(t, "random, fast", s.Find("inner.policy").Range())
	assert.Equal(t, "1…100", s.Find("attempts").Range())
	assert.Equal(t, "1s or more", s.Find("grace").Range())
	assert.Equal(t, "true or false", s.Find("on").Range())
	assert.Nil(t, s.Find("inner.other"))
	assert.Nil(t, s.Find("other.policy"))
	assert.Contains(t, s.Names(), "inner")
	assert.Equal(t, []string{"", "inner."}, slices.Sorted(maps.Keys(maps.Collect(s.All))))
}

func TestAnAddressIsPublicUnlessItIsOfTheLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:1": false, "localhost:0": false, "[::1]:80": false, "[::ffff:127.0.0.1]:80": false,
		"0.0.0.0:1": true, ":80": true, "gw.example:80": true, "10.0.0.1:65535": true,
	} {
		public, err := keys.Public(address)
		require.NoError(t, err, address)
		assert.Equal(t, want, public, address)
	}
	for _, address := range []string{"", "4222", "127.0.0.1:nats", "127.0.0.1:-1", "127.0.0.1:65536"} {
		_, err := keys.Public(address)
		require.Error(t, err, address)
	}
}
