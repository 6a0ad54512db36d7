package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/parquetfile"
)

// fixedColumns begin every row of a table; what a reward calls the same is told apart by where it
// comes from.
func fixedColumns() []string {
	return []string{
		"id", "outcome", "reward_score", "fallback", "errors", "error_class",
		"uid", "group_size", "step", "split", "index", "data_source", "reward", "prompt", "response", "ground_truth", "extra_info", "media",
		"step_scores", "details",
	}
}

// scalars are what a column of results holds: each of its kinds that was seen.
type scalars struct{ numbers, flags, texts, others bool }

// maxColumns bounds the columns of a table: a reward may invent a name for each sample.
const maxColumns = 2000

// moreColumn holds what has no column of its own any more, as JSON.
const moreColumn = "more"

// columnsOf are the columns that results fill beside the fixed ones, with what they hold.
type columnsOf struct {
	seen map[string]*scalars
	more bool
}

func (c *columnsOf) note(r *outputLine) {
	for name, v := range flat(r) {
		s := c.seen[name]
		if s == nil && len(c.seen) >= maxColumns {
			c.more = true
			continue
		}
		if s == nil {
			s = new(scalars)
			c.seen[name] = s
		}
		switch v.(type) {
		case nil:
		case float64, int64, int:
			s.numbers = true
		case bool:
			s.flags = true
		case string:
			s.texts = true
		default:
			s.others = true
		}
	}
}

// names are the columns in their order: those of the reward before the times.
func (c *columnsOf) names() []string {
	names := make([]string, 0, len(c.seen))
	for name := range c.seen {
		names = append(names, name)
	}
	slices.Sort(names)
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	return names
}

// rank orders columns: the reward's, the server's own, the times.
func rank(name string) int {
	switch {
	case strings.HasPrefix(name, timePrefix):
		return 2
	case strings.HasPrefix(name, "rewardloop/"):
		return 1
	}
	return 0
}

const timePrefix = "timing_ms/"

// flat is what a result has beside the fixed columns, by the names that Result.as_row of the
// Python client has.
func flat(r *outputLine) map[string]any {
	all := make(map[string]any, len(r.ExtraInfo)+len(r.TimingMS))
	for name, v := range r.ExtraInfo {
		if slices.Contains(fixedColumns(), name) || name == moreColumn || name == "" || strings.HasPrefix(name, timePrefix) {
			name = "reward_extra_info/" + name
		}
		all[name] = v
	}
	for name, v := range r.TimingMS {
		all[timePrefix+name] = v
	}
	return all
}

// kind is the type of a column: what all of its values are, or else JSON as text.
func (s *scalars) kind() parquetfile.Kind {
	switch {
	case s.numbers && !s.flags && !s.texts && !s.others:
		return parquetfile.Number
	case s.flags && !s.numbers && !s.texts && !s.others:
		return parquetfile.Flag
	}
	return parquetfile.Text
}

// cell is a value in the column's type. A column of texts alone has them as they are.
func (s *scalars) cell(v any) any {
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		if !s.numbers && !s.flags && !s.others {
			return v
		}
	case float64, bool:
		if s.kind() != parquetfile.Text {
			return v
		}
	}
	return asJSON(v)
}

func asJSON(v any) any {
	b, _ := json.Marshal(v) //nolint:errchkjson // it was read from JSON
	return string(b)
}

// writeParquet writes what is kept as a Parquet file with a row for each sample.
func writeParquet(k *kept, c *columnsOf, out io.Writer) error {
	columns, names := tableColumns(c)
	w, err := parquetfile.NewWriter(out, "rewardloop", release(), columns)
	if err != nil {
		return err
	}
	err = k.each(func(l *sampleLine, r *outputLine) error {
		return w.Write(tableCells(c, names, l, r))
	})
	if err != nil {
		return err
	}
	return w.Close()
}

// tableColumns are the columns of a table, and the names of those that are not fixed.
func tableColumns(c *columnsOf) (columns []parquetfile.Column, names []string) {
	for _, name := range fixedColumns() {
		kind := parquetfile.Text
		switch name {
		case "reward_score", "fallback":
			kind = parquetfile.Number
		case "group_size", "step", "index":
			kind = parquetfile.Whole
		}
		columns = append(columns, parquetfile.Column{Name: name, Kind: kind})
	}
	names = c.names()
	for _, name := range names {
		columns = append(columns, parquetfile.Column{Name: name, Kind: c.seen[name].kind()})
	}
	if c.more {
		columns = append(columns, parquetfile.Column{Name: moreColumn, Kind: parquetfile.Text})
	}
	return columns, names
}

// tableCells are the cells of a row, one for each of the columns.
func tableCells(c *columnsOf, names []string, l *sampleLine, r *outputLine) []any {
	row := fixedCells(l, r)
	rest := flat(r)
	for _, name := range names {
		row = append(row, c.seen[name].cell(rest[name]))
		delete(rest, name)
	}
	if c.more {
		row = append(row, textIf(rest, len(rest) > 0))
	}
	return row
}

// fixedCells are the cells of the fixed columns, null where there is nothing.
func fixedCells(l *sampleLine, r *outputLine) []any {
	known := l != nil
	if !known {
		l = new(sampleLine)
	}
	s := &l.sample
	row := []any{r.ID, string(r.Outcome), nil, nil, nil, nil}
	if r.RewardScore != nil {
		row[2] = *r.RewardScore
	}
	if r.Fallback != nil && r.Fallback.Value != nil {
		row[3] = *r.Fallback.Value
	}
	if len(r.Errors) > 0 {
		row[4], row[5] = why(r), string(r.Errors[0].Class)
	}
	row = append(row, filled(s.UID), nil, nil, filled(string(s.Split)), nil, filled(s.DataSource), filled(s.Reward), filled(s.Prompt), filled(s.Response))
	if s.HasGroup() {
		row[7] = int64(s.GroupSize)
	}
	if known {
		row[8] = s.Step
	}
	if s.Index != nil {
		row[10] = *s.Index
	}
	var files []string
	for _, f := range slices.Concat(l.images, l.video) {
		files = append(files, f.path)
	}
	return append(row, filled(string(s.GroundTruth)), filled(string(s.ExtraInfo)), textIf(files, len(files) > 0),
		textIf(r.StepScores, r.StepScores != nil), textIf(r.Details, len(r.Details) > 0))
}

// why says in one text what failed, each component in a line.
func why(r *outputLine) string {
	lines := make([]string, len(r.Errors))
	for i, e := range r.Errors {
		lines[i] = fmt.Sprintf("%s: %s", e.Class, e.Message)
		if e.Component != "" {
			lines[i] = e.Component + ": " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

func filled(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func textIf(v any, there bool) any {
	if !there {
		return nil
	}
	return asJSON(v)
}
