package stats

// Values is how many values a step keeps, over all columns.
func Values(s *Stats, key Key) (n int) {
	for _, c := range s.runs[key.Run][key].columns {
		n += cap(c.values)
	}
	return n
}
