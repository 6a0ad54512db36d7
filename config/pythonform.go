package config

import (
	"slices"

	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// signatureKey names the form in which a Python function is called.
const signatureKey = "signature"

// formKeys are the keys of an entry that say in which form a Python function is called.
type formKeys struct {
	signature, reference value
}

// takeForm takes them. A function that scores single samples may have a parameter called reference.
func takeForm(o *object, t *ComponentConfig) (k formKeys) {
	if t.Scorer != PythonScorer {
		return k
	}
	k.signature, _ = o.take(signatureKey)
	if !k.signature.null() || t.scoresGroups() {
		k.reference, _ = o.take("reference")
	}
	return k
}

// scoresGroups reports whether a function or class is one of whole prompt groups, by its name or the
// text of its file. Of a module the signature says it.
func (t *ComponentConfig) scoresGroups() bool {
	return t.Function == python.ScoreGroup || hasMethod(t.Path, t.Function, python.ScoreGroup)
}

// form reads in which form a Python function is called.
func (r *reader) form(t *ComponentConfig, k formKeys) {
	if t.Scorer != PythonScorer {
		for _, v := range []value{k.signature, k.reference} {
			if !v.null() {
				r.fault(v, "is for Python functions; leave it out")
			}
		}
		return
	}
	switch {
	case !k.signature.null():
		t.Signature, _ = r.choice(k.signature, python.Signatures())
	case t.scoresGroups():
		t.Signature = python.ScoreGroup
	}
	if !k.reference.null() {
		t.Reference, _ = r.text(k.reference)
		if err := prompt.CheckReference(t.Reference); err != nil {
			r.fault(k.reference, "is not a path: want ground_truth, ground_truth.<path> or extra_info.<path>, got %q", shorten(t.Reference))
		}
	}
}

// batchKeys have no effect on a function that is called with one group at a time.
func batchKeys() []string {
	return []string{"max_batch_size", "max_batch_pixels", "batch_wait_timeout_s"}
}

// entriesOf are the keys that an entry has of those that make a model of it.
func (k pythonKeys) entriesOf(names ...string) (found []entry) {
	if k.placement == nil {
		return nil
	}
	for _, e := range k.placement.entries {
		if slices.Contains(names, e.name) {
			found = append(found, e)
		}
	}
	return found
}

// checkForm holds the form of a Python function against the other keys of its entry.
func (r *reader) checkForm(t *ComponentConfig, own pythonKeys) {
	k := own.form
	if t.Signature == "" {
		if !k.reference.null() {
			r.fault(k.reference, "is for functions of whole prompt groups, whose class has score_group or whose entry has a signature; leave it out")
		}
		return
	}
	if !t.grouped() {
		if !k.reference.null() {
			r.fault(k.reference, "is for functions of whole prompt groups, but batch: true calls the function with single samples in batches; leave one of them out")
		}
		for _, e := range own.entriesOf("batch") {
			if !python.TakesBatches(t.Signature) {
				r.fault(e.value, "calls the function with single samples in batches, but %s needs whole prompt groups; leave batch out", t.Signature)
			}
		}
		return
	}
	for _, e := range own.entriesOf(batchKeys()...) {
		r.fault(e.value, "has no effect: a function of whole prompt groups is called with one group at a time; leave it out")
	}
	if own.hasProbe && !own.probe.null() {
		r.fault(own.probe, "has no effect: a function of whole prompt groups is not called with known samples; leave it out")
	}
}

// grouped reports whether the component is a Python function that is called with whole prompt groups.
func (t ComponentConfig) grouped() bool {
	return python.Options{Signature: t.Signature, Placement: t.Placement}.Grouped()
}
