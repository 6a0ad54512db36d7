package wire

import "reflect"

// Row is a message of a sub-protocol as its table has it: its name, who says it, and the type
// whose fields are those of its JSON.
type Row struct {
	Name, From string
	Form       reflect.Type
}

// Rows returns the messages of a sub-protocol.
func Rows(protocol string) []Row {
	all := map[string]kinds{Protocol: controlKinds, ClaimProtocol: claimKinds}[protocol]
	rows := make([]Row, len(all))
	for i, k := range all {
		rows[i] = Row{k.name, string(k.from), k.typ.Elem()}
		switch k.typ {
		case reflect.TypeFor[*ClaimPayload]():
			rows[i].Form = reflect.TypeFor[payloadMessage]()
		case reflect.TypeFor[*ClaimResult]():
			rows[i].Form = reflect.TypeFor[resultMessage]()
		}
	}
	return rows
}
