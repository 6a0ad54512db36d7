// Package fold rewrites a PP-OCR model, before the runtime loads it, into a model that computes the
// same result with fewer passes over memory. The package supports ONNX files from Paddle's
// exporter, and does not change any part that it does not recognise.
//
// The life of a model: the file is parsed as far as needed (wire.go, model.go). The rules below are
// applied until none applies (rules.go, conv.go). The result is written to a folder that the caller
// chooses; the unchanged parts are copied byte by byte (file.go).
//
// The rules:
//
//   - Weights that are subnormal numbers become 0. A processor needs a hundred times as long to
//     multiply with a subnormal number. In two layers of PP-OCRv6's detector, a quarter and more
//     than half of the weights are subnormal, and these layers took two thirds of the detector's
//     time.
//   - x·clip(x+3, 0, 6)/6 becomes x·HardSigmoid(x), which the runtime computes in the layout of its
//     convolutions. Four passes and two changes of layout become two passes.
//   - Multiplications, additions and normalisations per channel are merged into the weights of the
//     preceding convolution or, if it has no padding, of the following convolution. The remaining
//     operations become one normalisation.
//   - x + x·s with one number s for each channel becomes x·(1+s); a mean over rows and columns
//     becomes the corresponding pooling operation.
//
// Apart from the zeroed weights, only rounding changes: outputs differ by 2·10⁻⁷ (PP-OCRv4 mobile's
// detector) to 2·10⁻⁵, as they do between two versions of the runtime. Measured with ONNX Runtime
// 1.29 on one core, in milliseconds of processor time: PP-OCRv4 mobile's detector at 736x736 from
// 217 to 141, its recogniser at 48x320 from 34 to 24; PP-OCRv6 small's detector from 746 to 216.
package fold
