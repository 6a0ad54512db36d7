package pickle_test

import (
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pickle"
)

func TestProtocol1WritesBoolsAndLongIntsAsText(t *testing.T) {
	t.Parallel()
	large, ok := new(big.Int).SetString("-99999999999999999999", 10)
	require.True(t, ok)
	for text, want := range map[string]pickle.Value{
		"I00\n":                     false,
		"I01\n":                     true,
		"I0\n":                      int64(0),
		"I1\n":                      int64(1),
		"I-12\n":                    int64(-12),
		"I12345678901234567890\n":   new(big.Int).SetUint64(12345678901234567890),
		"L4294967296L\n":            int64(1 << 32),
		"L4294967296\n":             int64(1 << 32),
		"L9223372036854775807L\n":   int64(math.MaxInt64),
		"L-9223372036854775808L\n":  int64(math.MinInt64),
		"L18446744073709551615L\n":  new(big.Int).SetUint64(math.MaxUint64),
		"L-99999999999999999999L\n": large,
	} {
		assert.Equal(t, want, mustDecode(t, body(text, ".")), text)
	}
}

func TestEveryHeaderOf1To5AndNoneIsAccepted(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"", "\x80\x01", "\x80\x02", "\x80\x03", "\x80\x04", "\x80\x05"} {
		assert.Nil(t, mustDecode(t, body(header, "N.")))
	}
}

func TestBytesAliasTheInputAndCannotGrowIntoIt(t *testing.T) {
	t.Parallel()
	data := body(proto, "C\x03abcC\x03def\x86.")
	tuple := mustDecode(t, data).(*pickle.Tuple)
	first := tuple.Items[0].([]byte)
	data[4] = 'X'
	assert.Equal(t, "Xbc", string(first))
	assert.Equal(t, 3, cap(first))
	_ = append(first, "overwritten"...)
	assert.Equal(t, "def", string(tuple.Items[1].([]byte)))
}

func TestAKeyGivenTwiceKeepsItsPlaceAndTakesTheLastValue(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 40 {
		many.WriteString("M" + le(2, uint64(i)+1000) + "N")
	}
	for _, filler := range []string{"", many.String()} {
		d := mustDecode(t, body(proto, "}(", str("a"), "K\x01K\x01K\x02", filler, str("a"), "K\x03", yes, "K\x04G\x3f\xf0\x00\x00\x00\x00\x00\x00K\x05u.")).(*pickle.Dict)
		assert.Equal(t, pickle.Pair{Key: "a", Value: int64(3)}, d.Items[0])
		assert.Equal(t, pickle.Pair{Key: int64(1), Value: int64(5)}, d.Items[1], "1 == True == 1.0 in Python")
		assert.Len(t, d.Items, 2+len(filler)/4)
	}
}

func TestMemoizeCountsTheEntriesThatPutHasMade(t *testing.T) {
	t.Parallel()
	v := mustDecode(t, body(proto, "](", str("a"), put(3), str("b"), "\x94", get(3), get(1), "e."))
	assert.Equal(t, []pickle.Value{"a", "b", "a", "b"}, v.(*pickle.List).Items)
}

func TestTheMemoMayHoldNone(t *testing.T) {
	t.Parallel()
	assert.Equal(t, &pickle.Tuple{Items: []pickle.Value{nil, nil}}, mustDecode(t, body("N", put(0), get(0), tuple2, ".")))
}

func TestASharedListIsOnePointer(t *testing.T) {
	t.Parallel()
	v := mustDecode(t, body(proto, "]", put(0), get(0), tuple2, ".")).(*pickle.Tuple)
	assert.Same(t, v.Items[0], v.Items[1])
}

func TestBuiltinsAndCollectionsWithoutArgumentsAreEmpty(t *testing.T) {
	t.Parallel()
	for global, want := range map[string]pickle.Value{
		"__builtin__\nbytes\n":       []byte{},
		"builtins\nbytearray\n":      []byte{},
		"builtins\nlist\n":           &pickle.List{},
		"builtins\ndict\n":           &pickle.Dict{},
		"collections\nOrderedDict\n": &pickle.Dict{},
		"collections\ndefaultdict\n": &pickle.Dict{},
	} {
		assert.Equal(t, want, mustDecode(t, body("c", global, ")R.")), global)
	}
}

func TestHalfPrecisionIsWidenedExactly(t *testing.T) {
	t.Parallel()
	for bits, want := range map[uint16]float64{
		0x0000: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0001: math.Ldexp(1, -24), 0x03ff: math.Ldexp(1023, -24),
		0x0400: math.Ldexp(1, -14), 0x2e66: 0.0999755859375, 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1),
	} {
		a := &pickle.NDArray{DType: "f2", Shape: []int{1}, Data: []byte(le(2, uint64(bits)))}
		assert.Equal(t, want, a.At(0), "%#04x", bits) //nolint:testifylint // the bits must agree, not nearly
	}
	negative := &pickle.NDArray{DType: "f2", Data: []byte{0, 0x80}}
	assert.True(t, math.Signbit(negative.At(0).(float64)))
	nan := &pickle.NDArray{DType: "f2", Data: []byte{1, 0x7c}}
	assert.True(t, math.IsNaN(nan.At(0).(float64)))
}

