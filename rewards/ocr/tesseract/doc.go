// Package tesseract reads text from pictures with Tesseract, for package ocr.
//
// The life of a Reader: New checks the configuration; Warm (or the first
// ReadText) starts its slots; each ReadText hands the RGB bytes of one frame to a
// free slot, which turns them grey, lets Tesseract find dark text on a lighter
// ground, and looks a second time at the negative if the first look was not
// confident; Close ends the slots.
//
// Built with the tag "tesseract" (and cgo), a slot is a child process that links
// libtesseract through gosseract: Tesseract can crash, hang and leak, and has no
// way to be cancelled, so it never runs in the main process unless the isolation
// is "inline". Built without the tag, a slot is a permission to start the
// tesseract program found on PATH, once per look. Both give the same lines from
// the same Tesseract; the program costs about 0.1 s more a look for loading its
// model.
package tesseract
