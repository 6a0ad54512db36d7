package pickle_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pickle"
)

// goldenDir finds the golden pickles or skips.
func goldenDir(tb testing.TB) string {
	tb.Helper()
	root := os.Getenv("REWARDLOOP_GOLDEN")
	if root == "" {
		root = filepath.Join("..", "..", "testdata", "golden")
	}
	dir := filepath.Join(root, "pickle")
	if _, err := os.Stat(filepath.Join(dir, "index.jsonl")); err != nil {
		tb.Skipf("no golden pickles: %v; put them into testdata/golden or name their folder in REWARDLOOP_GOLDEN", err)
	}
	return dir
}

type goldenCase struct {
	File   string          `json:"file"`
	Value  json.RawMessage `json:"value"`
	Reject string          `json:"reject"`
	Stage  string          `json:"stage"`
	data   []byte
}

func goldenCases(tb testing.TB) []goldenCase {
	tb.Helper()
	dir := goldenDir(tb)
	index, err := os.ReadFile(filepath.Join(dir, "index.jsonl"))
	require.NoError(tb, err)
	var cases []goldenCase
	for line := range bytes.Lines(index) {
		var c goldenCase
		require.NoError(tb, json.Unmarshal(line, &c))
		c.data, err = os.ReadFile(filepath.Join(dir, c.File))
		require.NoError(tb, err)
		cases = append(cases, c)
	}
	require.NotEmpty(tb, cases)
	return cases
}

// requireValue compares a decoded value with its description in the form of
// index.jsonl, bit by bit.
func requireValue(tb testing.TB, description json.RawMessage, got pickle.Value) {
	tb.Helper()
	var want any
	require.NoError(tb, json.Unmarshal(description, &want))
	require.NoError(tb, match(want, got))
}

func match(want any, got pickle.Value) error {
	tagged, ok := want.(map[string]any)
	if !ok { // null, a bool or a string
		if want != got {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	}
	if text, ok := tagged["int"]; ok {
		n, isInt := got.(int64)
		large, isBig := got.(*big.Int)
		if (!isInt || strconv.FormatInt(n, 10) != text) && (!isBig || large.String() != text) {
			return fmt.Errorf("got %v, want int %v", got, text)
		}
		return nil
	}
	if text, ok := tagged["float"]; ok {
		return matchFloat(text, got)
	}
	if parts, ok := tagged["complex"].([]any); ok {
		c, _ := got.(complex128)
		return errors.Join(matchFloat(parts[0], real(c)), matchFloat(parts[1], imag(c)))
	}
	if text, ok := tagged["bytes_b64"].(string); ok {
		b, isBytes := got.([]byte)
		if !isBytes || base64.StdEncoding.EncodeToString(b) != text {
			return fmt.Errorf("got %.40v, want bytes %.40s", got, text)
		}
		return nil
	}
	return matchContainer(tagged, got)
}

func matchFloat(text any, got pickle.Value) error {
	f, _ := got.(float64)
	want, err := strconv.ParseFloat(text.(string), 64)
	if err != nil {
		return err
	}
	if _, ok := got.(float64); !ok || (math.Float64bits(f) != math.Float64bits(want) && !(math.IsNaN(f) && math.IsNaN(want))) {
		return fmt.Errorf("got %v, want float %v", got, text)
	}
	return nil
}

func matchContainer(tagged map[string]any, got pickle.Value) error {
	switch got := got.(type) {
	case *pickle.List:
		return matchAll(tagged["list"], got.Items)
	case *pickle.Tuple:
		return matchAll(tagged["tuple"], got.Items)
	case *pickle.Dict:
		var keys, values []any
		pairs, ok := tagged["dict"].([]any)
		if !ok || len(pairs) != len(got.Items) {
			return fmt.Errorf("got a dict of %d, want %.60v", len(got.Items), tagged)
		}
		for _, p := range pairs {
			keys, values = append(keys, p.([]any)[0]), append(values, p.([]any)[1])
		}
		var gotKeys, gotValues []pickle.Value
		for _, p := range got.Items {
			gotKeys, gotValues = append(gotKeys, p.Key), append(gotValues, p.Value)
		}
		return errors.Join(matchAll(keys, gotKeys), matchAll(values, gotValues))
	case *pickle.NDArray:
		names := map[string]string{
			"b1": "bool", "u1": "uint8", "i4": "int32", "i8": "int64", "f2": "float16", "f4": "float32", "f8": "float64", "O": "object",
		}
		name := names[got.DType]
		if name == "" {
			name = "<" + got.DType
		}
		if tagged["dtype"] != name || fmt.Sprint(tagged["shape"]) != fmt.Sprint(got.Shape) {
			return fmt.Errorf("got an array of %s %v, want %v %v", name, got.Shape, tagged["dtype"], tagged["shape"])
		}
		elements := make([]pickle.Value, got.Len())
		for i := range elements {
			elements[i] = got.At(i)
		}
		return matchAll(tagged["ndarray"], elements)
	}
	return fmt.Errorf("got %.60v, want %.60v", got, tagged)
}

func matchAll(want any, got []pickle.Value) error {
	items, ok := want.([]any)
	if len(items) != len(got) || (!ok && want != nil) || (want == nil && len(got) > 0) {
		return fmt.Errorf("got %d elements %.60v, want %.60v", len(got), got, want)
	}
	for i := range items {
		if err := match(items[i], got[i]); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

// measure reports what f allocates, garbage included, and the processor time it
// takes. The caller must not run beside other tests.
func measure(f func()) (allocated uint64, took time.Duration) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := cpuTime()
	f()
	took = cpuTime() - start
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, took
}

// The functions below write pickles by hand.

func body(parts ...string) []byte { return []byte(strings.Join(parts, "")) }

func le(width int, n uint64) string {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	return string(b[:width])
}

func str(s string) string { return "X" + le(4, uint64(len(s))) + s }

func bin(s string) string { return "B" + le(4, uint64(len(s))) + s }

func put(i int) string { return "r" + le(4, uint64(i)) }

func get(i int) string { return "j" + le(4, uint64(i)) }

const (
	proto  = "\x80\x04"
	tuple1 = "\x85"
	tuple2 = "\x86"
	tuple3 = "\x87"
	yes    = "\x88"
	no     = "\x89"
)

// inMetadata wraps the pickle of a value into a request.
func inMetadata(parts ...string) []byte {
	return body(proto, "}(", str("images"), "](", bin("x"), "e", str("prompts"), "](", str("p"), "e",
		str("metadata"), "}", str("k"), strings.Join(parts, ""), "su.")
}

// dtypeOf writes a dtype with its state.
func dtypeOf(code, order string, size int) string {
	return "cnumpy\ndtype\n" + str(code) + no + yes + tuple3 + "R(K\x03" + str(order) + "NNNJ" +
		le(4, uint64(uint32(int32(size)))) + "J\xff\xff\xff\xffK\x00tb"
}

const emptyArray = "cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"

func mustDecode(tb testing.TB, data []byte) pickle.Value {
	tb.Helper()
	v, err := pickle.Decode(data, pickle.Limits{})
	require.NoError(tb, err)
	return v
}
