package demo

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// rmNote is the metadata of the tensors file.
const rmNote = "row i is the sample of index i; rm_scores is NaN where rm_valid is false: that sample has no score"

// tensorInfo is a tensor in a safetensors header.
type tensorInfo struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// rmHeader is the header of rm_scores.safetensors.
type rmHeader struct {
	Metadata map[string]string `json:"__metadata__"`
	Scores   tensorInfo        `json:"rm_scores"`
	Valid    tensorInfo        `json:"rm_valid"`
}

func newRMHeader(rows int) rmHeader {
	return rmHeader{
		Metadata: map[string]string{"note": rmNote},
		Scores:   tensorInfo{"F32", []int{rows, 1}, [2]int{0, 4 * rows}},
		Valid:    tensorInfo{"BOOL", []int{rows, 1}, [2]int{4 * rows, 5 * rows}},
	}
}

// encodeRM makes the trainer's tensors as a safetensors file: rm_scores, F32 [B,1],
// and rm_valid, BOOL [B,1], in the order of the batch. A sample without a score is
// NaN and not valid; it is never 0.
//
// The format (github.com/huggingface/safetensors): the header's length as a little
// endian uint64, the JSON header, padded with spaces to 8 bytes, the data.
func encodeRM(scores []*float64) ([]byte, error) {
	head, err := json.Marshal(newRMHeader(len(scores)))
	if err != nil {
		return nil, err
	}
	for len(head)%8 != 0 {
		head = append(head, ' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	out = append(out, head...)
	for _, s := range scores {
		v := float32(math.NaN())
		if s != nil {
			v = float32(*s)
		}
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	for _, s := range scores {
		valid := byte(0)
		if s != nil {
			valid = 1
		}
		out = append(out, valid)
	}
	return out, nil
}

// checkRM says how the tensors of a file differ from the scores.
func checkRM(file []byte, scores []*float64) error {
	if len(file) < 8 {
		return fmt.Errorf("got %d bytes, want a safetensors file of at least 8 bytes", len(file))
	}
	size := binary.LittleEndian.Uint64(file)
	if size > uint64(len(file)-8) {
		return fmt.Errorf("a header of %d bytes in a file of %d", size, len(file))
	}
	var head rmHeader
	d := json.NewDecoder(bytes.NewReader(file[8 : 8+size]))
	d.DisallowUnknownFields()
	if err := d.Decode(&head); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	rows, data := len(scores), file[8+size:]
	got, _ := json.Marshal(head)               //nolint:errchkjson // strings and numbers
	want, _ := json.Marshal(newRMHeader(rows)) //nolint:errchkjson // likewise
	if !bytes.Equal(got, want) || len(data) != 5*rows {
		return fmt.Errorf("header %s with %d bytes of data, want %s with %d", got, len(data), want, 5*rows)
	}
	var errs []error
	for i, s := range scores {
		v, valid := math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])), data[4*rows+i]
		same := s == nil && math.IsNaN(float64(v)) && valid == 0 || s != nil && v == float32(*s) && valid == 1
		if !same && len(errs) < 10 {
			errs = append(errs, fmt.Errorf("row %d is %v with rm_valid %d, but the sample's score is %s", i, v, valid, show(s)))
		}
	}
	return errors.Join(errs...)
}
