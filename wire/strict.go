package wire

import (
	"reflect"
	"strings"
	"sync"
)

// check walks a value and compares its names with the tags of t. Where t is an
// interface any value goes.
func (s *scanner) check(t reflect.Type, top bool) error {
	if t.Kind() == reflect.Pointer {
		if s.space() == 'n' {
			return s.literal()
		}
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		return s.checkStruct(t, top)
	case reflect.Slice:
		return s.array(func() error { return s.check(t.Elem(), false) })
	case reflect.Map:
		return s.object(func([]byte) error { return s.check(t.Elem(), false) })
	case reflect.Interface:
	default:
		if s.space() == 'n' {
			return s.fail(ErrValue, "null; leave the name out")
		}
	}
	_, err := s.value()
	return err
}

// checkStruct walks an object and compares its names with the fields of t. A field
// without omitempty must be there: absence is not zero.
func (s *scanner) checkStruct(t reflect.Type, top bool) error {
	fields := fieldsOf(t)
	var seen uint64
	err := s.object(func(key []byte) error {
		for i := range fields {
			if fields[i].name == string(key) {
				seen |= 1 << i
				return s.check(fields[i].typ, false)
			}
		}
		if top && string(key) == "type" {
			_, err := s.str()
			return err
		}
		return s.fail(ErrUnknownName, "%q", clip(key))
	})
	if err != nil {
		return err
	}
	for i := range fields {
		if seen&(1<<i) == 0 && fields[i].required {
			return s.fail(ErrMissing, "%q, in the object that ends", fields[i].name)
		}
	}
	return nil
}

// field is what a JSON tag says.
type field struct {
	name     string
	typ      reflect.Type
	required bool
}

// fieldCache holds the fields of every struct that was read: reflect takes longer
// over a type than the scanner over a message.
var fieldCache sync.Map //nolint:gochecknoglobals // a table of our own types, the same for everybody

// fieldsOf returns the fields of a struct that have a JSON name; at most 64.
func fieldsOf(t reflect.Type) []field {
	if known, ok := fieldCache.Load(t); ok {
		return known.([]field)
	}
	var fields []field
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			fields = append(fields, field{name, f.Type, options == ""})
		}
	}
	fieldCache.Store(t, fields)
	return fields
}
