package models

// OfClone is ofClone.
func OfClone(program string, err error) string { return ofClone(program, err) }
