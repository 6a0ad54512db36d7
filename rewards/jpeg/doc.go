// Package jpeg rewards a picture by the size of its JPEG file. It counts exactly the bytes that PIL
// would write.
//
// The life of a score: a Scorer takes the pixels that all components of the sample share, and
// passes frame 0 to the counter. The counter processes the picture in units of 16×16 pixels. Each
// unit is converted to luma and chroma of half the resolution, transformed, quantised and
// Huffman-coded according to ITU-T T.81, with the rounding of libjpeg (method "islow", 4:2:0,
// standard tables). The bits are counted and dropped. Only the current word is kept, because a byte
// 0xFF takes a second byte. Size adds the 623 bytes of the header and the end marker.
//
// Published uses of this reward (ddpo-pytorch, flow_grpo, verl-omni) call PIL. The encoder of the
// standard library differs from PIL by up to 3.4 %, which would change the reward. Golden tests
// check that this package gives the same sizes as PIL.
//
// The package has no shared state and starts no goroutines; every function depends only on its
// arguments.
package jpeg
