package wire

import (
	"errors"
	"fmt"
	"reflect"
)

// side is who says a message.
type side string

const (
	byClient  side = "client"
	byGateway side = "gateway"
	byWorker  side = "worker"
)

// most is how many bytes a message of a side may have.
func (s side) most() int {
	switch s {
	case byClient:
		return MaxClientControlBytes
	case byWorker:
		return MaxClaimControlBytes
	}
	return MaxServerControlBytes
}

// kind is one message of a sub-protocol.
type kind struct {
	name  string       // its field "type"
	from  side         // who says it
	typ   reflect.Type // a pointer to its struct
	shape *shape
}

// message is a row of a table of messages.
func message[T any](name string, from side) kind {
	return kind{name, from, reflect.TypeFor[*T](), shapeOf(reflect.TypeFor[T]())}
}

// kinds are the messages of a sub-protocol.
type kinds []kind

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
	if len(b) > MaxServerControlBytes {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(b), MaxServerControlBytes)
	}
	name, err := typeField(b)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].name == name {
			return &all[i], all[i].fits(b)
		}
	}
	return nil, fmt.Errorf("%w %q", ErrUnknownType, clip([]byte(name)))
}

// empty returns a new message.
func (k *kind) empty() any { return reflect.New(k.typ.Elem()).Interface() }

// fits refuses a message that has too many bytes.
func (k *kind) fits(b []byte) error {
	if most := k.from.most(); len(b) > most {
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
		return "", fmt.Errorf("%w: the message needs a type", ErrMissing)
	}
	return "", err
}
