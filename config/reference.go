package config

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
)

// described are all sections of a file, at their defaults, each by the name under which it is
// explained.
func described() []*keys.Section {
	return slices.Concat([]*keys.Section{rewardSection(), entrySection(), modelSection(), engineSection()}, Default().sections())
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
	reward, entry, model, engine, rest := sectionSchema(all[0]), sectionSchema(all[1]), sectionSchema(all[2]), sectionSchema(all[3]), all[4:]
	entry["additionalProperties"] = true // the options of its scorer
	properties := reward["properties"].(map[string]any)
	properties["reward_functions"] = named(properties["reward_functions"], "function")
	properties["models"] = named(properties["models"], "model")
	root := &keys.Section{Set: keys.Set{Sections: rest}}
	schema := sectionSchema(root)
	maps.Copy(schema["properties"].(map[string]any), map[string]any{
		"reward":  map[string]any{"$ref": "#/$defs/reward"},
		"rewards": named(map[string]any{"description": "Further rewards by name, with the keys of reward."}, "reward"),
		"engines": named(map[string]any{"description": "Servers that judges call, by name."}, "engine"),
	})
	schema["$schema"], schema["title"] = "https://json-schema.org/draft/2020-12/schema", "rewardloop"
	schema["$defs"] = map[string]any{
		"reward": reward, "function": entry, "model": model, "engine": engine,
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
