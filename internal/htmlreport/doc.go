// Package htmlreport writes a report of scored samples as one HTML file: distribution of the
// reward, best and worst samples with pictures, failures, components and, where they are given,
// prompt groups and the trace of the step.
//
// The file asks nobody for anything: it has no script, styles and pictures are inside of it, and
// its policy (Content-Security-Policy) forbids the browser to load anything else. It can be sent
// to somebody else as it is.
//
// Texts come from trainers, models and strangers. The template escapes them, they are cut to a
// bounded length, and none of them can widen the page. Pictures are small JPEG files that are
// made here of decoded pixels, never bytes of a sample; there are at most maxPictures of them.
package htmlreport
