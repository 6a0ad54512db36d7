package parquetfile

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// maxColumns bounds the leaves of a schema that is read.
const maxColumns = 4096

// Reader reads a file row by row. It is not safe for concurrent use.
type Reader struct {
	file    *parquet.File
	names   []string
	want    []field
	rows    parquet.Rows
	group   int   // the next row group to open
	left    int64 // rows of the open group that were not read
	buffer  [1]parquet.Row
	columns [][]parquet.Value
}

// field is a column of a row: a leaf, or a struct or list of some.
type field struct {
	name        string
	node        parquet.Node
	first, past int // its leaves
}

// Open reads the schema of a file of that size in bytes.
func Open(in io.ReaderAt, size int64) (r *Reader, err error) {
	defer guard("the file is broken", &err)
	// Indexes and bloom filters are for searching; a file is read from its beginning on.
	f, err := parquet.OpenFile(in, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, fmt.Errorf("not a complete Parquet file: %w", err)
	}
	schema := f.Schema()
	leaves := len(schema.Columns())
	if leaves > maxColumns {
		return nil, fmt.Errorf("%d columns: at most %d are read", leaves, maxColumns)
	}
	r = &Reader{file: f, columns: make([][]parquet.Value, leaves)}
	at := 0
	for _, n := range schema.Fields() {
		size := count(n)
		r.names = append(r.names, n.Name())
		r.want = append(r.want, field{n.Name(), n, at, at + size})
		at += size
	}
	return r, nil
}

// count is how many leaves a node has.
func count(n parquet.Node) int {
	if n.Leaf() {
		return 1
	}
	sum := 0
	for _, f := range n.Fields() {
		sum += count(f)
	}
	return sum
}

// Columns returns the names of the columns, in the order of the file.
func (r *Reader) Columns() []string { return slices.Clone(r.names) }

// Rows returns the number of rows of the file.
func (r *Reader) Rows() int64 { return r.file.NumRows() }

// SkipTo sets the index of the row that Next returns.
func (r *Reader) SkipTo(row int64) (err error) {
	defer guard("the file is broken", &err)
	if err := r.Close(); err != nil {
		return err
	}
	groups := r.file.RowGroups()
	for r.group = 0; r.group < len(groups); r.group++ {
		n := groups[r.group].NumRows()
		if row >= n {
			row -= n
			continue
		}
		r.open()
		r.left -= row
		return r.rows.SeekToRow(row)
	}
	return io.EOF
}

// open opens the next row group.
func (r *Reader) open() {
	g := r.file.RowGroups()[r.group]
	r.rows, r.left = g.Rows(), g.NumRows()
	r.group++
}

// Next returns the next row, or io.EOF. Its values are nil, bool, int64, uint64, float64, string,
// []byte, []any and map[string]any. The caller owns the row.
func (r *Reader) Next() (row map[string]any, err error) {
	defer guard("the file is broken", &err)
	for r.left == 0 {
		if err := r.Close(); err != nil {
			return nil, err
		}
		if r.group == len(r.file.RowGroups()) {
			return nil, io.EOF
		}
		r.open()
	}
	r.buffer[0] = r.buffer[0][:0]
	n, err := r.rows.ReadRows(r.buffer[:])
	if n == 0 {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("the file is broken: %w", err)
	}
	r.left--
	clear(r.columns)
	r.buffer[0].Range(func(column int, values []parquet.Value) bool {
		if column < len(r.columns) {
			r.columns[column] = values
		}
		return true
	})
	row = make(map[string]any, len(r.want))
	for _, f := range r.want {
		if row[f.name], err = assemble(f.node, r.columns[f.first:f.past], level{}); err != nil {
			return nil, fmt.Errorf("column %q: %w", f.name, err)
		}
	}
	return row, nil
}

// Close frees the resources of the reader. Close may be called at any time; a later Next continues
// with the next row group.
func (r *Reader) Close() (err error) {
	defer guard("the file is broken", &err)
	if r.rows == nil {
		return nil
	}
	rows := r.rows
	r.rows, r.left = nil, 0
	return rows.Close()
}

// guard turns a panic of the library into an error: files come from strangers.
func guard(what string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: %v", what, p)
	}
}
