package ocr

// Distance is the edit distance, for the tests that hold it to the textbook's.
func Distance(a, b []rune, limit int) int { return distance(a, b, limit) }
