package demo

import (
	"context"
	_ "embed" // the step in Python is part of the program
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// trainerDeadline bounds the step in Python: importing NumPy takes a fraction of a second.
const trainerDeadline = 10 * time.Second

//go:embed trainer.py
var trainerScript string

// Trainer is the result of a demo for a trainer: the column rm_scores of its batch.
type Trainer struct {
	// By describes what made the column, and Instead the reason why it was not the Python package.
	By, Instead string
	DType       string
	// Rows is the size of the batch, and Length its response length, which is 1 for pictures.
	Rows, Length int
	Valid        int
	// Asks reports whether verl would compute rewards again: `"rm_scores" not in
	// batch.batch.keys()`.
	Asks bool
}

// column is what trainer.py prints.
type column struct {
	DType  string     `json:"dtype"`
	Shape  []int      `json:"shape"`
	Valid  int        `json:"valid"`
	Scores []*float64 `json:"scores"`
	Asks   bool       `json:"asks"`
}

// Trainer makes the trainer's column from the files that Save has written: with the Python package
// of this clone if interpreter has NumPy, or else from the tensors file. A difference from the
// scores of the demo is an error.
func (d *Demo) Trainer(ctx context.Context, interpreter, dir string) (*Trainer, error) {
	c, err := runTrainer(ctx, interpreter, filepath.Join(dir, ScoresFile))
	if err != nil {
		return d.trainerOfFile(dir, err.Error())
	}
	want := d.scores()
	same := len(c.Scores) == len(want) && len(c.Shape) == 2 && c.Shape[0] == len(want) && c.Shape[1] == 1
	for i := 0; same && i < len(want); i++ {
		same = equal(single(c.Scores[i]), single(want[i]))
	}
	if !same {
		return nil, fmt.Errorf("%w: rm_scores of the Python package are not the scores of this demo", ErrMismatch)
	}
	return &Trainer{By: "rewardloop.rm_scores of the Python package", DType: c.DType, Rows: c.Shape[0], Length: c.Shape[1], Valid: c.Valid, Asks: c.Asks}, nil
}

// single is a score as the tensor has it.
func single(v *float64) *float64 {
	if v == nil {
		return nil
	}
	return new(float64(float32(*v)))
}

// trainerOfFile reads the column out of the tensors file.
func (d *Demo) trainerOfFile(dir, instead string) (*Trainer, error) {
	data, err := readBounded(filepath.Join(dir, TensorsFile), maxFileBytes)
	if err != nil {
		return nil, err
	}
	if err := checkRM(data, d.scores()); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMismatch, TensorsFile, err)
	}
	shape := newRMHeader(len(d.Scores)).Scores.Shape
	t := &Trainer{By: TensorsFile + ", read in Go", Instead: instead, DType: "float32", Rows: shape[0], Length: shape[1]}
	for _, v := range d.scores() {
		if v != nil {
			t.Valid++
		}
	}
	return t, nil // the file has the column, which is all that verl asks
}

// runTrainer runs trainer.py with the Python package of the clone.
func runTrainer(ctx context.Context, interpreter, scores string) (*column, error) {
	pkg, err := pythonFolder()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, trainerDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, "-c", trainerScript, scores)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+pkg, "PYTHONDONTWRITEBYTECODE=1")
	cmd.WaitDelay = time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		if last := lines[len(lines)-1]; last != "" {
			return nil, fmt.Errorf("%s says: %s", interpreter, clip(last, 120))
		}
		return nil, err
	}
	c := new(column)
	return c, strict(out, c)
}

// pythonFolder finds the Python package as Folder finds the pictures.
func pythonFolder() (string, error) {
	tried := []string{"python"}
	if exe, err := os.Executable(); err == nil {
		tried = append(tried, filepath.Join(filepath.Dir(exe), "..", "python"))
	}
	for _, dir := range tried {
		if _, err := os.Stat(filepath.Join(dir, "rewardloop", "scores.py")); err == nil {
			return filepath.Abs(dir)
		}
	}
	return "", fmt.Errorf("the Python package is not in %s", quoted(tried))
}

// String returns a description in lines of at most 80 columns.
func (t *Trainer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "What the trainer takes\n\n  rm_scores     %s [%d, %d]: batch × response length, which is 1 for pictures\n", t.DType, t.Rows, t.Length)
	fmt.Fprintf(&b, "                %d of %d rows are real scores (rm_valid)\n  made by       %s\n", t.Valid, t.Rows, t.By)
	if t.Instead != "" {
		fmt.Fprintf(&b, "                and not by the Python package: %s\n", clip(t.Instead, 160))
	}
	b.WriteString("  verl 0.9 asks if self.use_rm and \"rm_scores\" not in batch.batch.keys():\n" +
		"                before it computes the rewards itself, once the rollout is over\n")
	if t.Asks {
		b.WriteString("  answer        True: it would compute them once more\n")
	} else {
		b.WriteString("  answer        False for a batch with this column: it skips\n                self._compute_reward_colocate(batch). verl itself does not run in the demo.\n")
	}
	return b.String()
}
