package config

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/python/rewardloop/scorers"
	"github.com/rewardloop/rewardloop/rewards"
)

// Fetches is the beginning of the note about a model of the catalogue that downloads files when it
// is loaded for the first time.
const Fetches = "downloads when it is loaded for the first time"

// acceptKey names the licence that whoever wrote the file agrees to.
const acceptKey = "accept_license"

// catalogued reads the path of a reward model of the catalogue. What is left of the component is
// that of a model in Python with an environment of its own.
func (r *reader) catalogued(t *ComponentConfig, pathValue, nameValue value) {
	t.Scorer, t.Function, t.entryAt = PythonScorer, scorers.Class, pathValue
	name := strings.TrimPrefix(t.Path, scorers.Scheme)
	if t.entry = scorers.Find(name); t.entry == nil {
		r.fault(pathValue, "the catalogue has no %q; it has %s%s", shorten(name), strings.Join(scorers.Names(), ", "), nearest(name, scorers.Names()))
		return
	}
	if !nameValue.null() {
		r.fault(nameValue, "%s holds no function; leave name out", t.Path)
	}
}

// licence holds accept_license against what the entry needs. It is refused by name.
func (r *reader) licence(t *ComponentConfig, pathValue, v value) {
	given := ""
	if !v.null() {
		given, _ = r.text(v)
	}
	switch e := t.entry; {
	case e == nil && t.catalogued():
	case e == nil && !v.null():
		r.fault(v, "is for reward models of the catalogue (path: scorer://NAME); leave it out")
	case e == nil:
	case e.Accept == "" && given != "":
		r.fault(v, "%s needs no agreement (%s); leave it out", e.Path(), e.Code.Name)
	case e.Accept != "" && given == "":
		r.fault(pathValue, "%s is used under %s, which does not allow every use: code %s (%s)%s. Read the licence, and if you agree add %s: %s to the entry",
			e.Path(), e.Accept, e.Code.Name, e.Code.URL, weightsOf(e), acceptKey, e.Accept)
	case given != e.Accept:
		r.fault(v, "want %s, the licence of %s, got %q", e.Accept, e.Path(), shorten(given))
	}
	t.accepted = given
}

// weightsOf says what an entry downloads besides packages.
func weightsOf(e *scorers.Entry) string {
	var b strings.Builder
	for _, w := range e.Weights {
		fmt.Fprintf(&b, "; weights %s, about %s, %s (%s)", w.Name, sizeOf(w.Bytes), w.Licence.Name, w.URL)
	}
	return b.String()
}

// sizeOf is a number of bytes for people.
func sizeOf(n int64) string {
	if n >= 1e9 {
		return strconv.FormatFloat(float64(n)/1e9, 'f', 1, 64) + " GB"
	}
	return strconv.FormatInt(max(1, (n+5e5)/1e6), 10) + " MB"
}

// catalogued reports whether the component's path names the catalogue.
func (t *ComponentConfig) catalogued() bool { return strings.HasPrefix(t.Path, scorers.Scheme) }

// ownKeys refuses what the catalogue says of its entries itself, and fills it in.
func (r *reader) ownKeys(t *ComponentConfig, k *pythonKeys) {
	for _, v := range []value{k.extra, k.pixels, k.form.signature, k.form.reference} {
		if !v.null() {
			r.fault(v, "has no effect: the catalogue sets this key for %s; leave it out", t.Path)
		}
	}
	for _, e := range k.entriesOf("batch") {
		if e.node.Value != "false" {
			r.fault(e.value, "the adapter of %s always takes batches; leave the key out", t.Path)
		}
	}
	k.extra, k.pixels, k.hasExtra, k.hasPixels, k.form = value{}, value{}, false, false, formKeys{}
	if k.placement == nil {
		k.placement = r.mapping(value{})
	}
	if t.entry == nil {
		return
	}
	t.Probe = knownKinds(t.entry)
	t.ExtraKeys = map[string]rewards.FieldKind{}
	for _, c := range t.entry.Columns {
		t.ExtraKeys[c.Name] = rewards.Number
	}
}

// knownKinds are the known samples that an entry can score: they have one picture or video, and a prompt.
func knownKinds(e *scorers.Entry) []string {
	kinds := []string{}
	for _, kind := range []string{scorers.Image, scorers.Video} {
		if e.Needs(kind) && !e.Needs(scorers.Source) && !e.Needs(scorers.Audio) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// ownEnvironment is the environment of an entry where the file says no other.
func (r *reader) ownEnvironment(t *ComponentConfig, at value) {
	t.ownEnvironment, t.environmentAt = true, r.place(at.node)
	if hand := t.entry.ByHand; len(hand) > 0 {
		t.environmentLacks = fmt.Sprintf("`rewardloop env make` cannot make the environment of %s: run `%s`, and add interpreter: with the path of its Python to the entry",
			t.entry.Path(), strings.Join(hand, " && "))
		return
	}
	r.found(t, at, &pyenv.Spec{Requirements: t.entry.Requirements})
}

// noteFetches says what an entry downloads besides packages, before anything is started.
func (r *reader) noteFetches(t *ComponentConfig, at value, options []entry) {
	if t.entry == nil {
		return
	}
	given := map[string]string{}
	for _, o := range options {
		given[o.name] = o.node.Value
	}
	var fetched []string
	for _, w := range t.entry.Weights {
		name, replaced := given[w.Option]
		switch {
		case !replaced || name == w.Name:
			fetched = append(fetched, fmt.Sprintf("%s, about %s, %s (%s)", w.Name, sizeOf(w.Bytes), w.Licence.Name, w.URL))
		case !isFolder(name) && !isFile(name):
			fetched = append(fetched, fmt.Sprintf("%s in place of %s, whose size and licence are not known here", shorten(name), w.Name))
		}
	}
	if len(fetched) > 0 {
		r.note(at, Fetches+", unless its cache has it: "+strings.Join(fetched, "; "))
	}
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// withEntry adds what the adapter of an entry needs to the options of the scorer.
func (t ComponentConfig) withEntry(all map[string]any) {
	if t.entry == nil {
		return
	}
	all["path"], all["source"], all["inputs"] = t.entry.Path(), t.entry.Adapter, slices.Clone(t.entry.Inputs)
}
