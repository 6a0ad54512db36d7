package ppocr

// Profile is the name of a reference implementation, whose constants are used.
type Profile string

const (
	// RapidOCR is RapidOCR 3 with its defaults, for PP-OCRv4 mobile or PP-OCRv6 small models.
	RapidOCR Profile = "rapidocr"
	// Paddle2 is PaddleOCR 2.9 with the arguments that flow_grpo leaves at their defaults: a
	// detector with an input of at most 960 pixels on the longer side, other normalisation,
	// thresholds and order of lines, and no bars for flat pictures.
	Paddle2 Profile = "paddle2"
)

// constants are what a profile stands for. Sides are in pixels.
type constants struct {
	// minSide and maxSide bound the picture before everything else; 0: do not.
	minSide, maxSide int
	// A picture at most barHeight high, or more than barRatio times as wide as high,
	// gets black bars above and below; 0: never.
	barHeight int
	barRatio  float64

	// detSide is the smaller side that the detector gets at least or, with detMax,
	// the larger one that it gets at most.
	detSide int
	detMax  bool
	// detClamp keeps the detector's sides at 32 or more; without it a side that
	// rounds to 0 means that there is no text.
	detClamp bool
	// mean and std are the detector's normalisation of values from 0 to 1, by plane.
	mean, std [3]float64
	// wide computes them with 64 bits and rounds once, as numpy does for RapidOCR.
	wide bool
	db   dbParams
	// bubble orders lines by PaddleOCR's single pass of swaps.
	bubble bool

	// recHeight is the height of crops for the recogniser, recWidth the least width
	// they are padded to, recBatch the number of them that share a width.
	recHeight, recWidth, recBatch int
	// rounded rounds probabilities to 5 digits before their mean, and it again.
	rounded bool
	// textScore is the least confidence of a line.
	textScore float64
}

// constants returns those of a known profile.
func (p Profile) constants() constants {
	c := constants{
		minSide: 30, maxSide: 2000, barHeight: 30, barRatio: 8,
		detSide: 736, mean: [3]float64{.5, .5, .5}, std: [3]float64{.5, .5, .5}, wide: true,
		db: dbParams{
			Thresh: .3, BoxThresh: .5, UnclipRatio: 1.6, Dilate: true, MaxCandidates: 1000, MinSize: 3,
		},
		recHeight: 48, recWidth: 320, recBatch: 6, rounded: true, textScore: .5,
	}
	if p == Paddle2 {
		c.minSide, c.maxSide, c.barHeight, c.barRatio = 0, 0, 0, 0
		c.detSide, c.detMax, c.detClamp = 960, true, true
		c.mean, c.std, c.wide = [3]float64{.485, .456, .406}, [3]float64{.229, .224, .225}, false
		c.db.BoxThresh, c.db.UnclipRatio, c.db.Dilate = .6, 1.5, false
		c.bubble, c.rounded = true, false
	}
	return c
}
