package tesseract

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// greymap turns tight RGB bytes into a PGM file (P5), which Leptonica reads
// without decoding: 0.5 ms for 512x512 where a PNG would take 20. The weights are
// those of ITU-R BT.601. buf is used if it is large enough.
func greymap(buf, rgb []byte, width, height int) []byte {
	buf = fmt.Appendf(buf[:0], "P5\n%d %d\n255\n", width, height)
	for i := 0; i+2 < len(rgb); i += 3 {
		y := (19595*uint32(rgb[i]) + 38470*uint32(rgb[i+1]) + 7471*uint32(rgb[i+2]) + 1<<15) >> 16
		buf = append(buf, byte(y))
	}
	return buf
}

// negate turns a PGM of that size into its negative.
func negate(pgm []byte, width, height int) {
	px := pgm[len(pgm)-width*height:]
	for i, v := range px {
		px[i] = 255 - v
	}
}

// look reads a PGM.
type look func(pgm []byte) ([]ocr.Line, error)

// twice reads a picture, and its negative if the first reading is not confident;
// the more confident reading wins. pgm is used up.
//
// Tesseract expects dark text on a lighter ground. Its own check for inverse
// lines comes after the thresholding has already lost thin light letters. On the
// 128 rendered pictures of the golden data the second look is taken for 3 in 10
// and lowers the mean error of the reward from 0.167 to 0.022.
func twice(c Config, pgm []byte, width, height int, read look) ([]ocr.Line, error) {
	first, err := read(pgm)
	if err != nil {
		return nil, err
	}
	sure := confidence(first)
	if sure >= c.SecondLook {
		return first, nil
	}
	negate(pgm, width, height)
	second, err := read(pgm)
	if err != nil {
		return nil, err
	}
	if confidence(second) > sure {
		return second, nil
	}
	return first, nil
}

// confidence is the mean over the characters, 0 to 1; 0 where nothing was read.
func confidence(lines []ocr.Line) float64 {
	var sum float64
	n := 0
	for _, l := range lines {
		k := utf8.RuneCountInString(l.Text)
		sum += l.Confidence * float64(k)
		n += k
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// line makes a line of what Tesseract reports; ok is false for one without text.
// Tesseract's confidence runs from 0 to 100.
func line(text string, confidence float64, box [4]int) (l ocr.Line, ok bool) {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "\uFFFD")
	return ocr.Line{Text: text, Confidence: min(max(confidence/100, 0), 1), Box: box}, text != ""
}
