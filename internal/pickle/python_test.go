package pickle_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pickle"
)

// python runs testdata/python.py in one of its two modes with the interpreter
// of REWARDLOOP_PYTHON, of .venv at the root of the repository, or on PATH.
func python(t *testing.T, mode string, stdin []byte) []byte {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	interpreter := os.Getenv("REWARDLOOP_PYTHON")
	if interpreter == "" {
		interpreter = filepath.Join("..", "..", ".venv", "bin", "python")
		if _, err := os.Stat(interpreter); err != nil {
			interpreter = "python3"
		}
	}
	if _, err := exec.LookPath(interpreter); err != nil {
		t.Skipf("no Python: %v; name one in REWARDLOOP_PYTHON", err)
	}
	cmd := exec.CommandContext(t.Context(), interpreter, "-I", filepath.Join("testdata", "python.py"), mode)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s: %v\n%s", interpreter, err, failed.Stderr)
	}
	require.NoError(t, err)
	return out
}

func TestRequestsOfTheInstalledPythonAndNumPyDecode(t *testing.T) {
	t.Parallel()
	lines := bytes.Split(bytes.TrimSpace(python(t, "make", nil)), []byte("\n"))
	var head struct{ Version, NumPy string }
	require.NoError(t, json.Unmarshal(lines[0], &head))
	t.Logf("Python %s, NumPy %q, %d pickles", head.Version, head.NumPy, len(lines)-1)
	for _, line := range lines[1:] {
		var c struct {
			Name   string          `json:"name"`
			Data   []byte          `json:"pickle_b64"`
			Value  json.RawMessage `json:"value"`
			Refuse bool            `json:"refuse"`
		}
		require.NoError(t, json.Unmarshal(line, &c))
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			v, err := pickle.Decode(c.Data, pickle.Limits{})
			if c.Refuse {
				require.ErrorIs(t, err, pickle.ErrPickle)
				assert.Equal(t, strings.HasPrefix(c.Name, "protocol_0"), errors.Is(err, pickle.ErrProtocol0), err)
				return
			}
			require.NoError(t, err)
			requireValue(t, c.Value, v)
		})
	}
	t.Run("numpy", func(t *testing.T) {
		t.Parallel()
		if head.NumPy == "" {
			t.Skip("NUMPY IS MISSING: its arrays and scalars were not tried; install numpy into .venv or name a Python that has it in REWARDLOOP_PYTHON")
		}
	})
}

func TestPythonLoadsWhatIsEncoded(t *testing.T) {
	t.Parallel()
	values := encodable()
	var in bytes.Buffer
	for _, v := range values {
		data, err := pickle.Encode(v)
		require.NoError(t, err)
		in.WriteString(base64.StdEncoding.EncodeToString(data) + "\n")
	}
	out := bufio.NewScanner(bytes.NewReader(python(t, "load", in.Bytes())))
	out.Buffer(nil, 16<<20)
	for i, v := range values {
		require.True(t, out.Scan(), "value %d", i)
		data, err := pickle.Encode(v)
		require.NoError(t, err)
		requireValue(t, bytes.Clone(out.Bytes()), mustDecode(t, data))
	}
}

// encodable gives values of every type the encoder takes, the answers of the
// HTTP servers among them.
func encodable() []pickle.Value {
	long := make([]float64, 2500)
	for i := range long {
		long[i] = float64(i) / 7
	}
	wide := &pickle.Dict{}
	for i := range 2500 {
		wide.Items = append(wide.Items, pickle.Pair{Key: int64(i), Value: nil})
	}
	list := func(items ...pickle.Value) *pickle.List { return &pickle.List{Items: items} }
	tuple := func(items ...pickle.Value) *pickle.Tuple { return &pickle.Tuple{Items: items} }
	dict := func(pairs ...pickle.Pair) *pickle.Dict { return &pickle.Dict{Items: pairs} }
	ints := []pickle.Value{int64(math.MinInt64), int64(math.MaxInt64)}
	for e := range 63 {
		for _, n := range []int64{1<<e - 1, 1 << e, 1<<e + 1} {
			ints = append(ints, n, -n)
		}
	}
	return []pickle.Value{
		nil, true, false, 7, 0.0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1e-300,
		"", "é 中文 😀 \x00", strings.Repeat("é", 128), strings.Repeat("x", 70_000),
		[]byte(nil), []byte("\x00\xff"), bytes.Repeat([]byte{0xfe}, 256), bytes.Repeat([]byte("jpeg"), 20_000),
		ints, long, wide, list(), dict(), tuple(), tuple(1), tuple(1, "b", list()),
		[]string{"a", "b"},
		[]int{-1, 300, 70_000},
		[][]byte{[]byte("x"), nil},
		dict(pickle.Pair{Key: "scores", Value: []float64{0, 0.5, 1}}, pickle.Pair{Key: "outputs", Value: []float64{0, 0.5, 1}}),
		dict(
			pickle.Pair{Key: "scores", Value: []float64{1}},
			pickle.Pair{Key: "rewards", Value: []float64{1}},
			pickle.Pair{Key: "strict_rewards", Value: []float64{0}},
			pickle.Pair{Key: "group_rewards", Value: dict(pickle.Pair{Key: "counting", Value: []float64{1}})},
			pickle.Pair{Key: "group_strict_rewards", Value: dict(pickle.Pair{Key: "counting", Value: []float64{-10}})},
		),
		dict(
			pickle.Pair{Key: "images", Value: [][]byte{bytes.Repeat([]byte("j"), 25_000)}},
			pickle.Pair{Key: "prompts", Value: []string{"p"}},
			pickle.Pair{Key: "metadata", Value: dict()},
		),
		dict(pickle.Pair{Key: nil, Value: 1}, pickle.Pair{Key: true, Value: 2}, pickle.Pair{Key: 2.5, Value: 3}),
	}
}
