// Package ppocr reads text with PP-OCR models: a detector finds the lines of a picture, a
// classifier optionally finds lines that are upside down, and a recogniser reads each line. It is
// written in Go alone: what runs the models is behind the one-method interface [Inferer].
//
// The life of a reading:
//
//  1. Warm loads the models, takes the alphabet from the recogniser's metadata
//     or from a file, and checks that it is as long as the recogniser's output.
//     A reading does it when nobody did before (load.go, ctc.go).
//  2. The picture is brought within bounds: very large ones are made smaller,
//     very small ones larger, very flat ones get black bars (prepare.go). The
//     detector's size follows from its size (sizes.go), and it becomes planes of
//     normalised floats in the order blue, green, red (planes.go).
//  3. The detector's map of probabilities becomes regions, in reading order
//     (boxes.go, order.go).
//  4. Each region is cut out and made upright (warp.go), and the recogniser reads
//     it, one item each, several at a time. Only the most probable class of every
//     step and its probability come back; CTC decoding makes text of them (ctc.go).
//  5. Lines that are blank or doubtful are dropped, corners are mapped back to
//     the picture that came in.
//
// A [Profile] holds the constants of an implementation that is followed:
// RapidOCR's (python/rapidocr/config.yaml, the same for PP-OCRv4 and PP-OCRv6) or
// those that flow_grpo's reward hands to PaddleOCR 2. In [Parity] mode sizes and
// paddings are the reference's too; [Fast] mode detects on fewer pixels and pads
// crops to few different widths, so that lines of several pictures share batches.
// Package fold makes the models themselves faster before they are loaded.
//
// Text is returned from left to right, as the recogniser reads it. Scripts
// written from right to left come out in visual order: nothing here reorders
// them.
package ppocr
