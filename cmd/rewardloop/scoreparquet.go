package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/internal/parquetfile"
	"github.com/rewardloop/rewardloop/rewards"
)

// parquetLines are the rows of a Parquet file, each as the line of a sample. Pictures are paths,
// or structs of bytes and path, as Hugging Face's datasets writes them.
type parquetLines struct {
	rows   *parquetfile.Reader
	number int
	size   int64 // of the file
}

func newParquetLines(in *os.File, size int64) (*parquetLines, error) {
	rows, err := parquetfile.Open(in, size)
	if err != nil {
		return nil, err
	}
	for _, name := range rows.Columns() {
		if !slices.Contains(sampleKeys(), name) {
			return nil, fmt.Errorf("want the columns of a sample: %w", unknownKey(name))
		}
	}
	return &parquetLines{rows: rows, size: size}, nil
}

func (l *parquetLines) next() (inputLine, error) {
	row, err := l.rows.Next()
	if err != nil {
		return inputLine{}, err
	}
	l.number++
	line := inputLine{number: l.number, end: int64(float64(l.size) * float64(l.number) / float64(l.rows.Rows()))}
	line.bad = line.take(row)
	return line, nil
}

// at is a row that was read before, for its pictures.
func (l *parquetLines) at(number int) (inputLine, error) {
	if err := l.rows.SkipTo(int64(number - 1)); err != nil {
		return inputLine{}, err
	}
	l.number = number - 1
	return l.next()
}

// take makes the text of a row, and keeps its pictures beside it.
func (line *inputLine) take(row map[string]any) error {
	sample := make(map[string]any, len(row))
	for name, v := range row {
		switch v := v.(type) {
		case nil:
			continue
		case []any:
			if name == "images" || name == "video" {
				if files, ok := pictureFiles(v); ok {
					line.add(name, files...)
					continue
				}
			}
		case map[string]any:
			if file, ok := pictureOf(v); ok && name == "image" {
				line.add(name, file)
				continue
			}
		}
		cell, err := plainCell(name, v)
		if err != nil {
			return refuse(rewards.Malformed, "%s: %w", name, err)
		}
		if cell != nil {
			sample[name] = cell
		}
	}
	var err error
	if line.text, err = json.Marshal(sample); err != nil {
		return refuse(rewards.Malformed, "%w", err)
	}
	if len(line.text) > maxLine {
		line.text, line.long = nil, true
	}
	return nil
}

func (line *inputLine) add(column string, files ...pictureFile) {
	if column == "video" {
		line.frames = append(line.frames, files...)
	} else {
		line.images = append(line.images, files...)
	}
}

// pictureFiles reads a list of pictures, of which at least one is a struct; a list of paths
// stays a text.
func pictureFiles(list []any) ([]pictureFile, bool) {
	files := make([]pictureFile, len(list))
	structs := false
	for i, v := range list {
		switch v := v.(type) {
		case string:
			files[i].path = v
		case map[string]any:
			var ok bool
			if files[i], ok = pictureOf(v); !ok {
				return nil, false
			}
			structs = true
		default:
			return nil, false
		}
	}
	return files, structs
}

// pictureOf reads a struct of bytes and path.
func pictureOf(v map[string]any) (pictureFile, bool) {
	for name := range v {
		if name != "bytes" && name != "path" {
			return pictureFile{}, false
		}
	}
	data, _ := v["bytes"].([]byte)
	path, _ := v["path"].(string)
	return pictureFile{path: path, data: data}, len(data) > 0 || path != ""
}

// plainCell is a value as the JSON of a line has it; a text column is read as a CSV's.
func plainCell(column string, v any) (any, error) {
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil, nil //nolint:nilnil // an empty cell, as in a CSV
		}
		return cellValue(column, v), nil
	case []byte:
		if !utf8.Valid(v) || column == "image" || column == "video" {
			return nil, fmt.Errorf("%d bytes: want text, a path or a struct of bytes and path", len(v))
		}
		return plainCell(column, string(v))
	case int64, uint64:
		if column == "id" || column == "uid" { // what numbers its rows means a name by them
			return fmt.Sprint(v), nil
		}
	case float64:
		if whole := int64(v); float64(whole) == v && slices.Contains([]string{"group_size", "step", "index"}, column) {
			return json.RawMessage(strconv.FormatInt(whole, 10)), nil // pandas writes whole numbers so where some are missing
		}
	}
	return textual(v), nil
}

// textual makes texts of the bytes inside of a value, as programs write texts that do not say
// that they are some.
func textual(v any) any {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case []any:
		for i := range v {
			v[i] = textual(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = textual(v[k])
		}
	}
	return v
}
