package rewards

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// trainerColumns are names of columns the trainers keep in the batch themselves;
// an extra field of that name would overwrite them.
//
//nolint:gochecknoglobals // a table
var trainerColumns = []string{
	"attention_mask", "data_source", "extra_info", "ground_truth", "index", "input_ids", "position_ids", "prompts",
	"raw_prompt", "response_mask", "responses", "reward_extra_info", "reward_model", "reward_score", "rm_scores",
	"token_level_rewards", "token_level_scores", "uid",
}

// The columns of reward_extra_info, as verl-omni names them, and the flag of a
// component whose value was put in its place.
const (
	combinedColumn = "reward/combined"
	imputedSuffix  = "/imputed"
	imputedSingle  = "rewardloop/imputed"
	rawSuffix      = "/raw"
	rawSingle      = "rewardloop/raw"
)

func componentColumn(key string) string { return "reward/" + key }

// componentFields are the columns of one component: the same for every sample, whatever
// the scorer returned.
type componentFields struct {
	single bool
	flag   string // says that the value was put in its place
	raw    string // what the scorer said, of a component that makes something else of it; else ""

	mu       sync.Mutex
	key      string            // guarded by mu; reward/<key>, or of a single reward score where it has fields, else acc
	declared bool              // guarded by mu; the set is closed
	kinds    map[string]Field  // guarded by mu; by the scorer's own name
	columns  map[string]string // guarded by mu; own name → column
	dropped  uint64            // guarded by mu; values of undeclared names
}

func newComponentFields(t Component, single bool) (*componentFields, error) {
	f := &componentFields{single: single, key: componentColumn(t.Key), kinds: map[string]Field{}, columns: map[string]string{}}
	f.flag = f.key + imputedSuffix
	if t.transforms() {
		f.raw = f.key + rawSuffix
		if single {
			f.raw = rawSingle
		}
	}
	var fields []Field
	if declared, ok := t.implementation().(ExtraFielder); ok {
		f.declared, fields = true, declared.ExtraFields()
	}
	if single {
		f.key, f.flag = "acc", imputedSingle
		if len(fields) > 0 {
			f.key = "score"
		}
	}
	var errs []error
	for _, field := range fields {
		errs = append(errs, f.add(t.Key, field))
	}
	return f, errors.Join(errs...)
}

// add declares one column. The caller holds mu, or is the constructor.
func (f *componentFields) add(component string, field Field) error {
	column := field.Name
	if !f.single {
		column = f.key + "/" + field.Name
	}
	switch {
	case field.Name == "":
		return fmt.Errorf("component %q declares an extra field without a name", component)
	case slices.Contains(trainerColumns, column) || strings.HasPrefix(column, "rewardloop/"):
		return fmt.Errorf("component %q: the extra field %q would overwrite a column of the trainer; give the field another name", component, column)
	case column == f.key:
		return fmt.Errorf("component %q: the extra field %q is the column of the reward; give the field another name", component, column)
	case column == f.raw:
		return fmt.Errorf("component %q: the extra field %q is the column of the score before clip and scale; give the field another name", component, column)
	case column == f.flag:
		return fmt.Errorf("component %q: the extra field %q is the column that marks an imputed reward; give the field another name", component, column)
	}
	if _, twice := f.kinds[field.Name]; twice {
		return fmt.Errorf("component %q declares the extra field %q twice", component, field.Name)
	}
	f.kinds[field.Name], f.columns[field.Name] = field, column
	return nil
}

// fill writes the component's columns into extra: the value, its flag, and every
// declared field, null or empty where there is none.
func (f *componentFields) fill(extra map[string]any, t ComponentResult) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.declared && t.Status == StatusOK {
		f.learn(t.Key, t.Score.Extra)
	}
	extra[f.key] = nil
	if t.Status == StatusOK || t.Status == StatusImputed {
		extra[f.key] = t.Value
	}
	extra[f.flag] = t.Status == StatusImputed
	if f.raw != "" {
		extra[f.raw] = nil
		if t.Status == StatusOK {
			extra[f.raw] = t.Score.Value
		}
	}
	for name, field := range f.kinds {
		extra[f.columns[name]] = scalar(t.Score.Extra[name], field.Kind)
	}
	for name := range t.Score.Extra {
		if _, known := f.kinds[name]; !known {
			f.dropped++
		}
	}
}

// learn takes the fields of a scorer that declares none from its first success.
// A name that the trainer keeps for itself is not taken, nor what is no scalar:
// fill counts both as dropped.
func (f *componentFields) learn(component string, extra map[string]any) {
	f.declared = true
	if f.single && len(extra) > 0 {
		f.key = "score" // as verl has it for a function that returns a dict, whose acc may be another value
	}
	for name, v := range extra {
		var kind FieldKind
		switch v.(type) {
		case bool:
			kind = Bool
		case string:
			kind = String
		case nil, float64, float32, int, int64:
			kind = Number
		default:
			continue
		}
		_ = f.add(component, Field{name, kind})
	}
}

// value is the column of the reward itself.
func (f *componentFields) value() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.key
}

// DroppedExtra returns how many extra values were left out because their names are not declared.
func (m *Manager) DroppedExtra() uint64 {
	var n uint64
	for _, f := range m.fields {
		f.mu.Lock()
		n += f.dropped
		f.mu.Unlock()
	}
	return n
}

// scalar brings v to the declared kind; what does not fit is absent.
func scalar(v any, kind FieldKind) any {
	switch kind {
	case Bool:
		if b, ok := v.(bool); ok {
			return b
		}
		return nil
	case String:
		s, _ := v.(string)
		return s
	}
	switch n := v.(type) {
	case float64:
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return nil
		}
		return n
	case float32:
		return scalar(float64(n), Number)
	case int:
		return int64(n)
	case int64:
		return n
	}
	return nil
}
