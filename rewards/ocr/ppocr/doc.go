// Package ppocr reads text with PP-OCR models: a detector finds the lines of a picture, a
// classifier optionally finds lines that are upside down, and a recogniser reads each line. The
// package is pure Go; the models run behind the one-method interface [Inferer].
//
// The life of a reading:
//
//  1. Warm loads the models, takes the alphabet from the recogniser's metadata or from a file, and
//     checks that the alphabet is as long as the recogniser's output. The first reading does this
//     if Warm was not called (load.go, ctc.go).
//  2. The picture is resized to the limits of the profile: a very large picture is shrunk, a very
//     small one is enlarged, and a very flat one gets black bars (prepare.go). The size of the
//     detector's input depends on the size of the picture (sizes.go). The picture becomes planes of
//     normalised floats in the order blue, green, red (planes.go).
//  3. The detector's map of probabilities becomes regions, in reading order (boxes.go, order.go).
//  4. Each region is cut out and made upright (warp.go). The recogniser reads each region as one
//     item, several at the same time. Only the most probable class of every step and its
//     probability are returned; CTC decoding turns them into text (ctc.go).
//  5. Lines that are blank or of low confidence are dropped, and corners are mapped back to the
//     original picture.
//
// A [Profile] holds the constants of a reference implementation: those of RapidOCR
// (python/rapidocr/config.yaml, the same for PP-OCRv4 and PP-OCRv6), or those that flow_grpo's
// reward passes to PaddleOCR 2. In [Parity] mode, sizes and padding are also those of the
// reference. [Fast] mode runs the detector on fewer pixels and pads crops to a few different
// widths, so that lines of several pictures share batches. Package fold makes the models themselves
// faster before they are loaded.
//
// Text is returned from left to right, as the recogniser reads it. Scripts that are written from
// right to left are returned in visual order; the package does not reorder them.
package ppocr
