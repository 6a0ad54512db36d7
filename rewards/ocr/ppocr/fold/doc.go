// Package fold rewrites a model of PP-OCR into one that computes the same with fewer
// passes over memory, before the runtime loads it. It is written for ONNX files as
// Paddle's exporter makes them, and leaves alone whatever it does not know.
//
// The life of a model: its file is taken apart as far as needed (wire.go, model.go);
// the rules below are applied until none applies (rules.go, conv.go); what has changed
// is written beside the rest, which is copied byte by byte, to a folder of the
// caller's (file.go).
//
// What changes:
//
//   - Weights that are subnormal numbers become 0. A processor takes a hundred times as
//     long to multiply with one, and two layers of PP-OCRv6's detector consist of them
//     by a quarter and more than a half: they took two thirds of its time.
//   - x·clip(x+3, 0, 6)/6 becomes x·HardSigmoid(x), which the runtime computes in the
//     layout of its convolutions. Four passes and two changes of layout become two
//     passes.
//   - Multiplications, additions and normalisations by channel go into the weights of
//     the convolution before them or, where it does not pad, the one after them.
//     What is left of them becomes one normalisation.
//   - x + x·s with s one number a channel becomes x·(1+s); a mean over rows and columns
//     becomes the pooling of that name.
//
// Nothing else is rounded differently: outputs differ by 2·10⁻⁷ (PP-OCRv4 mobile's
// detector) to 2·10⁻⁵, as they do between two versions of the runtime. Measured with
// ONNX Runtime 1.29 on one core, milliseconds of processor time: PP-OCRv4 mobile's
// detector at 736x736 217 to 141, its recogniser at 48x320 34 to 24; PP-OCRv6 small's
// detector 746 to 216.
package fold
