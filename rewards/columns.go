package rewards

import (
	"cmp"
	"slices"
)

// Columns returns the columns of reward_extra_info that the profile's results have,
// by name: its components' values and flags, and the fields their scorers declare. What
// a scorer without a declaration adds is known only after its first success.
func (m *Manager) Columns() []Field {
	var out []Field
	for _, f := range m.fields {
		out = append(out, f.declaredColumns()...)
	}
	if !m.cfg.Single {
		out = append(out, Field{combinedColumn, Number})
	}
	slices.SortFunc(out, func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (f *componentFields) declaredColumns() []Field {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []Field{{f.key, Number}, {f.flag, Bool}}
	if f.raw != "" {
		out = append(out, Field{f.raw, Number})
	}
	for name, field := range f.kinds {
		out = append(out, Field{f.columns[name], field.Kind})
	}
	return out
}
