package remote

import (
	"fmt"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/rewards"
)

// column is a declared extra field, ready to be read.
type column struct {
	field rewards.Field
	at    path
}

func columns(extras []extra) []column {
	out := make([]column, len(extras))
	for i, e := range extras {
		if e.Kind == "" {
			e.Kind = rewards.Number
		}
		if e.Path == "" {
			e.Path = e.Name
		}
		out[i].field = rewards.Field{Name: e.Name, Kind: e.Kind}
		out[i].at, _ = parsePath(e.Path) // validate has read it
	}
	return out
}

func fieldsOf(cs []column) []rewards.Field {
	out := make([]rewards.Field, len(cs))
	for i, c := range cs {
		out[i] = c.field
	}
	return out
}

// set gives a score an extra field. What does not have the kind stays absent.
func set(s *rewards.Score, f rewards.Field, v pickle.Value) {
	x, ok := scalar(v, f.Kind)
	if !ok {
		return
	}
	if s.Extra == nil {
		s.Extra = map[string]any{}
	}
	s.Extra[f.Name] = x
}

// fill gives each verdict its element of a list that is as long.
func fill(out []verdict, name string, kind rewards.FieldKind, values []pickle.Value) {
	for i, v := range values {
		set(&out[i].score, rewards.Field{Name: name, Kind: kind}, v)
	}
}

// columnLists reads columns that are lists with an element per sample. One that is
// missing is absent; one of another length belongs to other samples, and then
// nobody knows whose the scores are.
func columnLists(v pickle.Value, cs []column, out []verdict) error {
	for _, c := range cs {
		found, ok := c.at.look(v)
		if !ok || found == nil {
			continue
		}
		list, ok := items(found)
		if !ok {
			continue
		}
		if len(list) != len(out) {
			return fmt.Errorf("%w: %q has %d elements for %d samples", rewards.InvalidScore, c.at, len(list), len(out))
		}
		fill(out, c.field.Name, c.field.Kind, list)
	}
	return nil
}

// columnsOf reads columns that stand in one sample's part of an answer.
func columnsOf(v pickle.Value, cs []column, s *rewards.Score) {
	for _, c := range cs {
		if found, ok := c.at.look(v); ok {
			set(s, c.field, found)
		}
	}
}
