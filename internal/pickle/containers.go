package pickle

import "slices"

// searchLimit is the length up to which a dict is searched for a key entry by
// entry; the dicts of a request have two to ten.
const searchLimit = 16

// operands pops what the short form of an opcode takes (n values) or what the
// form with a MARK takes (all above it).
func (d *decoder) operands(short byte, n int) ([]Value, error) {
	if d.op == short {
		return d.pop(n)
	}
	return d.popMark()
}

func (d *decoder) appendItems() error {
	items, err := d.operands(opAppend, 1)
	if err != nil {
		return err
	}
	target, err := d.top()
	if err != nil {
		return err
	}
	list, ok := target.(*List)
	if !ok {
		return d.malformed("appends to a %s, want a list", TypeName(target))
	}
	list.Items = append(list.Items, items...)
	return nil
}

func (d *decoder) setItems() error {
	items, err := d.operands(opSetItem, 2)
	if err != nil {
		return err
	}
	if len(items)%2 != 0 {
		return d.malformed("%d values are not pairs of keys and values", len(items))
	}
	target, err := d.top()
	if err != nil {
		return err
	}
	dict, ok := target.(*Dict)
	if !ok {
		return d.malformed("sets items of a %s, want a dict", TypeName(target))
	}
	dict.Items = slices.Grow(dict.Items, len(items)/2)
	for pair := range slices.Chunk(items, 2) {
		if err := d.setItem(dict, pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}

// setItem does as dict[key] = value: a key that is there keeps its place.
func (d *decoder) setItem(dict *Dict, key, value Value) error {
	k, ok := dictKey(key)
	if !ok {
		return d.forbidden("a %s as the key of a dict: use str", TypeName(key))
	}
	if i, ok := d.find(dict, k); ok {
		dict.Items[i].Value = value
		return nil
	}
	dict.Items = append(dict.Items, Pair{Key: key, Value: value})
	if index := d.indexes[dict]; index != nil {
		index[k] = len(dict.Items) - 1
	}
	return nil
}

// find looks for the entry of a key in dictKey's form. Long dicts get an index,
// so that n keys cost n steps and not n squared.
func (d *decoder) find(dict *Dict, key any) (int, bool) {
	if len(dict.Items) <= searchLimit {
		for i, p := range dict.Items {
			if k, _ := dictKey(p.Key); k == key {
				return i, true
			}
		}
		return 0, false
	}
	index := d.indexes[dict]
	if index == nil {
		index = make(map[any]int, 2*len(dict.Items))
		for i, p := range dict.Items {
			k, _ := dictKey(p.Key)
			index[k] = i
		}
		if d.indexes == nil {
			d.indexes = make(map[*Dict]map[any]int)
		}
		d.indexes[dict] = index
	}
	i, ok := index[key]
	return i, ok
}

func (d *decoder) tuple() error {
	var items []Value
	var err error
	if d.op == opTuple {
		items, err = d.popMark()
	} else {
		items, err = d.pop(int(d.op) - opTuple1 + 1)
	}
	if err != nil {
		return err
	}
	return d.push(&Tuple{Items: slices.Clone(items)})
}
