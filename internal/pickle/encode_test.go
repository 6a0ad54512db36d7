package pickle_test

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pickle"
)

func TestScoresAreWrittenAsPlainFloatsOfProtocol4(t *testing.T) {
	t.Parallel()
	data, err := pickle.Encode(&pickle.Dict{Items: []pickle.Pair{{Key: "scores", Value: []float64{0, 1}}}})
	require.NoError(t, err)
	assert.Equal(t, "\x80\x04}(\x8c\x06scores](G\x00\x00\x00\x00\x00\x00\x00\x00G\x3f\xf0\x00\x00\x00\x00\x00\x00eu.", string(data))
}

func TestWhatIsEncodedDecodesToTheSame(t *testing.T) {
	t.Parallel()
	for _, v := range encodable() {
		data, err := pickle.Encode(v)
		require.NoError(t, err)
		again, err := pickle.Encode(mustDecode(t, data))
		require.NoError(t, err)
		assert.Equal(t, data, again)
	}
}

func TestEncodeRefusesWhatPlainPicklesCannotHold(t *testing.T) {
	t.Parallel()
	loop := &pickle.List{}
	loop.Items = []pickle.Value{loop}
	for says, v := range map[string]pickle.Value{
		"Go struct {}":            struct{}{},
		"a int:":                  big.NewInt(1),
		"a complex":               complex(1, 2),
		"a ndarray":               &pickle.NDArray{DType: "u1"},
		"not UTF-8":               "\xff",
		"value that contains":     loop,
		"a list as the key":       &pickle.Dict{Items: []pickle.Pair{{Key: loop}}},
		"a tuple as the key of a": &pickle.Dict{Items: []pickle.Pair{{Key: &pickle.Tuple{}}}},
	} {
		_, err := pickle.Encode(v)
		require.ErrorIs(t, err, pickle.ErrEncode, says)
		require.ErrorContains(t, err, says)
	}
}

func TestEncodeReachesAsDeepAsDecode(t *testing.T) {
	t.Parallel()
	var v pickle.Value = &pickle.Tuple{}
	for range 31 {
		v = &pickle.List{Items: []pickle.Value{v}}
	}
	data, err := pickle.Encode(v)
	require.NoError(t, err)
	assert.Equal(t, v, mustDecode(t, data))
	_, err = pickle.Encode([]pickle.Value{v})
	require.ErrorIs(t, err, pickle.ErrEncode)
}

func TestEncodeErrorCannotFail(t *testing.T) {
	t.Parallel()
	answer := mustDecode(t, pickle.EncodeError("bad \xff picture", []int{0, 300})).(*pickle.Dict)
	message, _ := answer.Get("error")
	assert.Equal(t, "bad \uFFFD picture", message)
	failed, _ := answer.Get("failed")
	assert.Equal(t, &pickle.List{Items: []pickle.Value{int64(0), int64(300)}}, failed)

	answer = mustDecode(t, pickle.EncodeError("overloaded", nil)).(*pickle.Dict)
	assert.Len(t, answer.Items, 1)
}