func TestAccessorsTakeListsTuplesAndArrays(t *testing.T) {
	t.Parallel()
	texts := []string{"a", "b"}
	items := []pickle.Value{"a", "b"}
	for _, v := range []pickle.Value{
		&pickle.List{Items: items},
		&pickle.Tuple{Items: items},
		&pickle.NDArray{DType: "O", Shape: []int{2}, Objects: items},
		&pickle.NDArray{DType: "U1", Shape: []int{2}, Strings: texts},
	} {
		got, err := pickle.Strings(v)
		require.NoError(t, err)
		assert.Equal(t, texts, got)
	}
	got, err := pickle.ByteSlices(&pickle.Tuple{Items: []pickle.Value{[]byte("x")}})
	require.NoError(t, err)
	assert.Equal(t, [][]byte{[]byte("x")}, got)

	d := &pickle.Dict{Items: []pickle.Pair{{Key: int64(1), Value: 1}, {Key: "k", Value: nil}}}
	dicts, err := pickle.Dicts(&pickle.List{Items: []pickle.Value{d}})
	require.NoError(t, err)
	assert.Same(t, d, dicts[0])
	v, ok := d.Get("k")
	assert.True(t, ok)
	assert.Nil(t, v)
	_, ok = d.Get("1")
	assert.False(t, ok)
}

func TestAccessorsNameTheElementOfTheWrongType(t *testing.T) {
	t.Parallel()
	_, err := pickle.Strings("ab")
	require.EqualError(t, err, "pickle: wrong type: str, want a list of str")
	_, err = pickle.Strings(&pickle.List{Items: []pickle.Value{"a", []byte("b")}})
	require.EqualError(t, err, "pickle: wrong type: element 1 is bytes, want str")
	_, err = pickle.ByteSlices(&pickle.NDArray{DType: "U1", Shape: []int{1}, Strings: []string{"a"}})
	require.EqualError(t, err, "pickle: wrong type: ndarray, want a list of bytes")
	_, err = pickle.Strings(&pickle.NDArray{DType: "U1", Shape: []int{1, 1}, Strings: []string{"a"}})
	require.ErrorIs(t, err, pickle.ErrType, "two dimensions")
}

func TestPlainGivesWhatJSONCanHold(t *testing.T) {
	t.Parallel()
	v := mustDecode(t, body(proto, "}(", str("a"), "](NI01\nK\x05G\x3f\xf8\x00\x00\x00\x00\x00\x00e", "K\x07", ")", "NK\x01", no, "K\x02",
		str("n"), emptyArray, "(K\x01K\x02K\x01\x86", dtypeOf("u1", "|", -1), no, "C\x02\x03\x04tb",
		str("big"), "L18446744073709551615L\nu."))
	plain, err := pickle.Plain(v)
	require.NoError(t, err)
	text, err := json.Marshal(plain)
	require.NoError(t, err)
	assert.JSONEq(t, `{"a": [null, true, 5, 1.5], "7": [], "null": 1, "false": 2, "n": [[3], [4]], "big": 18446744073709551615}`, string(text))
}

func TestPlainRefusesWhatJSONCannotHold(t *testing.T) {
	t.Parallel()
	wide := &pickle.NDArray{DType: "u1", Shape: []int{1 << 18}, Data: make([]byte, 1<<18)}
	deep := &pickle.NDArray{DType: "u1", Shape: []int{1 << 30, 0}}
	for says, v := range map[string]pickle.Value{
		`["m"]: [0]: pickle: wrong type: bytes has no form in JSON`: &pickle.Dict{Items: []pickle.Pair{
			{Key: "m", Value: &pickle.List{Items: []pickle.Value{[]byte("x")}}},
		}},
		"complex has no form":    complex(1, 2),
		"too many values":        wide,
		"send large arrays":      deep,
		`are both "1" in JSON`:   &pickle.Dict{Items: []pickle.Pair{{Key: "1"}, {Key: int64(1)}}},
		"too many values for JS": &pickle.List{Items: slices.Repeat([]pickle.Value{&pickle.NDArray{DType: "u1", Shape: []int{1 << 14}, Data: make([]byte, 1<<14)}}, 100)},
	} {
		_, err := pickle.Plain(v)
		require.ErrorIs(t, err, pickle.ErrType)
		require.ErrorContains(t, err, says)
	}
}
