package wire

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
)

// kind is one message of a sub-protocol.
type kind struct {
	name string       // its field "type"
	typ  reflect.Type // a pointer to its struct
	most int          // bytes that it may have; 0: MaxServerControlBytes
}

// kinds are the messages of a sub-protocol: one more has its place there, and nowhere else.
type kinds []kind

func pointerTo[T any]() reflect.Type { return reflect.TypeFor[*T]() }

// of returns the kind of a message, nil for anything else.
func (all kinds) of(v any) *kind {
	t := reflect.TypeOf(v)
	for i := range all {
		if all[i].typ == t {
			return &all[i]
		}
	}
	return nil
}

// read returns the kind that a message says it is. It reads no further than that.
func (all kinds) read(b []byte) (*kind, error) {
	name, err := typeField(b)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].name == name {
			return &all[i], nil
		}
	}
	return nil, fmt.Errorf("%w %q", ErrUnknownType, clip([]byte(name)))
}

// empty returns a new message.
func (k *kind) empty() any { return reflect.New(k.typ.Elem()).Interface() }

// fits refuses a message that has too many bytes.
func (k *kind) fits(b []byte) error {
	if most := cmp.Or(k.most, MaxServerControlBytes); len(b) > most {
		return fmt.Errorf("%w: %s of %d bytes, the limit is %d", ErrTooLarge, k.name, len(b), most)
	}
	return nil
}

// typeField returns the type field of a message.
func typeField(b []byte) (string, error) {
	s := scanner{b: b}
	name := ""
	err := s.object(func(key []byte) (err error) {
		if string(key) == "type" {
			if name, err = s.string(); err == nil {
				err = errFound
			}
			return err
		}
		_, err = s.value()
		return err
	})
	switch {
	case errors.Is(err, errFound):
		return name, nil
	case err == nil:
		return "", fmt.Errorf("%w: it needs a type", ErrMissing)
	}
	return "", err
}
