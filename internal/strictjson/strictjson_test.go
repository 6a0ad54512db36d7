package strictjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/strictjson"
)

func parse(t *testing.T, text string) strictjson.Text {
	t.Helper()
	v, err := strictjson.Parse([]byte(text))
	require.NoError(t, err)
	return v
}

func TestWhatIsNotJSONIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `{"a": 1,}`, `{"a": 1} {}`, "\"\xff\"", "nul"} {
		_, err := strictjson.Parse([]byte(text))
		assert.ErrorContains(t, err, "not JSON", text)
	}
}

func TestNamesAreTakenOnceAndAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	fields, err := parse(t, ` {"a": [1, "]"], "b\u0063": null} `).Fields("a", "bc")
	require.NoError(t, err)
	assert.Equal(t, map[string]strictjson.Text{"a": strictjson.Text(`[1, "]"]`), "bc": strictjson.Text("null")}, fields)
	for text, want := range map[string]string{
		`{"A": 1}`: "A: unknown key", `{"a": 1, "a": 2}`: `duplicate name "a"`, `{"a": 1, "\u0061": 2}`: `duplicate name "a"`, `[]`: "want an object: found []",
	} {
		_, err := parse(t, text).Fields("a")
		require.ErrorContains(t, err, want, text)
	}
	_, err = parse(t, `{"A": 1}`).Fields("a")
	require.ErrorIs(t, err, strictjson.ErrUnknownKey)
}

func TestAListHasAnEntryForEachSample(t *testing.T) {
	t.Parallel()
	var got []string
	keep := func(_ int, v strictjson.Text) error {
		got = append(got, string(v))
		return nil
	}
	require.NoError(t, parse(t, `["a", {"b": ","}, 3]`).Each(3, "samples", keep))
	assert.Equal(t, []string{`"a"`, `{"b": ","}`, "3"}, got)
	require.NoError(t, parse(t, "null").Each(3, "samples", keep))
	require.NoError(t, strictjson.Text(nil).Each(3, "samples", keep), "a list that was not sent")
	require.EqualError(t, parse(t, "[1, 2]").Each(3, "samples", keep), "2 entries for 3 samples")
	assert.Len(t, got, 5)
	n, err := parse(t, "[1, 2, 3, 4]").Length(2)
	require.NoError(t, err)
	assert.Equal(t, 3, n, "it stops counting behind the most that there may be")
}

func TestValuesAreOfTheirType(t *testing.T) {
	t.Parallel()
	n, err := parse(t, "7").Integer(0, 7)
	require.NoError(t, err)
	assert.Equal(t, int64(7), n)
	_, err = parse(t, "7").Integer(0, 6)
	require.EqualError(t, err, "want an integer from 0 to 6, found 7")
	_, err = parse(t, "1e2").Integer(0, 100)
	require.Error(t, err)
	f, err := parse(t, "1e2").Number()
	require.NoError(t, err)
	assert.InDelta(t, 100, f, 0)
	_, err = parse(t, `"7"`).Number()
	require.Error(t, err)
	_, err = parse(t, "7").Str()
	require.EqualError(t, err, "want a string, found 7")
	data, err := parse(t, `"\/9j\/4A=="`).Base64()
	require.NoError(t, err)
	assert.Equal(t, "\xff\xd8\xff\xe0", string(data))
	for _, text := range []string{"7", `"/9j/4A"`, `"/9j/4A==="`, `"a b="`} {
		_, err = parse(t, text).Base64()
		require.ErrorContains(t, err, "base64", text)
	}
	assert.Nil(t, parse(t, "null").Raw())
	assert.Equal(t, json.RawMessage("[1]"), parse(t, "[1]").Raw()) //nolint:testifylint // byte for byte
}

func TestLongTextIsCutForMessages(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "short", strictjson.Clip("short"))
	assert.Equal(t, strings.Repeat("x", 80)+"…", strictjson.Clip(strings.Repeat("x", 81)))
}
