package wire

import (
	"reflect"
	"strings"
)

// shape is what a value of a message has to look like: that of a Go type. It is made once, with
// the table of messages: reflect takes longer over a type than the scanner over a message.
type shape struct {
	kind   reflect.Kind
	null   bool    // it may be null
	elem   *shape  // of a slice or a map
	fields []field // of a struct; at most 64
}

// field is what a JSON tag says.
type field struct {
	name     string
	shape    *shape
	required bool
}

func shapeOf(t reflect.Type) *shape {
	s := &shape{}
	if s.null = t.Kind() == reflect.Pointer; s.null {
		t = t.Elem()
	}
	switch s.kind = t.Kind(); s.kind {
	case reflect.Slice, reflect.Map:
		s.elem = shapeOf(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" && name != "-" {
				s.fields = append(s.fields, field{name, shapeOf(f.Type), options == ""})
			}
		}
	}
	return s
}

// check walks a value and compares its names with those of a shape. Where that is an
// interface any value goes.
func (s *scanner) check(want *shape, top bool) error {
	if want.null && s.space() == 'n' {
		return s.literal()
	}
	switch want.kind {
	case reflect.Struct:
		return s.checkStruct(want, top)
	case reflect.Slice:
		return s.array(func() error { return s.check(want.elem, false) })
	case reflect.Map:
		return s.object(func([]byte) error { return s.check(want.elem, false) })
	case reflect.Interface:
	default:
		if s.space() == 'n' {
			return s.fail(ErrValue, "null; leave the name out")
		}
	}
	_, err := s.value()
	return err
}

// checkStruct walks an object and compares its names with the fields of a struct. A field
// without omitempty must be there: absence is not zero.
func (s *scanner) checkStruct(want *shape, top bool) error {
	var seen uint64
	err := s.object(func(key []byte) error {
		for i := range want.fields {
			if want.fields[i].name == string(key) {
				seen |= 1 << i
				return s.check(want.fields[i].shape, false)
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
	for i := range want.fields {
		if seen&(1<<i) == 0 && want.fields[i].required {
			return s.fail(ErrMissing, "%q, in the object that ends", want.fields[i].name)
		}
	}
	return nil
}
