package remote_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/remote"
)

// texts are JSON, or nearly.
var texts = []string{
	`1`, ` -1.5e+3 `, `0`, `true`, `false`, `null`, `""`, `"a"`, `"a\"b\\"`, `"é\ud83d\ude00"`, "\"\xff\"", `[]`, `[ ]`, `{}`, `{ }`,
	`[1,2 , [3],{"a":[]}]`, `{"b":1,"a":{"c":null}, "b" : [2]}`, `{"a\u0062":"x"}`, "\t{\r\n\"k\": 1.0}\n", `[[[[[[1]]]]]]`,
	`{"wait_ms":12.25,"status":500}`, `1 2`, `[1,]`, `{"a"}`, `{"a":1,}`, `nul`, `"`, `{`, ``, ` `, `01`, `+1`, `NaN`, `[1 2]`, `"\x"`,
}

func TestValidJSONIsReadAsADecoderReadsIt(t *testing.T) {
	t.Parallel()
	for _, text := range texts {
		want, wantErr := remote.ParseSlowly([]byte(text))
		got, err := remote.ParseJSON([]byte(text))
		require.Equal(t, wantErr == nil, err == nil, text)
		assert.Equal(t, want, got, text)
	}
	deep := make([]byte, 0, 200)
	for range 100 {
		deep = append(deep, '[')
	}
	for range 100 {
		deep = append(deep, ']')
	}
	_, err := remote.ParseJSON(deep)
	require.ErrorContains(t, err, "nested deeper than 64")
}

func FuzzParseJSON(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want, wantErr := remote.ParseSlowly(data)
		got, err := remote.ParseJSON(data)
		require.Equal(t, wantErr == nil, err == nil, "%q: %v, %v", data, wantErr, err)
		require.Equal(t, want, got, "%q", data)
	})
}
