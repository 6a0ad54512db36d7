package config

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/config/keys"
)

const referenceHead = `# Configuration

<!-- Written by go test ./config -run Golden -update, from what the packages say of their keys. -->

Every key of the one YAML file, by section. ` + "`rewardloop config print -c cfg.yaml`" + ` shows the values in force, ` + "`config check`" + ` every
fault with its line. An override on the command line changes a key for one start: ` + "`key=value`" + ` one that has a value, ` + "`+key=value`" + ` one that
has none yet, ` + "`++key=value`" + ` either, and ` + "`~key`" + ` deletes it. ` + "`${oc.env:NAME,default}`" + ` reads the environment.

Sizes are written as 64MiB, 1.5GiB, 500MB or a number of bytes; durations as 120s, 2m30s, 250ms or a number of seconds.

An editor that knows YAML's language server completes and checks keys by the JSON Schema of this page. Write it to a file, and name
that in the first line of the configuration:

` + "```sh\nrewardloop config schema > rewardloop.schema.json\n```" + `

` + "```text\n# yaml-language-server: $schema=rewardloop.schema.json\n```" + `

` + "`rewards.<name>`" + ` holds further rewards with the keys of ` + "`reward`" + `, which a sample chooses by name; ` + "`engines.<name>`" + ` servers that judges ask.
`

// reference writes the page that explains every key, in Markdown.
func reference(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprint(b, referenceHead)
	for _, top := range described() {
		for path, s := range top.All {
			if rows := slices.DeleteFunc(slices.Clone(s.Keys), func(k *keys.Key) bool { return k.Doc == "" }); len(rows) > 0 {
				name, doc := top.Name+"."+path, s.Doc
				fmt.Fprintf(b, "\n## %s\n\n%s\n\n| key | default | values | meaning |\n|---|---|---|---|\n", cell(strings.TrimSuffix(name, ".")), cell(doc))
				for _, k := range rows {
					fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", k.Name, code(defaultOf(k)), cell(cmp.Or(k.Form, k.Range())), cell(k.Doc))
				}
			}
		}
	}
	fmt.Fprint(b, "\n## Keys that have moved\n\nAn old key is a fault that names the new one.\n\n| old | new |\n|---|---|\n")
	moved := renamed()
	for _, old := range slices.Sorted(maps.Keys(moved)) {
		fmt.Fprintf(b, "| `%s`%s | `%s` |\n", old, staying(old), moved[old])
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("writing the reference: %w", err)
	}
	return nil
}

// staying says which keys below an old one have not moved; "": all have.
func staying(old string) string {
	for _, s := range rewardSection().Sections {
		if "reward."+s.Name == old {
			return ", except " + strings.Join(s.Names(), " and ")
		}
	}
	return ""
}

// cell is a text in a table of Markdown. Addresses in it are examples and no links.
func cell(text string) string {
	words := strings.Split(strings.NewReplacer("|", "\\|", "<", "&lt;", "*", "\\*").Replace(text), " ")
	for i, w := range words {
		if bare := strings.TrimRight(w, ".,;"); strings.Contains(w, "http://") {
			words[i] = "`" + bare + "`" + w[len(bare):]
		}
	}
	return strings.Join(words, " ")
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
