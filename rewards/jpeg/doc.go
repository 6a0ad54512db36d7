// Package jpeg rewards a picture by the size of its JPEG file, and counts that
// size as PIL would write it, to the byte.
//
// The life of a score: a Scorer takes the pixels that all components of the sample
// share, and hands frame 0 to the counter. The counter goes through the picture
// in units of 16×16 pixels. Each unit is converted to luma and halved chroma,
// transformed, quantised and Huffman-coded by the rules of ITU-T T.81 with the
// roundings of libjpeg (method "islow", 4:2:0, standard tables). The bits are
// counted and dropped; only the word in hand is kept, because a byte 0xFF costs
// a second byte. Size adds the 623 bytes of header and the end marker.
//
// Published uses of this reward (ddpo-pytorch, flow_grpo, verl-omni) call PIL.
// The standard library's encoder differs from it by up to 3.4 % and would change
// the reward; this one is held equal by golden tests.
//
// Everything here is a pure function of its input: no state is shared, no
// goroutine is started.
package jpeg
