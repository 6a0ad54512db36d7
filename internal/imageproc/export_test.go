package imageproc

// LongestSize is the size to which Idefics3 brings a w×h picture first.
func LongestSize(p Idefics3, w, h int) (int, int) { return p.longest(w, h) }

// TargetSize is the size to which a step resizes a w×h picture.
func TargetSize(s Step, w, h int) (int, int, error) { return s.target(w, h) }
