package ocr

// distance is the Levenshtein distance of a and b in code points, or limit if
// the distance is limit or more. It takes O(len(a)) memory and looks only at the
// diagonal band that can stay below the limit: O(limit·len(b)) time, and b longer
// than len(a)+limit costs nothing.
func distance(a, b []rune, limit int) int {
	a, b = trimCommon(a, b)
	if len(a) > len(b) {
		a, b = b, a
	}
	limit = min(limit, len(b)+1) // no distance is larger; it keeps the sums below from overflowing
	if len(b)-len(a) >= limit {
		return max(limit, 0)
	}
	if len(a) == 0 {
		return len(b) // below the limit, as checked
	}
	// row[i] is the distance of a[:i] and b[:j]; outside the band it is limit.
	row := make([]int, len(a)+1)
	for i := range row {
		row[i] = min(i, limit)
	}
	for j := 1; j <= len(b); j++ {
		lo, hi := max(1, j-limit), min(len(a), j+limit)
		diagonal := row[lo-1]
		if lo == 1 {
			row[0] = min(j, limit)
		} else {
			row[lo-1] = limit
		}
		best := row[lo-1]
		for i := lo; i <= hi; i++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost = 1 + min(diagonal, row[i-1], row[i])
			}
			diagonal = row[i]
			row[i] = min(cost, limit)
			best = min(best, row[i])
		}
		if best >= limit {
			return limit
		}
	}
	return row[len(a)]
}

// trimCommon drops the common beginning and end, which never change the distance.
func trimCommon(a, b []rune) (_, _ []rune) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}
