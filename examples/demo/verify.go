package demo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// ErrMismatch is wrapped by the error for every difference that Verify finds.
var ErrMismatch = errors.New("the files do not agree")

// Verify reads the files that Save wrote and computes everything again: each reward from the text
// that was read, the tensors from the rewards, and every figure of the report from rewards and
// traces. It returns the report if everything matches.
func Verify(dir string) (*Report, error) {
	d, err := open(dir)
	if err != nil {
		return nil, missing(dir, err)
	}
	report, err := d.Report()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	tensors, err := readBounded(filepath.Join(dir, TensorsFile), maxFileBytes)
	if err != nil {
		return nil, missing(dir, err)
	}
	printed, err := readBounded(filepath.Join(dir, ReportFile), maxFileBytes)
	if err != nil {
		return nil, missing(dir, err)
	}
	var errs []error
	for _, part := range []struct {
		name string
		err  error
	}{
		{ScoresFile, d.checkFormula()},
		{TensorsFile, checkRM(tensors, d.scores())},
		{ReportFile, compareText(string(printed), report.String())},
	} {
		if part.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", part.name, part.err))
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrMismatch, errors.Join(errs...))
	}
	return report, nil
}

// checkFormula applies the reward's formula to what was read in each picture.
func (d *Demo) checkFormula() error {
	formula, err := ocr.Preset(ocr.FlowGRPO)
	if err != nil {
		return err
	}
	var errs []error
	for i, s := range d.Scores {
		if s.RewardScore == nil {
			continue
		}
		text, ok := s.Details["text"].(string)
		if !ok {
			errs = append(errs, fmt.Errorf("sample %q has a score, but no text that was read", s.ID))
			continue
		}
		m, err := formula.Compare(d.Record.Samples[i].Target, text)
		if err == nil && m.Value != *s.RewardScore {
			err = fmt.Errorf("the text %q, read for the target %q, gives the score %v, but the file has %v", clip(text, 60), d.Record.Samples[i].Target, m.Value, *s.RewardScore)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("sample %q: %w", s.ID, err))
		}
	}
	return errors.Join(errs[:min(len(errs), 10)]...)
}

// compareText names the lines that differ, at most five.
func compareText(printed, computed string) error {
	a, b := strings.Split(printed, "\n"), strings.Split(computed, "\n")
	var errs []error
	for i := range max(len(a), len(b)) {
		if x, y := line(a, i), line(b, i); x != y && len(errs) < 5 {
			errs = append(errs, fmt.Errorf("line %d\n  printed  %s\n  computed %s", i+1, clip(x, 200), clip(y, 200)))
		}
	}
	return errors.Join(errs...)
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(no such line)"
}

// missing says what to do where there are no files.
func missing(dir string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %s holds no finished demo; run the demo first", err, dir)
	}
	return err
}
