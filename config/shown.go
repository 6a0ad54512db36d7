package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rewardloop/rewardloop/internal/redact"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// This file says what of a configuration people may read, and what of it is secret.

// plainOptions are the options of scorers that ship whose text is for people: names, modes,
// prompts and patterns. Text of other options, which a function in Python or another server
// reads, may be a secret.
func plainOptions() []string {
	return strings.Fields(`
		protocol model device dtype engine mode preset profile language version kind api output role
		prompt template system prefix question text text_field label name names tag regex json match parse formula scale_rule
		candidates expected forms show steps rubrics schema extras debias out_of_range video image_format metadata reward
		geneval_value sub_metric_reduce score_key reward_key score_path sandbox_error test_cases tests entry_point
		target_rule no_target empty_target whitespace denominator normalise pixels answers answer_token think_token length_key
		tokenizer input batch_wait run_timeout timeout stop interval frame_interval scale method metric`)
}

// plainTrees are those of them below which everything is for people.
func plainTrees() []string {
	return strings.Fields("schema rubrics candidates extras steps expected forms")
}

// shownOptions are options as people may read them. known: a scorer that ships reads them.
type shownOptions struct {
	r     *reader
	known bool
	tree  bool // likewise all that is below
}

// of are the options below a key.
func (s shownOptions) of(name string) shownOptions {
	s.tree = s.tree || slices.Contains(plainTrees(), name)
	s.known = s.tree || slices.Contains(plainOptions(), name)
	return s
}

// value is a value without its secrets. name is the nearest key above it.
func (s shownOptions) value(name string, v value, x any) any {
	switch x := x.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, e := range s.r.mapping(v).rest() {
			of := e.name
			if redact.Named(name) { // all of it is secret
				of = name
			}
			out[e.name] = s.of(of).value(of, e.value, x[e.name])
		}
		return out
	case []any:
		out, flag := make([]any, len(x)), ""
		for i, item := range s.r.list(v) {
			of := name
			if redact.Named(strings.TrimLeft(flag, "-")) && strings.HasPrefix(flag, "-") {
				of = flag // [--token, …]
			}
			out[i] = s.value(of, item, x[i])
			flag, _ = x[i].(string)
			if name == "argv" && argument(i, flag) || name == "env" && variable(flag) {
				out[i] = x[i]
			}
		}
		return out
	case string:
		return s.text(name, v.node, x)
	case nil, bool:
		return x
	}
	if redact.Named(name) {
		return redact.Hidden
	}
	return x
}

// argument reports whether an argument is a command's name, or a flag without a value.
func argument(i int, text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz-_"
	return len(text) <= 40 && (strings.HasPrefix(text, "-") && strings.Trim(text, letters) == "" ||
		i == 0 && strings.Trim(text, letters+"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.") == "")
}

// variable reports whether a text is the name of a variable of the environment.
func variable(text string) bool {
	return strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == "" && (len(text) < 16 || len(text) <= 40 && strings.Contains(text, "_"))
}

// text is a scalar as people may read it. What came from the environment is shown as it was
// written.
func (s shownOptions) text(name string, n *yaml.Node, text string) string {
	if written, ok := s.r.written[n]; ok {
		return shownWritten(name, written, s.known)
	}
	shown := redact.Option(name, text, s.known)
	if shown == redact.Hidden && len(text) >= 8 && !strings.ContainsAny(text, " \t\n") && strings.ContainsAny(text, "0123456789") {
		s.r.secrets.Hide(text)
	}
	return shown
}

