package openapi

import (
	"encoding"
	"encoding/json"
	"path"
	"reflect"
	"strings"
	"time"
)

// Field is a field of an Object. A field whose Name ends with "?" is optional.
type Field struct {
	Name string
	Of   any
	Doc  string
}

// Object is an object without a Go type of its own.
type Object []Field

// Strict is an Object that must not have other fields.
type Strict []Field

// OneOf is a value of one of several types.
type OneOf []any

// Words is a string with one of these values.
type Words []string

// Any is any JSON value.
type Any struct{}

// schemas are those of Go types with a name, which others refer to.
type schemas node

// of is the schema of a value's type.
func (s schemas) of(v any) node {
	switch v := v.(type) {
	case Object:
		return s.object(v)
	case OneOf:
		list := make([]node, len(v))
		for i, x := range v {
			list[i] = s.of(x)
		}
		return node{"oneOf": list}
	case Strict:
		out := s.object(Object(v))
		out["additionalProperties"] = false
		return out
	case []Strict:
		return node{"type": "array", "items": s.of(v[0])}
	case Words:
		return node{"type": "string", "enum": []string(v)}
	}
	return s.typed(reflect.TypeOf(v))
}

func (s schemas) object(o Object) node {
	properties, required := node{}, []string{}
	for _, f := range o {
		name, optional := strings.CutSuffix(f.Name, "?")
		if !optional {
			required = append(required, name)
		}
		schema := s.of(f.Of)
		if f.Doc != "" {
			schema["description"] = f.Doc
		}
		properties[name] = schema
	}
	return node{"type": "object", "properties": properties, "required": required}
}

// typed is the schema of a type as encoding/json writes it.
func (s schemas) typed(t reflect.Type) node {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return node{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[Any](), t.Implements(reflect.TypeFor[json.Marshaler]()):
		return node{}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return node{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return node{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return node{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return node{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return node{"type": "number"}
	case reflect.String:
		return node{"type": "string"}
	case reflect.Pointer:
		return orNull(s.typed(t.Elem()))
	case reflect.Slice, reflect.Array:
		return node{"type": "array", "items": s.typed(t.Elem())}
	case reflect.Map:
		return node{"type": "object", "additionalProperties": s.typed(t.Elem())}
	case reflect.Struct:
		return s.named(t)
	default:
		return node{}
	}
}

// orNull is a schema that null fits as well.
func orNull(of node) node {
	if name, ok := of["type"].(string); ok {
		of["type"] = []string{name, "null"}
		return of
	}
	if len(of) == 0 {
		return of
	}
	return node{"anyOf": []node{of, {"type": "null"}}}
}

// named is the schema of a struct: a reference, if its type has a name.
func (s schemas) named(t reflect.Type) node {
	if t.Name() == "" {
		return s.structOf(t)
	}
	name := path.Base(t.PkgPath()) + "." + t.Name()
	if _, known := s[name]; !known {
		s[name] = nil // a type may refer to itself
		s[name] = s.structOf(t)
	}
	return node{"$ref": "#/components/schemas/" + name}
}

func (s schemas) structOf(t reflect.Type) node {
	properties, required := node{}, []string{}
	s.fields(t, properties, &required)
	return node{"type": "object", "properties": properties, "required": required}
}

// fields adds the fields of a struct, with those of what is embedded in it.
func (s schemas) fields(t reflect.Type, properties node, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			s.fields(f.Type, properties, required)
			continue
		}
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct {
			s.fields(f.Type.Elem(), properties, new([]string)) // where it is nil none of them is there
			continue
		}
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		schema := s.typed(f.Type)
		if strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
			if f.Type.Kind() == reflect.Pointer {
				schema = s.typed(f.Type.Elem())
			}
		} else {
			*required = append(*required, name)
			if k := f.Type.Kind(); k == reflect.Slice || k == reflect.Map {
				schema = orNull(schema)
			}
		}
		properties[name] = schema
	}
}
