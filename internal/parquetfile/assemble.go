package parquetfile

import (
	"bytes"
	"errors"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// level is how deep a node is: how many of the nodes above it, itself included, may be
// absent, and how many repeat.
type level struct{ definition, repetition int }

var errLevels = errors.New("the levels contradict the schema")

// assemble makes the value of a node out of the values of its leaves.
func assemble(n parquet.Node, leaves [][]parquet.Value, l level) (any, error) {
	for _, values := range leaves {
		if len(values) == 0 {
			return nil, errLevels
		}
	}
	there := func() bool { return leaves[0][0].DefinitionLevel() >= l.definition }
	switch {
	case len(leaves) == 0:
		return map[string]any{}, nil
	case n.Optional():
		l.definition++
		if !there() {
			return nil, nil //nolint:nilnil // null
		}
	case n.Repeated():
		l.definition++
		l.repetition++
		if !there() {
			return []any{}, nil
		}
		return elements(leaves, l, func(part [][]parquet.Value) (any, error) { return content(n, part, l) })
	}
	return content(n, leaves, l)
}

// elements splits the leaves where the node of this level repeats.
func elements(leaves [][]parquet.Value, l level, each func([][]parquet.Value) (any, error)) ([]any, error) {
	var all []any
	rest := make([][]parquet.Value, len(leaves))
	copy(rest, leaves)
	for len(rest[0]) > 0 {
		part := make([][]parquet.Value, len(rest))
		for i, values := range rest {
			end := 1
			for end < len(values) && values[end].RepetitionLevel() > l.repetition {
				end++
			}
			if len(values) == 0 {
				return nil, errLevels
			}
			part[i], rest[i] = values[:end], values[end:]
		}
		v, err := each(part)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// content is a node's value that is there.
func content(n parquet.Node, leaves [][]parquet.Value, l level) (any, error) {
	if n.Leaf() {
		return scalar(n, leaves[0][0]), nil
	}
	if repeated, element := listOf(n); repeated != nil {
		l.definition++
		l.repetition++
		if leaves[0][0].DefinitionLevel() < l.definition {
			return []any{}, nil
		}
		return elements(leaves, l, func(part [][]parquet.Value) (any, error) {
			if element == nil {
				return content(repeated, part, l)
			}
			return assemble(element, part, l)
		})
	}
	object := map[string]any{}
	at := 0
	for _, f := range n.Fields() {
		size := count(f)
		v, err := assemble(f, leaves[at:at+size], l)
		if err != nil {
			return nil, err
		}
		object[f.Name()], at = v, at+size
	}
	return object, nil
}

// listOf tells a list: a group around a repeated node, whose only child is the element. Of a
// repeated node with no or several children, as some old programs write it, it is the node.
func listOf(n parquet.Node) (repeated, element parquet.Node) {
	t, fields := n.Type().LogicalType(), n.Fields()
	if t == nil || len(fields) != 1 || !fields[0].Repeated() {
		return nil, nil
	}
	if _, ok := t.Value.(*format.ListType); !ok {
		return nil, nil
	}
	if repeated = fields[0]; !repeated.Leaf() && len(repeated.Fields()) == 1 {
		element = repeated.Fields()[0]
	}
	return repeated, element
}

// scalar is a leaf's value: texts are strings, other byte arrays bytes.
func scalar(n parquet.Node, v parquet.Value) any {
	if v.IsNull() {
		return nil
	}
	var logical format.LogicalTypeValue
	if t := n.Type().LogicalType(); t != nil {
		logical = t.Value
	}
	whole, isWhole := logical.(*format.IntType)
	unsigned := isWhole && !whole.IsSigned
	switch v.Kind() {
	case parquet.Boolean:
		return v.Boolean()
	case parquet.Int32:
		if unsigned {
			return int64(v.Uint32())
		}
		return int64(v.Int32())
	case parquet.Int64:
		if unsigned {
			return v.Uint64()
		}
		return v.Int64()
	case parquet.Float:
		return float64(v.Float())
	case parquet.Double:
		return v.Double()
	}
	switch logical.(type) {
	case *format.StringType, *format.EnumType, *format.JsonType:
		return string(v.ByteArray())
	}
	return bytes.Clone(v.ByteArray())
}
