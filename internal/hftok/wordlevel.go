package hftok

// wordLevel knows whole words only.
type wordLevel struct {
	vocab *vocabulary
	unk   string
}

func readWordLevel(c *component) (*wordLevel, *vocabulary, error) {
	m := &wordLevel{unk: c.text("unk_token", maxToken), vocab: readVocab(c)}
	if err := c.close(); err != nil {
		return nil, nil, err
	}
	return m, m.vocab, nil
}

func (m *wordLevel) encode(_ *scratch, dst []int64, word string) ([]int64, error) {
	if id, ok := m.vocab.ids[word]; ok {
		return append(dst, id), nil
	}
	if id, ok := m.vocab.ids[m.unk]; ok {
		return append(dst, id), nil
	}
	return nil, noUnknown(word, m.unk)
}