// shownWritten is text with ${oc.env:…} in it: what stands around and within the
// interpolations is shown where it is no secret.
func shownWritten(name, text string, known bool) string {
	var pieces []string // of text, interpolations at odd places
	rest := text
	for {
		i := strings.Index(rest, "${")
		end := -1
		if i >= 0 {
			end = closing(rest[i:])
		}
		if end < 0 {
			pieces = append(pieces, rest)
			break
		}
		pieces = append(pieces, rest[:i], shownVariable(name, rest[i:i+end+1], known))
		rest = rest[i+end+1:]
	}
	var around strings.Builder
	for i, p := range pieces {
		if i%2 == 1 {
			p = "X"
		}
		around.WriteString(p)
	}
	// A user and a password that are nothing but interpolations are none.
	bare := strings.NewReplacer("X:X@", "", "://X@", "://").Replace(around.String())
	keep := len(pieces) == 3 && pieces[0] == "" && pieces[2] == "" || !redact.Named(name) && redact.Option(name, bare, known) == bare
	var b strings.Builder
	for i, p := range pieces {
		if i%2 == 0 && p != "" && !keep {
			p = redact.Hidden
		}
		b.WriteString(p)
	}
	return b.String()
}

// shownVariable is one interpolation; its default may be a secret.
func shownVariable(name, text string, known bool) string {
	variable, fallback, has := strings.Cut(text[:len(text)-1], ",")
	if !has {
		return text
	}
	inner := strings.TrimSpace(fallback)
	switch {
	case strings.HasPrefix(inner, "${") && closing(inner) == len(inner)-1:
		fallback = shownVariable(name, inner, known)
	case redact.Option(name, strings.Trim(inner, `"'`), known) != strings.Trim(inner, `"'`):
		fallback = redact.Hidden
	}
	return variable + "," + fallback + "}"
}

// learn finds the secrets of a tree of nodes, so that no error, log line or answer has them.
func (r *reader) learn(name string, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			of := n.Content[i].Value
			switch {
			case slices.Contains([]string{"rewards", "engines", "reward_functions", "verify", "run_weights", "extra_keys"}, name):
				of = "" // the user's own names
			case redact.Named(name):
				of = name
			}
			r.learn(of, n.Content[i+1])
		}
	case yaml.SequenceNode:
		flag := ""
		for _, c := range n.Content {
			of := name
			if strings.HasPrefix(flag, "-") && redact.Named(strings.TrimLeft(flag, "-")) {
				of = flag
			}
			r.learn(of, c)
			flag = c.Value
		}
	case yaml.ScalarNode:
		r.learnText(name, n.Value)
	}
}

// shortestSecret is how long a secret must be to be cut out of texts: shorter ones are parts
// of words.
const shortestSecret = 4

func (r *reader) learnText(name, text string) {
	if left, right, ok := strings.Cut(text, "="); ok && redact.Named(strings.TrimLeft(left, "-")) {
		r.hide(right) // --token=…
	}
	for word := range strings.FieldsFuncSeq(text, func(c rune) bool { return strings.ContainsRune(" \t\n,;&", c) }) {
		switch {
		case strings.Contains(word, "://"):
			r.secrets.HideURL(word)
		case strings.Contains(word, "@") && strings.Contains(word, ":"):
			r.secrets.HideURL("x://" + word)
		}
		if left, right, ok := strings.Cut(word, "="); ok && redact.Named(left) { // of a connection string
			r.hide(right)
		}
	}
	if name == signatureKey && slices.Contains(python.Signatures(), text) {
		return // the form of a function, and not that of an address
	}
	if redact.Named(name) && redact.Option(name, text, false) == redact.Hidden {
		r.hide(text)
		if _, word, ok := strings.Cut(text, " "); ok { // of Bearer …
			r.hide(word)
		}
	}
}

// hide takes a text for a secret, and for how a message cuts it.
func (r *reader) hide(text string) {
	if len(text) >= shortestSecret && !slices.Contains([]string{"basic", "bearer", "digest", "token", "header"}, strings.ToLower(text)) { // ways to log in
		r.secrets.Hide(text, strings.TrimSuffix(shorten(text), "…"))
	}
}

// clean takes what is secret out of what is said of a configuration.
func (r *reader) clean() {
	for i := range r.faults {
		r.faults[i].Message = r.secrets.Text(r.faults[i].Message)
		r.faults[i].Place.Override = r.secrets.Text(r.faults[i].Place.Override)
	}
	for i := range r.notes {
		r.notes[i].Message = r.secrets.Text(r.notes[i].Message)
		r.notes[i].Place.Override = r.secrets.Text(r.notes[i].Place.Override)
	}
}
