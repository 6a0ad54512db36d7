package config

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
)

// Note is information for the author of the file that is not a fault: a key without effect, or a
// difference between a reward and verl-omni's reward with the same lines, with the line that
// removes the difference.
type Note struct {
	Place   Place
	Key     string
	Message string
}

// String returns place, key and message on one line.
func (n Note) String() string { return Fault{Place: n.Place, Key: n.Key, Message: n.Message}.String() }

// Notes returns the notes of a configuration, in the order of the file.
func (c *Config) Notes() []Note { return slices.Clone(c.notes) }

// Remark adds notes about the machine, which have no place in the file.
func (c *Config) Remark(texts ...string) {
	for _, text := range texts {
		c.notes = append(c.notes, Note{Message: text})
	}
}

func (r *reader) note(v value, message string) {
	r.noteAt(r.place(v.node), v.path, message)
}

func (r *reader) noteAt(at Place, key, message string) {
	r.notes = append(r.notes, Note{at, key, message})
}

// sortNotes puts notes into the order of the file.
func sortNotes(notes []Note) {
	slices.SortStableFunc(notes, func(a, b Note) int {
		return cmp.Or(a.Place.compare(b.Place), cmp.Compare(a.Key, b.Key))
	})
}

// noteDifferences says where a profile is not what verl-omni makes of it.
func (r *reader) noteDifferences(p *Profile, path string) {
	if p.Single {
		return
	}
	if p.Aggregation != rewards.WeightedSum {
		key := path + ".aggregation"
		r.noteAt(r.places[key], key, fmt.Sprintf("verl-omni supports weighted_sum only; %s is an extension of rewardloop", p.Aggregation))
	}
	for _, t := range p.Components {
		if t.Required || t.OnFailure.Policy != "" {
			continue
		}
		r.noteAt(t.Place, path+".reward_functions."+t.Key, "where the component fails, verl-omni adds 0; rewardloop uses the mean of the prompt group, "+
			"and without a group the sample fails. Write `on_failure: zero` in the entry for 0 as in verl-omni")
	}
}
