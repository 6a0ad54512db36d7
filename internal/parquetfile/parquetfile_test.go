package parquetfile_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/parquetfile"
)

func opened(t *testing.T, file []byte) *parquetfile.Reader {
	t.Helper()
	r, err := parquetfile.Open(bytes.NewReader(file), int64(len(file)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func all(t *testing.T, r *parquetfile.Reader) []map[string]any {
	t.Helper()
	var rows []map[string]any
	for {
		row, err := r.Next()
		if err == io.EOF { //nolint:errorlint // it is never wrapped
			return rows
		}
		require.NoError(t, err)
		rows = append(rows, row)
	}
}

func columns() []parquetfile.Column {
	return []parquetfile.Column{
		{Name: "z", Kind: parquetfile.Text}, {Name: "a", Kind: parquetfile.Number}, {Name: "m/flag", Kind: parquetfile.Flag}, {Name: "n", Kind: parquetfile.Whole},
	}
}

func written(t *testing.T, rows ...[]any) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := parquetfile.NewWriter(&b, "test", "1", columns())
	require.NoError(t, err)
	for _, row := range rows {
		require.NoError(t, w.Write(row))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestRowsThatAreWrittenAreReadWithTheirTypesOrderAndNulls(t *testing.T) {
	t.Parallel()
	r := opened(t, written(t, []any{"one", 0.5, true, int64(math.MaxInt64)}, []any{nil, nil, nil, nil}, []any{"", math.Inf(1), false, int64(-1)}))
	require.Equal(t, []string{"z", "a", "m/flag", "n"}, r.Columns(), "columns stand in the order they were given")
	require.Equal(t, int64(3), r.Rows())
	require.Equal(t, []map[string]any{
		{"z": "one", "a": 0.5, "m/flag": true, "n": int64(math.MaxInt64)},
		{"z": nil, "a": nil, "m/flag": nil, "n": nil},
		{"z": "", "a": math.Inf(1), "m/flag": false, "n": int64(-1)},
	}, all(t, r))
}

func TestAFileWithoutRowsHasItsColumns(t *testing.T) {
	t.Parallel()
	r := opened(t, written(t))
	require.Len(t, r.Columns(), 4)
	require.Empty(t, all(t, r))
}

// What is written is in the file before the file is closed: memory holds one row group.
func TestRowGroupsAreWrittenOnTheWay(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w, err := parquetfile.NewWriter(&b, "test", "1", columns())
	require.NoError(t, err)
	long := strings.Repeat("x", 1<<20)
	for i := range 18 {
		require.NoError(t, w.Write([]any{fmt.Sprint(i) + long, float64(i), nil, nil}))
	}
	before := b.Len()
	require.NoError(t, w.Close())
	require.Positive(t, before, "18 MiB were written and nothing has left the memory")
	f, err := parquet.OpenFile(bytes.NewReader(b.Bytes()), int64(b.Len()))
	require.NoError(t, err)
	require.Len(t, f.RowGroups(), 2)
	rows := all(t, opened(t, b.Bytes()))
	require.Len(t, rows, 18)
	for i, row := range rows {
		require.InDelta(t, float64(i), row["a"], 0)
	}
}

func TestACellOfAnotherTypeAndColumnsWithOneNameAreRefused(t *testing.T) {
	t.Parallel()
	w, err := parquetfile.NewWriter(io.Discard, "test", "1", columns())
	require.NoError(t, err)
	require.ErrorContains(t, w.Write([]any{1.0, nil, nil, nil}), `column "z" cannot store a float64`)
	require.ErrorContains(t, w.Write([]any{"x"}), "1 cells for 4 columns")
	_, err = parquetfile.NewWriter(io.Discard, "test", "1", []parquetfile.Column{{Name: "a"}, {Name: "a"}})
	require.ErrorContains(t, err, `"a" is a duplicate`)
}

// picture is what Hugging Face's datasets writes for one.
type picture struct {
	Bytes []byte  `parquet:"bytes,optional"`
	Path  *string `parquet:"path,optional"`
}

type layer struct {
	In []int64 `parquet:"in,list"`
}

type nested struct {
	ID     string    `parquet:"id"`
	Image  *picture  `parquet:"image,optional"`
	Images []picture `parquet:"images,list,optional"`
	Deep   []layer   `parquet:"deep,list"`
	Short  uint32    `parquet:"short"`
	Half   float32   `parquet:"half"`
}

func TestStructsAndListsOfAnyDepthAreReadAsJSONHasThem(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[nested](&b, parquet.MaxRowsPerRowGroup(2))
	rows := []nested{
		{ID: "a", Image: &picture{Bytes: []byte{1, 2}}, Images: []picture{{Path: new("p")}, {Bytes: []byte{3}}}, Short: math.MaxUint32, Half: 0.5},
		{ID: "b", Deep: []layer{{In: []int64{1, 2}}, {}, {In: []int64{3}}}},
		{ID: "c", Image: &picture{Path: new("q")}, Images: []picture{{}}},
	}
	_, err := w.Write(rows)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	r := opened(t, b.Bytes())
	got := all(t, r)
	require.Len(t, got, 3)
	require.Equal(t, map[string]any{"bytes": []byte{1, 2}, "path": nil}, got[0]["image"])
	require.Equal(t, []any{map[string]any{"bytes": []byte(nil), "path": "p"}, map[string]any{"bytes": []byte{3}, "path": nil}}, nilBytes(got[0]["images"]))
	require.Equal(t, int64(math.MaxUint32), got[0]["short"])
	require.InDelta(t, 0.5, got[0]["half"], 0)
	require.Nil(t, got[1]["image"])
	in := func(v ...any) map[string]any { return map[string]any{"in": append([]any{}, v...)} }
	require.Equal(t, []any{in(int64(1), int64(2)), in(), in(int64(3))}, got[1]["deep"])
	require.Equal(t, []any{}, got[0]["deep"])
	require.Equal(t, "c", got[2]["id"])

	require.NoError(t, r.SkipTo(2), "the second row group")
	row, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, "c", row["id"])
	require.NoError(t, r.SkipTo(1))
	row, err = r.Next()
	require.NoError(t, err)
	require.Equal(t, "b", row["id"])
	require.ErrorIs(t, r.SkipTo(3), io.EOF)
}

// nilBytes makes absent bytes of one kind: null, and none.
func nilBytes(v any) any {
	for _, one := range v.([]any) {
		if m := one.(map[string]any); m["bytes"] == nil {
			m["bytes"] = []byte(nil)
		}
	}
	return v
}

// A file that is cut or changed anywhere is an error, and never a crash.
func TestABrokenFileIsAnErrorAndNoPanic(t *testing.T) {
	t.Parallel()
	whole := written(t, []any{"one", 0.5, true, int64(1)}, []any{"two", 1.5, nil, nil})
	try := func(file []byte) error {
		r, err := parquetfile.Open(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return err
		}
		for range 10 {
			if _, err = r.Next(); err != nil {
				break
			}
		}
		return err
	}
	require.ErrorIs(t, try(whole), io.EOF)
	for n := range whole {
		require.Error(t, try(whole[:n]))
		changed := bytes.Clone(whole)
		changed[n] ^= 0xff
		_ = try(changed) // some changes are no faults
	}
	require.ErrorContains(t, try([]byte("id,prompt\na,b\n")), "not a complete Parquet file")
}
