package config

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
)

// described are all sections of a file, at their defaults, each by the name under which it is
// explained.
func described() []*keys.Section {
	return slices.Concat([]*keys.Section{rewardSection(), entrySection(), engineSection()}, Default().sections())
}

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
		fmt.Fprintf(b, "| `%s` | `%s` |\n", old, moved[old])
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("writing the reference: %w", err)
	}
	return nil
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

// defaultOf is the default of a key as a file may have it; "": it has none.
func defaultOf(k *keys.Key) string {
	if text, ok := k.Default.(string); ok && (text == "" || k.Field == nil) {
		return text
	}
	return show(k.Default)
}

// Schema writes a JSON Schema of a configuration file, for editors.
func Schema(w io.Writer) error {
	all := described()
	reward, entry, engine, rest := sectionSchema(all[0]), sectionSchema(all[1]), sectionSchema(all[2]), all[3:]
	entry["additionalProperties"] = true // the options of its scorer
	properties := reward["properties"].(map[string]any)
	properties["reward_functions"] = named(properties["reward_functions"], "function")
	root := &keys.Section{Set: keys.Set{Sections: rest}}
	schema := sectionSchema(root)
	maps.Copy(schema["properties"].(map[string]any), map[string]any{
		"reward":  map[string]any{"$ref": "#/$defs/reward"},
		"rewards": named(map[string]any{"description": "Further rewards by name, with the keys of reward."}, "reward"),
		"engines": named(map[string]any{"description": "Servers that judges ask, by name."}, "engine"),
	})
	schema["$schema"], schema["title"] = "https://json-schema.org/draft/2020-12/schema", "rewardloop"
	schema["$defs"] = map[string]any{
		"reward": reward, "function": entry, "engine": engine,
		"variable": map[string]any{"type": "string", "pattern": `\$\{oc\.env:`, "description": "A value of the environment: ${oc.env:NAME,default}."},
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	if err := e.Encode(schema); err != nil {
		return fmt.Errorf("writing the schema: %w", err)
	}
	return nil
}

// named is a schema of a mapping whose names the user chooses.
func named(schema any, of string) map[string]any {
	out := map[string]any{"type": []string{"object", "null"}, "additionalProperties": map[string]any{"$ref": "#/$defs/" + of}}
	if s, ok := schema.(map[string]any); ok {
		maps.Copy(out, s)
	}
	return out
}

// sectionSchema is the schema of a section.
func sectionSchema(s *keys.Section) map[string]any {
	properties := map[string]any{}
	for _, k := range s.Keys {
		properties[k.Name] = keySchema(k)
	}
	for _, below := range s.Sections {
		properties[below.Name] = sectionSchema(below)
	}
	out := map[string]any{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	if s.Doc != "" {
		out["description"] = s.Doc
	}
	return out
}

// keySchema is the schema of a key. Any may be a variable of the environment.
func keySchema(k *keys.Key) map[string]any {
	out := map[string]any{}
	if k.Doc != "" {
		out["description"] = k.Doc
	}
	if k.Form != "" {
		out["description"] = k.Doc + " Values: " + k.Form + "."
	}
	if k.Field == nil {
		return out // Form says it
	}
	if text := defaultOf(k); text != "" {
		out["default"] = text
	}
	value := map[string]any{}
	switch k.Field.(type) {
	case *int, *float64:
		value["type"], value["minimum"], out["default"] = "number", k.Low, k.Default
		if _, whole := k.Field.(*int); whole {
			value["type"] = "integer"
		}
		if k.High != math.MaxFloat64 {
			value["maximum"] = k.High
		}
	case *int64:
		value["type"], value["pattern"] = []string{"integer", "string"}, `^\s*[0-9.]+\s*([KMGT]i?)?B?\s*$`
	case *time.Duration:
		value["type"], value["pattern"] = []string{"number", "string"}, `^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^[0-9.]+$`
	case *bool:
		value["type"], out["default"] = "boolean", k.Default
	case *[]string:
		value["type"], value["items"], out["default"] = []string{"array", "string", "null"}, map[string]any{"type": "string"}, []string{}
		return merge(out, value)
	case *map[string]float64:
		value["type"], out["default"] = []string{"object", "null"}, map[string]any{}
		value["additionalProperties"] = map[string]any{"type": "number", "exclusiveMinimum": 0}
	case *string:
		if k.Words == nil {
			value["type"] = []string{"string", "number", "boolean", "null"} // what YAML makes of text without quotes
			return merge(out, value)
		}
		value["enum"] = k.Words
	}
	out["anyOf"] = []any{value, map[string]any{"$ref": "#/$defs/variable"}}
	return out
}

func merge(a, b map[string]any) map[string]any {
	maps.Copy(a, b)
	return a
}
