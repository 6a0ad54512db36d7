package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/rewardloop/rewardloop/config"
)

// TestGoldenReference holds docs/configuration.md to what the packages say of their keys.
func TestGoldenReference(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, config.Reference(&b))
	const page = "../docs/configuration.md"
	if *update {
		require.NoError(t, os.WriteFile(page, b.Bytes(), 0o600))
	}
	want, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String(), "run go test ./config -run Golden -update if this is meant")
}

func TestTheSchemaOfEditorsTakesWhatConfigPrintWrites(t *testing.T) {
	t.Parallel()
	schema := schemaOfEditors(t)
	for _, name := range []string{"full.golden", "minimal.golden", "full"} {
		text, err := os.ReadFile("testdata/" + name + ".yaml")
		require.NoError(t, err)
		assert.Empty(t, misfits(t, schema, string(text)), name)
	}
}

func TestTheSchemaOfEditorsRefusesWhatTheFileRefuses(t *testing.T) {
	t.Parallel()
	schema := schemaOfEditors(t)
	for text, want := range map[string]string{
		"loop: {resume_graze: 5s}":                              "loop.resume_graze: no such key",
		"loop: {dispatch: {policy: fastest}}":                   "loop.dispatch.policy: fastest",
		"loop: {max_attempts: many}":                            "loop.max_attempts: many",
		"loop: {max_attempts: 0}":                               "loop.max_attempts: 0",
		"pool: {python: {memory: lots}}":                        "pool.python.memory: lots",
		"reward: {agregation: max}":                             "reward.agregation: no such key",
		"rewards: {a: {custom_reward_function: {retries: 21}}}": "rewards.a.custom_reward_function.retries: 21",
		"engines: {a: {concurency: 1}}":                         "engines.a.concurency: no such key",
		"reward: {models: {a: {bakend: engine}}}":               "reward.models.a.bakend: no such key",
		"lop: {}": "lop: no such key",
	} {
		assert.Equal(t, []string{want}, misfits(t, schema, text))
	}
	assert.Empty(t, misfits(t, schema, "loop: {max_attempts: \"${oc.env:N,3}\"}\nreward: {reward_functions: {a: {path: \"builtin://a\", option: {of: [its, own]}}}}"))
	assert.Empty(t, misfits(t, schema, "reward: {models: {a: {backend: engine, model_path: m, replicas: 2, n_gpus_per_node: 4, nnodes: 1, offload: false, rollout: {name: vllm}}}}"))
}

func schemaOfEditors(t *testing.T) map[string]any {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, config.Schema(&b))
	var schema map[string]any
	require.NoError(t, json.Unmarshal(b.Bytes(), &schema))
	return schema
}

// misfits are the keys of a file whose names or values a schema does not take.
func misfits(t *testing.T, schema map[string]any, text string) []string {
	t.Helper()
	var file any
	require.NoError(t, yaml.Unmarshal([]byte(text), &file))
	return misfit(schema, schema, nil, file)
}

// misfit checks what the schema of a configuration uses of JSON Schema.
func misfit(root, s map[string]any, path []string, v any) (out []string) {
	at := strings.TrimPrefix(strings.Join(path, "."), ".")
	if ref, ok := s["$ref"].(string); ok {
		s = root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	if either, ok := s["anyOf"].([]any); ok {
		for _, one := range either {
			if len(misfit(root, one.(map[string]any), path, v)) == 0 {
				return nil
			}
		}
		return []string{fmt.Sprintf("%s: %v", at, v)}
	}
	kind, number := map[bool]string{true: "null"}[v == nil], 0.0
	switch x := v.(type) {
	case map[string]any:
		kind = "object"
		properties, _ := s["properties"].(map[string]any)
		for name, below := range x {
			inner, known := properties[name].(map[string]any)
			if !known {
				switch more := s["additionalProperties"].(type) {
				case map[string]any:
					inner = more
				case bool:
					if !more {
						out = append(out, strings.TrimPrefix(at+"."+name, ".")+": no such key")
						continue
					}
				}
			}
			out = append(out, misfit(root, inner, append(slices.Clone(path), name), below)...)
		}
	case []any:
		kind = "array"
	case string:
		kind = "string"
	case bool:
		kind = "boolean"
	case int:
		kind, number = "integer", float64(x)
	case float64:
		kind, number = "number", x
	}
	fits := true
	switch types := s["type"].(type) {
	case string:
		fits = types == kind || types == "number" && kind == "integer"
	case []any:
		fits = slices.Contains(types, any(kind)) || slices.Contains(types, any("number")) && kind == "integer"
	}
	if words, ok := s["enum"].([]any); ok {
		fits = fits && slices.Contains(words, v)
	}
	if pattern, ok := s["pattern"].(string); ok && kind == "string" {
		fits = fits && regexp.MustCompile(pattern).MatchString(v.(string))
	}
	if low, ok := s["minimum"].(float64); ok && (kind == "integer" || kind == "number") {
		fits = fits && number >= low
	}
	if high, ok := s["maximum"].(float64); ok && (kind == "integer" || kind == "number") {
		fits = fits && number <= high
	}
	if !fits {
		out = append(out, fmt.Sprintf("%s: %v", at, v))
	}
	return out
}
