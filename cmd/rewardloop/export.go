package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/internal/parquetfile"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/store"
)

const exportText = `
Writes the stored results of a server (store.keep) into a file for pandas,
datasets and similar tools: one row per sample with run, step, group, prompt,
response, reward, the value of each function, extra columns, errors and times.
The server can keep running.

  --parquet FILE  typed columns; missing values are null
  --csv FILE      the same columns; objects and lists are JSON
  --jsonl FILE    one nested JSON object per line, as in GET /v1/results/KEY

If a restarted trainer repeated a step, only the rows of the last repetition are
written; --all-epochs adds the earlier rows. After Ctrl-C the file ends with a
complete row.`

const exportExample = `
rewardloop export --parquet rewards.parquet
rewardloop export --store 8080.db --run my-run --steps 10-20 --csv some.csv`

func exportCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "export", GroupID: groupScore, Args: nothingElse,
		SuggestFor: []string{"dump", "save"},
		Short:      "write stored results as Parquet, CSV or JSON lines",
		Long:       exportText, Example: exportExample,
	}
	f := addKeptFlags(cmd)
	var parquet, csv, jsonl string
	cmd.Flags().StringVar(&parquet, "parquet", "", "Parquet `file` to write")
	cmd.Flags().StringVar(&csv, "csv", "", "CSV `file` to write; - writes standard output")
	cmd.Flags().StringVar(&jsonl, "jsonl", "", "JSON lines `file` to write; - writes standard output")
	cmd.MarkFlagsMutuallyExclusive("parquet", "csv", "jsonl")
	cmd.MarkFlagsOneRequired("parquet", "csv", "jsonl")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q, accept, err := f.query()
		if err != nil {
			return wrong(err)
		}
		r, file, err := f.open()
		if err != nil {
			return wrong(err)
		}
		defer r.Close()
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		x := &exporting{reader: r, query: q, accept: accept}
		name, write := parquet, x.parquet
		switch {
		case csv != "":
			name, write = csv, x.csv
		case jsonl != "":
			name, write = jsonl, x.jsonl
		}
		n, err := writeFile(e, name, func(w io.Writer) (int, error) { return write(ctx, w) })
		if err != nil {
			return failed(err)
		}
		fmt.Fprintf(e.stderr, "%s of %s written to %s\n", rewards.Count(n, "result"), file, name)
		if ctx.Err() != nil {
			return failed(errors.New("interrupted; the file ends with a complete row"))
		}
		return nil
	}
	return cmd
}

// writeFile writes a file under a name of its own until it is whole; "-" is standard output.
func writeFile(e *env, name string, write func(io.Writer) (int, error)) (n int, err error) {
	if name == "-" {
		return write(e.stdout)
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // it is not whole
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	n, err = write(w)
	if err = errors.Join(err, w.Flush(), f.Chmod(0o644), f.Close()); err != nil {
		return 0, err
	}
	return n, os.Rename(f.Name(), name)
}

// exporting is one export.
type exporting struct {
	reader *store.Reader
	query  store.Query
	accept func(*store.Row) bool
}

// each calls do with every row until the context ends.
func (x *exporting) each(ctx context.Context, do func(*store.Row) error) (n int, err error) {
	for row, err := range x.reader.Each(context.WithoutCancel(ctx), x.query) {
		switch {
		case err != nil:
			return n, err
		case ctx.Err() != nil:
			return n, nil
		case !x.accept(row):
			continue
		}
		if err := do(row); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// ownColumns stand before those of score's tables.
func ownColumns() []parquetfile.Column {
	return []parquetfile.Column{
		{Name: "key", Kind: parquetfile.Whole},
		{Name: "run", Kind: parquetfile.Text},
		{Name: "epoch", Kind: parquetfile.Text},
		{Name: "finished", Kind: parquetfile.Text},
		{Name: "worker", Kind: parquetfile.Text},
		{Name: "attempts", Kind: parquetfile.Whole},
		{Name: "config", Kind: parquetfile.Text},
	}
}

// lines are a row in the form of score.
func lines(row *store.Row) (*sampleLine, *outputLine) {
	res := row.Result
	s := row.Header.Sample
	s.Media, s.Reward, s.Step, s.Split = nil, row.Reward, row.Step, row.Split
	return &sampleLine{id: row.ID, sample: s}, &outputLine{
		ID: row.ID, Outcome: row.Outcome, RewardScore: res.RewardScore, ExtraInfo: res.ExtraInfo, Details: res.Details, Errors: res.Errors,
		Fallback: res.Fallback, StepScores: res.StepScores, TimingMS: res.TimingMS,
	}
}

// table has the rows as cells of typed columns.
func (x *exporting) table(ctx context.Context, begin func([]parquetfile.Column) error, write func([]any) error) (n int, err error) {
	c := &columnsOf{seen: map[string]*scalars{}}
	if _, err := x.each(ctx, func(row *store.Row) error {
		_, out := lines(row)
		c.note(out)
		x.query.Before = row.Key + 1 // the second pass has no row that the first had not
		return nil
	}); err != nil {
		return 0, err
	}
	columns, names := tableColumns(c)
	if x.query.Before == 0 {
		x.query.Before = 1 // there were no rows
	}
	if err := begin(append(ownColumns(), columns...)); err != nil {
		return 0, err
	}
	return x.each(ctx, func(row *store.Row) error {
		l, out := lines(row)
		cells := []any{row.Key, row.Run, row.Epoch, row.Finished.Format(time.RFC3339Nano), filled(row.Worker), int64(row.Attempts), filled(row.Config)}
		return write(append(cells, tableCells(c, names, l, out)...))
	})
}

func (x *exporting) parquet(ctx context.Context, out io.Writer) (n int, err error) {
	var w *parquetfile.Writer
	n, err = x.table(ctx, func(columns []parquetfile.Column) (err error) {
		w, err = parquetfile.NewWriter(out, "rewardloop", release(), columns)
		return err
	}, func(cells []any) error { return w.Write(cells) })
	if err != nil {
		return n, err
	}
	return n, w.Close()
}

func (x *exporting) csv(ctx context.Context, out io.Writer) (n int, err error) {
	w := csv.NewWriter(out)
	n, err = x.table(ctx, func(columns []parquetfile.Column) error {
		head := make([]string, len(columns))
		for i, c := range columns {
			head[i] = c.Name
		}
		return w.Write(head)
	}, func(cells []any) error {
		line := make([]string, len(cells))
		for i, c := range cells {
			line[i] = csvCell(c)
		}
		return w.Write(line)
	})
	w.Flush()
	return n, errors.Join(err, w.Error())
}

// csvCell is a value as a CSV has it; nothing for null.
func csvCell(v any) string {
	switch t := v.(type) {
	case nil:
		return ""
	case string:
		return t
	case int64:
		return strconv.FormatInt(t, 10)
	case float64:
		return strconv.FormatFloat(t, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

func (x *exporting) jsonl(ctx context.Context, out io.Writer) (int, error) {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return x.each(ctx, func(row *store.Row) error {
		return enc.Encode(row.Whole())
	})
}
