package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// partial is the ending of the file that holds the results of a run whose output is written at
// its end: JSON lines. What a run that was killed has scored can be read there.
const partial = ".partial.jsonl"

// kept are the samples and results of a run, on disk, for outputs that are written at its end:
// the columns of a Parquet file are known only then, and so are the best and the worst samples.
// Both files have a line for each item, in the same order.
type kept struct {
	samples *bufio.Writer // the feeder's
	lines   *os.File      // of samples; without a name
	results *os.File
}

func newKept(output string) (*kept, error) {
	results, err := os.Create(output + partial)
	if err != nil {
		return nil, err
	}
	lines, err := os.CreateTemp(filepath.Dir(output), ".rewardloop-*")
	if err != nil {
		return nil, errors.Join(err, results.Close(), os.Remove(results.Name()))
	}
	if err := os.Remove(lines.Name()); err != nil { // it goes with the process, however that ends
		return nil, errors.Join(err, lines.Close(), results.Close())
	}
	return &kept{samples: bufio.NewWriterSize(lines, 64<<10), lines: lines, results: results}, nil
}

// sample keeps the line of a sample.
func (k *kept) sample(line []byte) error {
	_, err := k.samples.Write(line)
	return errors.Join(err, k.samples.WriteByte('\n'))
}

// each hands over what is kept, item after item: the line of its sample, nil where that is none,
// and its result.
func (k *kept) each(f func(line *sampleLine, r *outputLine) error) error {
	if err := k.samples.Flush(); err != nil {
		return err
	}
	for _, file := range []*os.File{k.lines, k.results} {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	lines, results := bufio.NewReaderSize(k.lines, 64<<10), bufio.NewReaderSize(k.results, 64<<10)
	for {
		result, err := results.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // what has no end was not written whole
		}
		if err != nil {
			return err
		}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("the sample of a result: %w", err)
		}
		r := new(outputLine)
		if err := json.Unmarshal(result, r); err != nil {
			return err
		}
		var l *sampleLine
		if line = line[:len(line)-1]; string(line) != "null" {
			if l, err = parseLine(line); err != nil {
				return err
			}
		}
		if err := f(l, r); err != nil {
			return err
		}
	}
}

// drop closes the files; done: their content is in the output, and they are removed.
func (k *kept) drop(done bool) {
	_, _ = k.lines.Close(), k.results.Close() // read, or given up
	if done {
		_ = os.Remove(k.results.Name()) // a file too many is no reason to fail
	}
}
