// Package media turns the pictures and videos of a sample into pixels: 8-bit
// RGB, tight, frame after frame. It is written for bytes that come from
// strangers.
//
// The life of a decoding:
//
//  1. A worker makes one Decoder and installs it on every media of a sample
//     (rewards.Media.SetDecoder). Nothing happens until a scorer asks for
//     pixels.
//  2. The content is checked without decoding it. Of a raw tensor that is its
//     element type, its shape against its layout and its length; of a PNG, JPEG
//     or WebP its header (size, number of JPEG scans, lengths of WebP chunks, groups
//     of Huffman trees in a lossless WebP: vp8l.go); of a list of frames every
//     frame's header. What is beyond a limit, or is not what the sample says it is,
//     ends here with an error of class rewards.BadInput and no allocation of its size.
//  3. What decoding will allocate at most is known now and is taken from the
//     budget (budget.go). Who finds it empty waits until others are done or its own
//     context ends; tenants take turns.
//  4. The picture is decoded and converted as PIL's convert("RGB") does it:
//     alpha dropped and not blended, gray repeated, palettes looked up, of 16
//     bits the high byte. Orientations of EXIF are not applied, as PIL's open does
//     not: trainers hand over pixels the way they lie. The decoder reads through its
//     caller's context, so a cancelled sample stops decoding at the next read: after
//     256 bytes of the file, or where the next scan of a JPEG begins. There it also lets
//     another run compute (rewards.Yield).
//  5. What decoding took beside the pixels is given back, and all of it if decoding failed or
//     panicked. A panic of a decoder is a bad picture, not a dead worker. What was given back
//     still counts until the garbage collector has freed it (garbage.go): where it leaves no
//     room for a picture that waits, the collector is called.
//  6. The pixels stay booked while a component of the sample reads them. When none does they
//     are kept, still booked, in case another will; they are dropped when somebody needs the
//     memory, or when the components of the sample have returned.
//
// The file of a video (video.go) is decoded by a Player, which is ffmpeg in a process of its own. Its packets are
// counted first, without decoding one, and held against the limits; then what the chosen frames take is booked
// and filled. Of sounds (sound.go) WAV is decoded here and FLAC by the Player.
//
// A raw tensor whose axes are H, W and three channels is not copied: its pixels
// are the sample's own bytes. All else is a fresh buffer.
//
// Who reads pixels does not wait for an executor meanwhile, so that the memory always comes
// back: a scorer waits for its executor first, and then borrows the pixels.
//
// ToRGB and Resize are the same conversions for pictures that a scorer made
// itself. EncodePNG and EncodeJPEG are the way out: a frame as a file, for a
// scorer that asks another server.
package media
