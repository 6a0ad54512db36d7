package parquetfile

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// Kind is the type of a column that is written. Every value may be null.
type Kind int

// The kinds of columns.
const (
	Text   Kind = iota // UTF-8
	Number             // DOUBLE
	Whole              // INT64
	Flag               // BOOLEAN
)

// Column is one column of a file.
type Column struct {
	Name string
	Kind Kind
}

// A row group ends with whichever of these it has first; a page is much smaller.
const (
	groupRows  = 1 << 16
	groupBytes = 16 << 20
)

// Writer writes a file. It is not safe for concurrent use.
type Writer struct {
	w       *parquet.GenericWriter[any]
	columns []Column
	row     parquet.Row
	rows    int
	bytes   int
}

// NewWriter begins a file with these columns, whose names must differ. application and version
// identify the program in the file.
func NewWriter(out io.Writer, application, version string, columns []Column) (*Writer, error) {
	group := parquet.Group{}
	names := make([]string, len(columns))
	for i, c := range columns {
		if _, there := group[c.Name]; there || c.Name == "" {
			return nil, fmt.Errorf("column %q is a duplicate, or has no name", c.Name)
		}
		names[i] = c.Name
		group[c.Name] = parquet.Optional(c.Kind.node())
	}
	schema := parquet.NewSchema("rewardloop", ordered{group, names})
	return &Writer{
		w: parquet.NewGenericWriter[any](out, schema, parquet.Compression(&parquet.Snappy), parquet.CreatedBy(application, version, ""),
			parquet.MaxRowsPerRowGroup(groupRows), parquet.PageBufferSize(256<<10)),
		columns: columns,
	}, nil
}

func (k Kind) node() parquet.Node {
	switch k {
	case Number:
		return parquet.Leaf(parquet.DoubleType)
	case Whole:
		return parquet.Int(64)
	case Flag:
		return parquet.Leaf(parquet.BooleanType)
	}
	return parquet.String()
}

// ordered is a group whose fields stand in an order of their own, not in that of their names.
type ordered struct {
	parquet.Group
	names []string
}

// Fields implements parquet.Node.
func (o ordered) Fields() []parquet.Field {
	fields := o.Group.Fields()
	slices.SortFunc(fields, func(a, b parquet.Field) int {
		return cmp.Compare(slices.Index(o.names, a.Name()), slices.Index(o.names, b.Name()))
	})
	return fields
}

// Write writes a row: for each column nil, or a value of the column's kind (string, float64, int64,
// bool).
func (w *Writer) Write(cells []any) (err error) {
	defer guard("writing", &err)
	if len(cells) != len(w.columns) {
		return fmt.Errorf("%d cells for %d columns", len(cells), len(w.columns))
	}
	w.row = w.row[:0]
	for i, cell := range cells {
		v, err := w.columns[i].value(cell)
		if err != nil {
			return err
		}
		defined := 1
		if v.IsNull() {
			defined = 0
		}
		w.row = append(w.row, v.Level(0, defined, i))
		text, _ := cell.(string)
		w.bytes += 8 + len(text)
	}
	if _, err := w.w.WriteRows([]parquet.Row{w.row}); err != nil {
		return err
	}
	if w.rows++; w.rows < groupRows && w.bytes < groupBytes {
		return nil
	}
	w.rows, w.bytes = 0, 0
	return w.w.Flush()
}

func (c Column) value(cell any) (parquet.Value, error) {
	switch v := cell.(type) {
	case nil:
		return parquet.NullValue(), nil
	case string:
		if c.Kind == Text {
			return parquet.ByteArrayValue([]byte(v)), nil
		}
	case float64:
		if c.Kind == Number {
			return parquet.DoubleValue(v), nil
		}
	case int64:
		if c.Kind == Whole {
			return parquet.Int64Value(v), nil
		}
	case bool:
		if c.Kind == Flag {
			return parquet.BooleanValue(v), nil
		}
	}
	return parquet.Value{}, fmt.Errorf("column %q cannot store a %T", c.Name, cell)
}

// Close writes the remaining rows and the footer, without which the file cannot be read.
func (w *Writer) Close() (err error) {
	defer guard("writing", &err)
	return w.w.Close()
}
