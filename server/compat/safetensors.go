package compat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/wire"
)

// tensor is one of a safetensors body; its data aliases the body.
type tensor struct {
	name  string
	dtype string
	shape []int
	data  []byte

	begin, end int64
}

// maxTensors bounds a body's; the protocol has five.
const maxTensors = 63

// maxAxes bounds the axes of a tensor.
const maxAxes = 8

// readTensors takes a safetensors body apart, in the order of its header: the length
// of the header as 8 bytes, little endian, the header, which is JSON, and the data,
// which the tensors cover without gap or overlap (the format's own rule).
func readTensors(b []byte) ([]tensor, error) {
	const prefix = 8
	if len(b) < prefix {
		return nil, fmt.Errorf("safetensors: %d bytes, too few for the length of a header", len(b))
	}
	size := binary.LittleEndian.Uint64(b)
	if size > wire.MaxHeaderBytes || int64(size) > int64(len(b)-prefix) {
		return nil, fmt.Errorf("safetensors: a header of %d bytes in a body of %d; the limit is %d", size, len(b), wire.MaxHeaderBytes)
	}
	head, data := b[prefix:prefix+int(size)], b[prefix+int(size):]
	if len(head) == 0 || head[0] != '{' {
		return nil, errors.New("safetensors: the header does not begin with '{'")
	}
	t, err := strictjson.Parse(head)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	var list []tensor
	err = t.Object(func(key string, v strictjson.Text) error {
		switch {
		case key == "__metadata__":
			return v.Object(func(_ string, v strictjson.Text) error {
				_, err := v.Str()
				return err
			})
		case len(list) == maxTensors:
			return fmt.Errorf("more than %d tensors", maxTensors)
		case key == "" || len(key) > wire.MaxNameBytes:
			return fmt.Errorf("a tensor's name has 1 to %d bytes", wire.MaxNameBytes)
		}
		own := tensor{name: key}
		if err := own.readHeader(v, int64(len(data))); err != nil {
			return err
		}
		own.data = data[own.begin:own.end:own.end]
		list = append(list, own)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	return list, tile(list, int64(len(data)))
}

// readHeader reads {"dtype", "shape", "data_offsets"}; all is the length of the data.
func (n *tensor) readHeader(v strictjson.Text, all int64) error {
	var offsets []int64
	seen := 0
	err := v.Object(func(key string, v strictjson.Text) (err error) {
		seen++
		switch key {
		case "dtype":
			n.dtype, err = v.Str()
		case "shape":
			err = v.Array(func(_ int, v strictjson.Text) error {
				size, err := v.Integer(1, math.MaxInt32)
				if n.shape = append(n.shape, int(size)); len(n.shape) > maxAxes {
					err = fmt.Errorf("more than %d axes", maxAxes)
				}
				return err
			})
		case "data_offsets":
			err = v.Array(func(_ int, v strictjson.Text) error {
				at, err := v.Integer(0, all)
				if offsets = append(offsets, at); len(offsets) > 2 {
					err = errors.New("want two numbers")
				}
				return err
			})
		default:
			err = strictjson.ErrUnknownKey
		}
		return err
	})
	if err != nil {
		return err
	}
	if seen != 3 || len(offsets) != 2 || offsets[1] < offsets[0] {
		return errors.New("it needs dtype, shape and two data_offsets that rise")
	}
	n.begin, n.end = offsets[0], offsets[1]
	width := widthOf(n.dtype)
	if width == 0 {
		return fmt.Errorf("dtype %q: want F16, BF16 or F32, or I32 or I64 for whole numbers", strictjson.Clip(n.dtype))
	}
	bytes := width
	for _, size := range n.shape {
		if bytes *= int64(size); bytes > all {
			break // so that it cannot overflow
		}
	}
	if bytes != n.end-n.begin {
		return fmt.Errorf("%s %v does not have the %d bytes of its data_offsets", n.dtype, n.shape, n.end-n.begin)
	}
	return nil
}

// widthOf is the size of an element; 0 for a type that nothing here takes.
func widthOf(dtype string) int64 {
	switch dtype {
	case "F16", "BF16":
		return 2
	case "F32", "I32":
		return 4
	case "I64":
		return 8
	}
	return 0
}

// tile checks that the tensors cover the data.
func tile(list []tensor, all int64) error {
	byPlace := slices.Clone(list)
	slices.SortStableFunc(byPlace, func(a, b tensor) int { return int(a.begin - b.begin) })
	var at int64
	for _, n := range byPlace {
		if n.begin != at {
			return fmt.Errorf("safetensors: %q begins at %d, where %d bytes are taken", strictjson.Clip(n.name), n.begin, at)
		}
		at = n.end
	}
	if at != all {
		return fmt.Errorf("safetensors: the tensors have %d bytes, the data %d", at, all)
	}
	return nil
}

// integers are the values of I32 or I64.
func integers(dtype string, data []byte) []int64 {
	values := make([]int64, 0, int64(len(data))/widthOf(dtype))
	for len(data) > 0 {
		if dtype == "I32" {
			values, data = append(values, int64(int32(binary.LittleEndian.Uint32(data)))), data[4:]
		} else {
			values, data = append(values, int64(binary.LittleEndian.Uint64(data))), data[8:]
		}
	}
	return values
}
