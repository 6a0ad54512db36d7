// Package media decodes the pictures and videos of a sample to pixels: 8-bit RGB without gaps, frame after
// frame. The content is untrusted.
//
// A decoding has these steps:
//
//  1. A worker makes one Decoder and sets it on every media of a sample (rewards.Media.SetDecoder).
//     Nothing is decoded until a scorer requests pixels.
//  2. The content is checked without decoding it: of a raw tensor the element type, the length, and
//     the shape against the layout; of a PNG, JPEG or WebP file the header (size, number of JPEG
//     scans, lengths of WebP chunks, groups of Huffman trees in a lossless WebP: vp8l.go); of a list
//     of frames the header of every frame. Content that exceeds a limit or differs from the sample's
//     description is refused here with an error of class rewards.BadInput, and without an allocation
//     of its size.
//  3. The maximum memory of the decoding is now known and is taken from the budget (budget.go). If
//     the budget is used up, the decoding waits until others end or its context ends; tenants take
//     turns.
//  4. The picture is decoded and converted as PIL's convert("RGB") does: alpha is dropped, not
//     blended; gray is repeated; palettes are looked up; of 16 bits the high byte is kept. As in
//     PIL's open, EXIF orientations are not applied, because trainers send pixels in their stored
//     orientation. The decoder reads through the context of its caller, so the decoding of a
//     cancelled sample stops at the next read: after 256 bytes of the file, or at the beginning of
//     the next scan of a JPEG. At each read the decoder also lets another run compute
//     (rewards.Yield).
//  5. The memory that the decoding needed in addition to the pixels is released; if the decoding
//     failed or panicked, all of its memory is released. A panic of a decoder is an error of class
//     rewards.BadInput and does not end the worker. Released memory still counts until the garbage
//     collector has freed it (garbage.go). If released memory leaves no room for a waiting picture,
//     the garbage collector is run.
//  6. The pixels stay booked while a component of the sample reads them. Afterwards the pixels are
//     kept, still booked, for another component. Kept pixels are dropped when their memory is
//     needed, or when the components of the sample have returned.
//
// The file of a video (video.go) is decoded by a Player, which runs ffmpeg in a separate process. First the
// packets are counted without decoding them, and compared with the limits. Then the memory of the chosen frames
// is booked and filled. Of sounds (sound.go), WAV is decoded in this package and FLAC by the Player.
//
// A raw tensor whose last axis has three channels is not copied: its pixels are the sample's own bytes. All
// other pixels are in a new buffer.
//
// A scorer that reads pixels does not wait for an executor at the same time, so that the memory is always
// released: the scorer waits for its executor first, and then borrows the pixels.
//
// ToRGB and Resize are the same conversions for pictures that a scorer has made itself. EncodePNG and
// EncodeJPEG encode a frame as a file, for a scorer that sends it to another server.
package media
